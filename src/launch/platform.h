// Where this launcher stands in a job that a scheduler started: read from the environment that
// Kubernetes (the DIJob operator) or Slurm gives to every task. Pure functions of a map.
#pragma once

#include "base/status.h"
#include "launch/text.h"

#include <string>
#include <string_view>
#include <vector>

namespace divisi::launch {

enum class Platform { kNone, kKubernetes, kSlurm };

// "none", "k8s", "slurm".
std::string_view platform_name(Platform platform);
Result<Platform> parse_platform(std::string_view text);

// One launcher of the job.
struct Place {
  std::string host;
  int index_on_host = 0;  // which of the launchers on that host: they share its ports

  friend bool operator==(const Place&, const Place&) = default;
};

struct Cluster {
  Platform platform = Platform::kNone;
  int rank = 0;               // this launcher, an index into `places`
  std::vector<Place> places;  // every launcher of the job, in rank order
  int default_port = 50515;
  std::string job_id;  // from the scheduler; may be empty
  std::vector<std::string> warnings;
};

// DI_NODES, DI_RANK, DI_JOB_ID.
Result<Cluster> read_kubernetes(const Environment& environment);

// SLURM_NTASKS, SLURM_PROCID, SLURM_NODELIST or SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE or
// SLURM_NTASKS_PER_NODE; SLURM_NODEID, SLURM_LOCALID, SLURM_DISTRIBUTION, SLURMD_NODENAME and
// SLURM_JOB_ID where given.
Result<Cluster> read_slurm(const Environment& environment);

// DI_NODES and DI_RANK are there: a pod of a DIJob, whatever the command line says (P10).
bool looks_like_kubernetes(const Environment& environment);

}  // namespace divisi::launch
