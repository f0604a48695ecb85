// plan(): what to do about a first-generation job, given all that is known. Pure.
//
// The operator owns the coordinator (on request also the aggregator that starts with it), the
// service of every pod, the status and the end. Collectors, learners and aggregators are created
// by di-server: they are counted, given their services, and deleted when the job is over.
#pragma once

#include "dijob/first/job.h"
#include "dijob/first/pod.h"
#include "dijob/plan.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace divisi::dijob::first {

struct SeenPod {
  Pod pod{};
  json::Value object{};  // as the cache keeps it
  // Its node is gone or does not answer: so long until it may be deleted by force.
  std::optional<std::chrono::milliseconds> lost_in{};
  // A DDP learner whose aggregator does not exist: so long until it goes.
  std::optional<std::chrono::milliseconds> orphaned_in{};
};

struct SeenService {
  std::string name{};
  std::string uid{};
  json::Value selector{};
};

struct Observed {
  json::Value object{};  // the DIJob
  Job job{};             // what it says; of one that cannot be read only whose it is
  Status unreadable{};   // why it cannot be
  std::vector<SeenPod> pods{};
  std::vector<SeenService> services{};
  std::vector<Orphan> orphans{};
  std::vector<SavedSpec> saved{};    // by generation
  std::int64_t saved_until = 0;      // the generation that was saved last
  std::string blocked{};             // why pods cannot be created at present
  std::chrono::milliseconds hold{};  // so long no pod is to be created
  WallTime now{};
  std::string server_url{};          // KUBERNETES_SERVER_URL
  bool aggregator_at_start = false;  // for every job, by flag of the operator
  bool policy_is_held = false;       // who applies the spec from a file keeps cleanPodPolicy
  // The template of aggregators, or why there is none; only looked at if needs_aggregator_config().
  Result<json::Value> aggregator_template = json::Value();
};

// Whether the operator creates the aggregator of this job together with the coordinator.
bool starts_aggregator(const Observed& observed);
// Whether it needs the AggregatorConfig for that now.
bool needs_aggregator_config(const Observed& observed);

Plan plan(const Observed& observed);

}  // namespace divisi::dijob::first
