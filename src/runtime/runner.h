// run_workers(): starts worker processes, watches them, relays what they print, ends them.
//
//   DIVISI_TRY(Plan plan, plan_workers(options));
//   RunResult result = run_workers({.worker_lost = WorkerLost::kFail}, plan.workers);
//
// One thread, one poll over pidfds, pipes and signals; it returns when every worker is gone and
// its socket file is removed. The calling thread starts the workers and must stay: a worker is
// killed by the kernel when the thread that started it ends, so that none outlives a launcher that
// was killed with SIGKILL. SIGINT, SIGTERM and SIGHUP are watched during the call (a handler the
// user has installed is still called; an ignored signal stays ignored) and restored afterwards.
#pragma once

#include "base/status.h"
#include "runtime/exit_code.h"
#include "runtime/signal_watch.h"
#include "runtime/worker_config.h"

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::runtime {

enum class WorkerLost { kFail, kIgnore, kRestart };

Result<WorkerLost> parse_worker_lost(std::string_view text);  // "fail", "ignore", "restart"

// What happened to a worker, in the order seen by the launcher.
struct WorkerEvent {
  enum class Kind { kStarted, kJoined, kEnded, kLost, kRestarting };
  Kind kind;
  int node_id;
  int pid;
  std::string text;  // for people
};

struct RunnerOptions {
  WorkerLost worker_lost = WorkerLost::kFail;
  std::chrono::milliseconds grace{5'000};        // between SIGTERM and SIGKILL
  int max_restarts = 3;                          // of one worker, under kRestart
  std::chrono::milliseconds restart_delay{100};  // doubles with each restart, up to 5 s

  // Empty: this program again. Otherwise the program and its arguments.
  std::vector<std::string> command{};
  // The command links libdivisi and enters the worker itself (a front end's interpreter). If not,
  // it gets no configuration and no channel but the DITASK_* variables (`ditask -- command`).
  bool command_is_worker = false;

  bool relay_output = true;  // false: workers write to our stdout and stderr themselves
  // Whoever read our stdout has gone (`| head`): the run ends as if by SIGPIPE. If not, it goes on.
  bool end_with_reader = false;
  bool prefix = true;     // "[node 3] " before each relayed line
  std::string log_dir{};  // not empty: also <log_dir>/node_<id>.log

  // Watches SIGINT, SIGTERM and SIGHUP already, and outlives the run; nullptr: from the run on.
  const SignalWatch* signals = nullptr;

  // -1, or a descriptor that becomes readable when the run shall end as if by SIGTERM, but with
  // success.
  int stop_fd = -1;

  std::function<void(const WorkerEvent&)> on_event{};  // called on the supervising thread
};

struct RunResult {
  int exit_code = kExitOk;
  Status status;            // not ok: the first failure, its node id and the worker's own message
  int failed_node = -1;     // node id of the first failure
  std::string stderr_tail;  // last lines that node wrote to stderr

  bool ok() const { return status.ok(); }
};

RunResult run_workers(const RunnerOptions& options, const std::vector<WorkerConfig>& workers);

}  // namespace divisi::runtime
