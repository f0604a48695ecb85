// OperatorTest: one operator and a cluster whose pods do nothing by themselves.
#pragma once

#include "dijob/testing/manifests.h"
#include "dijob/testing/sim_cluster.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace divisi::dijob::testing {

using Names = std::vector<std::string>;

class OperatorTest : public ::testing::Test {
 public:
  SimCluster cluster;

 protected:
  explicit OperatorTest(std::uint64_t seed = 1) : cluster(seed) {
    cluster.kubelet.automatic = false;
    cluster.start_operator();
  }

  // Created, and its pods too.
  void create(const std::string& yaml) {
    cluster.create_job(yaml);
    cluster.settle();
  }
  void create_running(const std::string& yaml, const std::string& job = "j") {
    create(yaml);
    cluster.run_all(job);
    cluster.settle();
    ASSERT_EQ(cluster.phase(job), "Running");
  }
  void fail(const std::string& pod, int exit_code = 1) {
    cluster.kubelet.fail(in_default(pod), exit_code);
  }
  std::map<std::string, std::string> uids(const std::string& job = "j") const {
    std::map<std::string, std::string> found;
    for (const std::string& name : cluster.pod_names(job)) found[name] = cluster.uid(name);
    return found;
  }
  std::string rank(const std::string& pod) const { return env_of(cluster.pod(pod), "DI_RANK"); }
  std::string message(std::string_view condition, const std::string& job = "j") const {
    return std::string(cluster.condition(job, condition).string_at({"message"}));
  }
  bool told(const std::string& event, const std::string& job = "j") const {
    for (const std::string& each : cluster.events(job)) {
      if (each.find(event) != std::string::npos) return true;
    }
    return false;
  }
};

// restarts and reschedules of a job, as one value to compare.
struct Counters {
  std::int64_t restarts = 0;
  std::int64_t reschedules = 0;
  friend bool operator==(const Counters&, const Counters&) = default;
};
inline Counters counters(const SimCluster& cluster, const std::string& job = "j") {
  return {cluster.status(job, "restarts"), cluster.status(job, "reschedules")};
}

}  // namespace divisi::dijob::testing
