// Team: the workers of a job by what they are, and which of them a demand may count. Pure.
#pragma once

#include "server/first/demand.h"
#include "server/first/source.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::server::first {

using WorkerList = std::vector<const Worker*>;

// Those that are not terminating. A logical learner is an aggregator and its DDP learners.
struct Team {
  WorkerList collectors{};
  WorkerList learners{};
  WorkerList aggregators{};
  std::map<std::string, WorkerList, std::less<>> ddp{};  // by the uid of the aggregator

  const WorkerList& group_of(const Worker& aggregator) const;
};

Team sort_out(const std::vector<Worker>& workers);  // which stay

// The aggregator that the operator made together with the coordinator: only the operator replaces
// or deletes it.
bool is_operators(const Pod& pod);

// URLs as GET by coordinator lists them: aggregators behind plain learners.
std::vector<std::string> collector_urls(const Team& team);
std::vector<std::string> learner_urls(const Team& team);
// Of each rank of the aggregator's group, in their order.
std::vector<std::string> rank_urls(const Team& team, const Worker& aggregator);

// A variable of the main container; empty when it has none.
std::string variable_of(const Worker& worker, std::string_view name);
// The GPUs of a group: WORLD_SIZE of its pods; 0 when there is none.
int world_size(const WorkerList& group);

// Who asks. A coordinator that was created again has another uid and repeats its demand.
struct Caller {
  std::string uid{};
  std::string created{};            // RFC 3339
  bool served = false;              // a demand of this very coordinator has been met already
  std::set<std::string> claimed{};  // uids of workers that this demand counts already
};

// What a demand leads to: workers that are there count toward it when an earlier coordinator asked
// for them, or an earlier try of the same first demand.
struct Plan {
  WorkerList kept_collectors{};
  WorkerList kept_learners{};  // or aggregators
  WorkerList adopted{};        // of those kept: they carry the uid of another coordinator
  WorkerList surplus{};        // of an earlier coordinator, and not wanted; without groups
  int collectors = 0;          // to be created
  int learners = 0;
};

Plan plan_demand(const Team& team, const Demand& demand, const Caller& caller);

}  // namespace divisi::server::first
