// What --dry-run prints for each backend: pure functions of the job.
#pragma once

#include "base/status.h"
#include "json/value.h"
#include "run/job.h"
#include "run/package.h"

#include <string>
#include <vector>

namespace divisi::run {

// The places of the workers, as each backend names them.
// `devices`: those that this process may see, for worker 0, 1...; nothing: all, by number.
Result<RunJob> plan_local(const RunOptions& options, const std::string& entry,
                          std::optional<std::vector<std::string>> devices);
Result<RunJob> plan_ssh(const RunOptions& options, const std::string& entry);
Result<RunJob> plan_slurm(const RunOptions& options, const std::string& entry);
Result<RunJob> plan_cluster(const RunOptions& options, BackendKind kind, const std::string& entry);

// Shell scripts that do the same.
std::string local_script(const RunJob& job);
std::string ssh_script(const RunJob& job);
// What sbatch is given: one step with all workers, ranks and hosts from Slurm. `files`: of a job
// that is started; without them the output goes where Slurm puts it, and there is no secret.
struct SlurmFiles {
  std::string output{};  // of the tasks, as srun takes it: "/shared/out.%t"
  std::string error{};
  std::string secret{};
};
std::string slurm_script(const RunJob& job, const SlurmFiles& files = {});

// A worker's variables and arguments as one line for a shell: "A=b ditask --package ...".
std::string worker_line(const RunWorker& worker, const std::string& ditask);

// How a package is in a pod: the zip of a ConfigMap.
inline constexpr std::string_view kPodFolder = "/divisi/package";
inline constexpr std::string_view kPodPackage = "/divisi/package/package.zip";
// What a ConfigMap takes: 1 MiB of values, counted without base64.
inline constexpr std::uint64_t kMaxConfigMapBytes = 1 << 20;

// The objects of a cluster, in the order in which they are made. The ConfigMap has the package's
// zip (`zip`, its bytes); empty: none is made.
std::vector<json::Value> dijob_documents(const RunJob& job, const std::string& zip);
std::vector<json::Value> job_documents(const RunJob& job, const std::string& zip);
// The same for `kubectl apply`.
std::string kubectl_script(const RunJob& job, const std::vector<json::Value>& documents);

}  // namespace divisi::run
