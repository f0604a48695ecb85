// FirstServer: what di-server does for jobs of the first generation, on a simulated cluster.
//
// It creates and deletes workers at once, without the faults that operators suffer: the operator is
// under test here. Workers that exist count toward a demand that is repeated.
#pragma once

#include "dijob/first/pod.h"
#include "dijob/testing/sim_cluster.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace divisi::dijob::testing {

// What a coordinator asks for.
struct FirstDemand {
  int collectors = 0;
  int learners = 0;
  int groups = 0;    // logical learners: an aggregator and its DDP learners
  int ddp_pods = 1;  // of each group
};

class FirstServer {
 public:
  explicit FirstServer(SimCluster& cluster) : cluster_(cluster) {}

  // Creates one pod; its name. `aggregator` owns a DDP learner.
  std::string add(const std::string& job, first::Role role, std::optional<first::DdpPlace> ddp = {},
                  const std::string& aggregator = {});
  // Creates what is missing and deletes what is too much.
  void satisfy(const std::string& job, const FirstDemand& demand);
  // Deletes a failed worker; of a group all pods.
  void drop(const first::Pod& pod);

  // Of that job, in any state; not those of an older job of the same name.
  std::vector<first::Pod> pods(const std::string& job) const;
  // Called before a pod is deleted.
  std::function<void(const std::string& uid)> on_delete{};

 private:
  void fit(const std::string& job, first::Role role, int wanted);
  void add_group(const std::string& job, int ddp_pods);
  void remove(const first::Pod& pod);

  SimCluster& cluster_;
  std::uint64_t next_ = 1;
};

}  // namespace divisi::dijob::testing
