// From objects of the API to what allocate() takes.
#pragma once

#include "dijob/allocator.h"
#include "dijob/job.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace divisi::dijob {

// What the allocator has to do with a job: nothing when it is not preemptible, has ended or is
// being deleted, or cannot be run at all. A suspended one asks for no replicas.
std::optional<Demand> read_demand(const json::Value& object, const Amounts& defaults);

// Takes what pods use from the nodes they are on, or notes it in the demand of their job.
// `uids`: of the jobs, in the order of `demands`.
class PodLedger {
 public:
  PodLedger(std::vector<Demand>& demands, const std::vector<std::string>& uids,
            std::vector<Node>& nodes);
  void add_pod(const json::Value& pod);

 private:
  std::vector<Demand>& demands_;
  std::map<std::string, std::size_t, std::less<>> jobs_;  // by uid
  std::map<std::string, Node*, std::less<>> nodes_;       // by name
};

// A pod without all that the allocator does not look at.
void keep_what_counts(json::Value& pod);

}  // namespace divisi::dijob
