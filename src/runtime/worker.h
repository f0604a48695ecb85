// The worker's side: what a spawned process does in place of main(), and what a launcher with one
// worker does in its own process.
#pragma once

#include "base/status.h"
#include "runtime/worker_config.h"

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace divisi::runtime {

class SignalWatch;

// How a worker brings its network up and down. The router installs itself here at start
// (set_worker_hooks from a static constructor); tests install fakes. Defaults do nothing.
struct WorkerHooks {
  // Binds, dials and joins. The status decides what the launcher hears: kUnavailable (address in
  // use, unreachable), kUnauthorized, kConflict or kForbidden (refused), kTimeout (join).
  std::function<Status(const WorkerConfig&)> activate;
  // After main. `failed`: main threw and will not be tried again. Not ok: what main had emitted
  // did not all arrive.
  std::function<Status(bool failed)> deactivate;
  // After each call of main, which threw if it `failed`: what main left running ends. What it
  // throws is a failure of that call.
  std::function<void(bool failed)> main_ended;
  // After deactivate: the error of a listener of the router that nobody has seen, or null.
  std::function<std::exception_ptr()> unseen_error;
  // Before main is called again: `retries` failures so far. Removes the failed attempt's listeners.
  std::function<void(int retries)> next_attempt;
  // SIGTERM or SIGINT: ask the task to leave its loop. Called on a thread of its own, perhaps
  // before activate, and then it counts for the run that begins.
  std::function<void()> request_finish;
  // Before another run in the same process: forgets an earlier request_finish.
  std::function<void()> forget_finish;
  // The launcher saw the process of this node die. `address`: where it listened, if it will not be
  // started again, or empty.
  std::function<void(int node_id, const std::string& address)> peer_died;
};

void set_worker_hooks(WorkerHooks hooks);
const WorkerHooks& worker_hooks();

using MainFunction = std::function<int(const std::vector<std::string>&)>;

// How one worker's main ended.
struct WorkerOutcome {
  enum class Kind { kDone, kFailed, kBindFailed, kRefused, kJoinTimeout, kUsage, kUndelivered };
  Kind kind = Kind::kDone;
  int exit_code = 0;
  std::string text;              // exception type and message, or the message of the hook
  std::exception_ptr exception;  // of the last attempt, in this process only
};

// Whether the worker is asked to finish; waits so long for it.
using FinishWithin = std::function<bool(std::chrono::milliseconds)>;

// activate, main (again while auto_recover allows), deactivate. `on_joined` runs before main; once
// `finish_within` says true, a failed main is not tried again. One that fails at once is tried
// again after pauses, up to a second.
WorkerOutcome run_worker(const WorkerConfig& config, const MainFunction& main,
                         const std::function<void()>& on_joined = {},
                         const FinishWithin& finish_within = {});

// The same in the launcher's own process (n = 1): SIGINT and SIGTERM ask for finish; after
// `config.finish_grace`, or at an impatient SIGINT (signal_watch.h), the process exits at once with
// 128 + signal and without its socket file. `signal` is the one that came, or 0. `signals` watches
// already, so that none is lost between its caller and main; nullptr: they are heard from the call
// on.
struct InlineOutcome {
  WorkerOutcome outcome;
  int signal = 0;
};
InlineOutcome run_worker_inline(const WorkerConfig& config, const MainFunction& main,
                                const SignalWatch* signals = nullptr);

// "std::runtime_error: no such file", with nested exceptions after it.
std::string describe_exception(const std::exception_ptr& exception);

// In a process that was spawned as a worker and has not entered its function yet (its program does
// not link libdivisi directly, so main() was entered first): runs the worker and exits. Otherwise
// returns. Runners call it first, or they would start workers for ever.
void enter_worker_if_spawned();

// What it consists of. `resolve` finds the function that the configuration names.
using ResolveMain = std::function<Result<MainFunction>(const EntryRef& entry)>;
bool is_spawned_worker();
int run_spawned_worker(const ResolveMain& resolve);

// The name of the variable that carries the descriptor of the configuration.
constexpr const char* kWorkerFdVariable = "DIVISI_WORKER_FD";

}  // namespace divisi::runtime
