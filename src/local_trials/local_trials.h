// LocalTrials: trials as processes of this machine, so many at a time.
//
//   DIVISI_TRY(auto trials, LocalTrials::open({.slots = 4, .grace = 10s}));
//   while (trials->has_room()) DIVISI_TRY(pid_t pid, trials->start({...}));
//   for (TrialEvent& event : trials->wait(deadline)) ...
//
// Each trial has a process group of its own. When its first process has ended, or when it is
// ended from here, no process that it started survives: group, descendants, and those that a
// double fork re-parented to this process. Nothing is polled: ends come by pidfd, reports by
// inotify. One thread makes, uses and destroys it, and must live as long as the trials (the kernel
// kills them when it dies). Other children of this process are taken for orphans of a trial, so
// it must have none while trials run.
#pragma once

#include "base/status.h"
#include "io/process.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace divisi::local_trials {

using Clock = std::chrono::steady_clock;

struct LocalTrialsOptions {
  int slots = 1;                            // trials at the same time; from 1
  std::chrono::milliseconds grace{10'000};  // between SIGTERM and SIGKILL
  std::vector<std::string> gpus{};          // as CUDA_VISIBLE_DEVICES names them; none: not managed
  int gpus_per_trial = 1;                   // of these; from 1 to all
};

// What is started.
struct ProcessTrial {
  std::uint64_t task = 0;              // names it in events; not in use by another
  std::vector<std::string> command{};  // a program and its arguments
  std::map<std::string, std::optional<std::string>> environment{};  // added to ours
  std::string folder{};        // working directory; empty: ours
  std::string log_file{};      // gets both streams; its folder exists
  std::string metrics_file{};  // lines that appear here become reports
  std::optional<std::chrono::milliseconds> time_limit = std::nullopt;
};

// Why a trial was ended from here.
enum class EndReason { kNone, kTimeOut, kCancelled, kPruned };

// What has become of a trial.
struct TrialEvent {
  std::uint64_t task = 0;
  std::vector<std::string> reports{};  // new lines of its metrics file
  bool ended = false;                  // the rest is of an end
  io::ExitStatus exit{};
  EndReason reason = EndReason::kNone;
  std::string last_line{};  // of its output, blank lines left out
  Clock::duration duration{};
  std::string log_problem{};  // the log could not be written: why
};

class LocalTrials {
 public:
  // Fails for options out of range and where the kernel lacks a facility.
  static Result<std::unique_ptr<LocalTrials>> open(LocalTrialsOptions options);
  virtual ~LocalTrials() = default;  // kills what still runs

  virtual bool has_room() const = 0;
  virtual std::size_t running() const = 0;
  // Needs room. Fails when the program cannot be started or the log not be made.
  virtual Result<pid_t> start(ProcessTrial trial) = 0;
  // SIGTERM to all its processes, SIGKILL after the grace; at once for `now`. The end comes as an
  // event. Nothing when there is no such trial.
  virtual void end(std::uint64_t task, EndReason reason, bool now = false) = 0;

  // Waits until a trial has ended or reported, `wake` (a descriptor) is readable or `until` has
  // come. May return nothing.
  virtual std::vector<TrialEvent> wait(std::optional<Clock::time_point> until, int wake = -1) = 0;
};

}  // namespace divisi::local_trials
