// Every task of a job on a platform, as each of its launchers computes it: all of them read the
// same node list and the same platform spec, so all of them arrive at the same picture.
#pragma once

#include "base/status.h"
#include "launch/platform.h"
#include "launch/platform_spec.h"
#include "runtime/topology.h"

#include <optional>
#include <string>
#include <vector>

namespace divisi::launch {

// What every launcher of the job is taken to have on its command line.
struct JobDefaults {
  int workers = 1;
  std::vector<int> ports;  // none, one base port, or one a worker
};

struct JobTask {
  std::string address;  // where the others reach it
  int workers = 1;
  std::vector<int> ports;  // one a worker
  int node_id = 0;         // of its first worker; the others count up
  // Addresses it dials, from the spec; nothing: by the topology.
  std::optional<std::vector<std::string>> attach_to;

  std::vector<std::string> listen_addresses() const;
};

// `spec` is empty or has an entry for every place. Fails on ids used twice, on ports beyond the
// range, and on `$node.<id>` that names no task, its own task, or a task that dials back.
Result<std::vector<JobTask>> make_job_tasks(const Cluster& cluster,
                                            const std::vector<TaskSpec>& spec,
                                            const JobDefaults& defaults);

// What the task of `rank` dials by the topology: mesh, every worker of every lower rank; star,
// every worker of rank 0; alone, nobody.
std::vector<std::string> topology_attach_to(const std::vector<JobTask>& tasks, int rank,
                                            runtime::Topology topology);

// For each worker of `rank`: the nodes of other tasks it is linked with once the job is up, if this
// launcher dials `attach_to` and the others do as `tasks` says.
std::vector<std::vector<int>> peers_in_job(const std::vector<JobTask>& tasks, int rank,
                                           const std::vector<std::string>& attach_to,
                                           runtime::Topology topology);

}  // namespace divisi::launch
