// `divisi slurm-worker PLAN`: a Slurm job as one process of this machine, which the supervisor
// starts: submits it, says what its tasks print and how it stands, ends as it ends. SIGTERM cancels
// the job, SIGQUIT kills it.
//
// What it says on standard output, a line each: "o 2 TEXT" and "e 2 TEXT" of task 2, "d KEY VALUE"
// for the record, "s Pending WHY" and "s Running".
//
// Its files are beside the plan: slurm_id (once it is submitted: a second slurm-worker goes on with
// that job), reason.0.
#pragma once

#include "base/status.h"
#include "io/process.h"
#include "json/value.h"

#include <string>
#include <vector>

namespace divisi::run {

inline constexpr const char* kSlurmWorkerCommand = "slurm-worker";
inline constexpr const char* kSlurmPlanFile = "slurm.json";
inline constexpr const char* kSlurmIdFile = "slurm_id";

struct SlurmPlan {
  std::string script{};  // what sbatch is given
  std::string folder{};  // on the file system that all nodes share: output, package, secret
  int tasks = 0;
  bool detached = false;  // then the job outlives this process, and the supervisor
};
json::Value to_json(const SlurmPlan& plan);

// The folder's files of the tasks' output, as srun takes them: "%t" is the task.
std::string slurm_output(const std::string& folder, bool error);

// Held by who submits the job, and by who looks whether it was submitted: one at a time.
io::Descriptor lock_slurm_job(const std::string& job_folder);

// How a job stands, out of `scontrol show job -o` and `sacct -nPXo State,ExitCode`.
struct SlurmState {
  std::string state{};  // "PENDING", "COMPLETED", ...
  int code = 0;         // 128 + n: by signal n
  bool ended() const;
};
SlurmState parse_scontrol(std::string_view text);
SlurmState parse_sacct(std::string_view text);

// The first task that srun complained of: "srun: error: n1: task 1: Exited with exit code 3". The
// code of the job itself is the highest of all, also of those that were ended because of the first.
struct SlurmFailure {
  std::string text{};  // "worker 1: Exited with exit code 3"; empty: there is none
  int code = 0;        // 0: it does not say
};
SlurmFailure first_slurm_failure(std::string_view text);

int slurm_worker_main(const std::vector<std::string>& arguments);

}  // namespace divisi::run
