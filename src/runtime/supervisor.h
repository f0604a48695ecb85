// Supervisor: the loop behind run_workers(). One object is one run; one thread uses it.
#pragma once

#include "io/process.h"
#include "runtime/output_relay.h"
#include "runtime/runner.h"
#include "runtime/signal_watch.h"
#include "runtime/worker_channel.h"

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <poll.h>
#include <string>
#include <vector>

namespace divisi::runtime {

// SIGPIPE stays away from the calling thread while this lives; one that was raised meanwhile is
// swallowed. Other threads are not touched.
class SigpipeBlock {
 public:
  SigpipeBlock();
  ~SigpipeBlock();
  SigpipeBlock(const SigpipeBlock&) = delete;
  SigpipeBlock& operator=(const SigpipeBlock&) = delete;

 private:
  bool changed_ = false;
};

class Supervisor {
 public:
  Supervisor(const RunnerOptions& options, const std::vector<WorkerConfig>& workers);
  ~Supervisor();  // no process and no socket file is left
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  RunResult run();

 private:
  using Clock = std::chrono::steady_clock;

  struct Worker {
    WorkerConfig config;
    std::optional<io::Process> process;  // empty while it does not run
    WorkerChannel channel;
    std::optional<LineRelay> output;
    std::optional<LineRelay> error;
    std::unique_ptr<LogFile> log_file;
    bool joined = false;
    bool finished = false;                      // ended as it should
    std::optional<WorkerReport> outcome;        // its own last word
    std::optional<Clock::time_point> again_at;  // restart
  };

  // One entry of the poll set and what to do about it.
  struct Watched {
    enum class Kind { kSignals, kStop, kProcess, kChannel, kOutput, kError, kSink };
    Kind kind;
    Worker* worker;
    OutputSink* sink;
  };

  Status start(Worker& worker);
  // Workers of ours, and of front ends, get a configuration and a channel; other programs do not.
  bool is_configured() const { return options_.command.empty() || options_.command_is_worker; }
  void forget_finished_siblings(WorkerConfig& config) const;
  io::SpawnOptions spawn_options(const Worker& worker) const;
  Status open_log_file(Worker& worker) const;
  void attach_output(Worker& worker);

  bool any_left() const;
  void collect_watched(std::vector<pollfd>& fds, std::vector<Watched>& watched);
  int poll_timeout() const;
  void dispatch(const Watched& watched);
  void check_clock();

  void take_signals();
  void take_reports(Worker& worker);
  void take_exit(Worker& worker);
  void judge(Worker& worker, const io::ExitStatus& status);
  void tell_siblings_of_death(const Worker& worker);
  void tell_joining_siblings_of_end(const Worker& worker);
  void lose(Worker& worker, int exit_code, const std::string& what);

  void fail(Worker& worker, int exit_code, Code code, const std::string& what);
  void begin_shutdown(std::chrono::milliseconds grace);
  void kill_all();
  void flush_output();
  void report_lost_output() const;
  void tell(WorkerEvent::Kind kind, const Worker& worker, int pid, const std::string& text) const;

  const RunnerOptions& options_;
  const SigpipeBlock sigpipe_;
  const std::unique_ptr<const SignalWatch> own_signals_;  // without RunnerOptions::signals
  const SignalWatch& signals_;
  OutputSink stdout_;
  OutputSink stderr_;
  std::vector<std::unique_ptr<Worker>> workers_;
  RunResult result_;
  int signal_ = 0;             // that asked us to end
  CaughtSignal first_signal_;  // the same, and when
  bool shutting_down_ = false;
  Clock::time_point kill_at_;
};

}  // namespace divisi::runtime
