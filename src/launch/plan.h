// make_plan(): from what the command line says, the scheduler's environment and the platform spec
// to what this launcher starts. A pure function; nothing is opened, resolved or started.
//
// One rule of precedence for every value (spec 6.3): the spec's entry for this task, else the
// command line, else what the platform or the defaults derive.
#pragma once

#include "base/status.h"
#include "launch/platform.h"
#include "launch/text.h"
#include "runtime/topology.h"
#include "runtime/worker_config.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace divisi::launch {

// The flags as they were typed; nothing when a flag was not given.
struct LaunchRequest {
  std::optional<std::string> parallel_workers = std::nullopt;
  std::optional<std::string> protocol = std::nullopt;
  std::optional<std::string> ports = std::nullopt;
  std::optional<std::string> address = std::nullopt;
  std::optional<std::string> attach_to = std::nullopt;
  std::optional<std::string> labels = std::nullopt;
  std::optional<std::string> node_ids = std::nullopt;
  std::optional<std::string> topology = std::nullopt;
  std::optional<std::string> platform = std::nullopt;
  std::optional<std::string> platform_spec = std::nullopt;  // the JSON text (read_platform_spec)
  std::optional<std::string> job_id = std::nullopt;
};

struct LaunchPlan {
  Platform platform = Platform::kNone;
  int rank = 0;
  int workers = 1;
  runtime::Protocol protocol = runtime::Protocol::kTcp;
  runtime::Topology topology = runtime::Topology::kAlone;
  std::string address;                 // empty: detected when the workers are made
  std::vector<int> ports;              // one a worker
  std::vector<int> node_ids;           // one a worker
  std::vector<std::string> attach_to;  // normalised
  std::set<std::string> labels;
  std::string job_id;
  int job_nodes = 0;  // nodes of the whole job; 0: not known
  // Per worker, node ids of other launchers that it is linked with once the job is up. Empty where
  // the user has chosen links or ids by flags, so that what the others do is not known here.
  std::vector<std::vector<int>> job_peers;
  // On Kubernetes, where links and ids are by rank: how to follow changes of the job's size. Its
  // ports are those above. Alone otherwise.
  runtime::JobLinks job_links;
  std::vector<std::string> warnings;
};

Result<LaunchPlan> make_plan(const LaunchRequest& request, const Environment& environment);

}  // namespace divisi::launch
