// Draft: the status of a job while a plan changes it.
//
//   Draft status(object, kSecondGeneration, now);
//   status->restarts = 1;
//   status.enter(phases::kRestarting, "job is restarting since ...");
//
// It starts as what the object has and keeps what others wrote (allocation, profilings). Phases,
// conditions and counters change together, so that one write carries all of them.
#pragma once

#include "dijob/job_status.h"
#include "dijob/pod_trouble.h"
#include "json/value.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::dijob {

namespace phases {
inline constexpr std::string_view kCreated = "Created";  // first generation
inline constexpr std::string_view kPending = "Pending";
inline constexpr std::string_view kStarting = "Starting";
inline constexpr std::string_view kRunning = "Running";
inline constexpr std::string_view kRestarting = "Restarting";
inline constexpr std::string_view kRescheduling = "Rescheduling";
inline constexpr std::string_view kSucceeded = "Succeeded";
inline constexpr std::string_view kFailed = "Failed";
}  // namespace phases

// A pod that does not start.
struct WaitingPod {
  std::string name{};
  PodTrouble trouble{};
};

// How a generation of jobs tells of its phases.
struct PhaseRules {
  std::string_view reason{};  // in front of the phase
  // Entering a phase makes the conditions of all others False. Otherwise they keep True, and only
  // the end of the job makes Running False, with its times.
  bool one_holds = true;
};
inline constexpr PhaseRules kSecondGeneration{.reason = "Job", .one_holds = true};
inline constexpr PhaseRules kFirstGeneration{.reason = "DIJob", .one_holds = false};

class Draft {
 public:
  Draft(const json::Value& object, const PhaseRules& rules, WallTime now);

  JobStatus* operator->() { return &status_; }
  const JobStatus* operator->() const { return &status_; }

  std::string_view phase() const { return status_.phase; }
  bool terminal() const { return phase() == phases::kSucceeded || phase() == phases::kFailed; }

  // Appends the condition of that phase; those of the other phases change as the rules say.
  // Nothing when the job is in that phase already.
  void enter(std::string_view phase, std::string message);

  // A condition that is none of a phase. Its message follows; its time changes with its status
  // only.
  void set_condition(std::string_view type, bool holds, std::string_view reason,
                     std::string message);
  // The condition PodsWaiting: the first of these pods, or that there is none any more. As long as
  // pods wait for the same reason its message stays: that of a scheduler changes all the time.
  void tell_waiting(const std::vector<WaitingPod>& pods);
  // Whether there is such a condition with status True.
  bool holds(std::string_view type) const;

  // Whether there is such a condition.
  bool knows(std::string_view type) const;

  json::Value value() const;
  std::string now() const;

  // Whether it says something else than the object; whether more than counts of pods.
  bool differs() const;
  bool differs_in_more_than_counts() const;
  json::Value changes() const;  // a merge patch of the status

 private:
  json::Value* find_condition(std::string_view type);

  const json::Value before_;
  const JobStatus read_;
  JobStatus status_;
  const PhaseRules rules_;
  const WallTime now_;
  const std::int64_t generation_;
};

}  // namespace divisi::dijob
