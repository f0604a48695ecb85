// The process that looks after a local job: starts its workers, writes their output and the job's
// record, ends the others when one fails. It is not the `divisi run` that somebody looks at, so
// that this one may go away or be killed.
//
// What it is told: JOB_FOLDER/plan.json (LocalPlan), a descriptor to say "ok" or a line on, and one
// whose other end `divisi run` holds while the job is attached to it: when that closes, the job
// ends. SIGTERM asks the job to end; SIGQUIT ends it at once. Its workers run below divisi-trial,
// which ends them when this process is killed.
#pragma once

#include "base/status.h"
#include "json/value.h"
#include "run/job.h"

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

namespace divisi::run {

inline constexpr const char* kSupervisorCommand = "local-supervisor";
inline constexpr const char* kOutputFile = "output.log";
inline constexpr const char* kPlanFile = "plan.json";

struct LocalPlan {
  std::string guard{};   // divisi-trial
  std::string ditask{};  // what it runs
  std::string folder{};  // working directory of the workers
  std::string secret_file{};
  std::chrono::milliseconds grace{10'000};
  std::optional<std::chrono::milliseconds> timeout{};
  int end_now_signal = SIGKILL;  // what `ditask` gets when it has no grace
  // One process stands for all workers, and says whose lines are whose (slurm_worker.h).
  bool one_process = false;
  std::string scratch{};  // a folder that goes with the job; empty: none
  std::vector<RunWorker> workers{};
};
json::Value to_json(const LocalPlan& plan);
Result<LocalPlan> local_plan_from(const json::Value& value);

// Where a worker's process may say in one line why it failed, in place of its exit code.
std::string reason_file(const std::string& job_folder, int rank);

// `divisi local-supervisor RECORDS NAME READY_FD TIE_FD`: goes on in a session of its own, and the
// process that was started returns at once.
int local_supervisor_main(const std::vector<std::string>& arguments);

}  // namespace divisi::run
