// What the requests that change workers have in common: the parts they work with, and how they
// answer.
#pragma once

#include "server/first/demand.h"
#include "server/first/pod_writer.h"
#include "server/first/replicas.h"
#include "server/first/source.h"
#include "server/first/team.h"

#include <cstdint>
#include <functional>
#include <set>
#include <string>

namespace divisi::server::first {

struct Options {
  std::string config_space = "di-system";  // of the AggregatorConfig
  std::string config_name = "aggregator-config";
  std::string server_url = "http://di-server.di-system:8080";  // KUBERNETES_SERVER_URL of workers
  std::function<std::uint64_t()> random{};                     // for names; null: the system's
};

// Lives as long as the Api.
struct Parts {
  Source& source;
  PodWriter& writer;
  const Options& options;
  // Coordinators whose first demand is met, where the cluster refused to keep that.
  std::set<std::string>& served;
};

// What was done, also before a failure.
struct Outcome {
  Status status{};
  Replicas done{};
};
using Finished = std::function<void(Outcome)>;

// The pod template of the AggregatorConfig. kNotFound and kInvalid with the text for the client.
void read_aggregator_config(const Parts& parts, std::function<void(Result<json::Value>)> done);

// POST: creates what the demand lacks, and counts what an earlier coordinator left.
void create_replicas(const Parts& parts, const Owner& owner, const Demand& demand, Finished done);
// DELETE: collectors, then learners, or logical learners with their groups.
void delete_replicas(const Parts& parts, const Owner& owner, const Demand& demand, Finished done);
// POST failed: rebuilds those of the pods that belong to this job. `done` has only new URLs.
void rebuild_replicas(const Parts& parts, const Job& job, const std::set<std::string>& pods,
                      Finished done);

// Deletes an aggregator with its group, the group first: an aggregator that stays is found again,
// a group that stays is not. Any other worker alone. The value: whether this call deleted it.
void remove_worker(PodWriter& writer, const Worker& worker, const WorkerList& group, bool at_once,
                   std::function<void(Result<bool>)> done);

// The same for a worker that nobody wants any more. It is marked first, so that one server alone
// counts it, and so that a report of its end does not bring it back. kConflict: it has changed.
void dismiss(PodWriter& writer, const Worker& worker, const WorkerList& group,
             std::function<void(Result<bool>)> done);
bool is_dismissed(const Worker& worker);

}  // namespace divisi::server::first
