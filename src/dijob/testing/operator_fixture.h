// OperatorTest: one operator and a cluster whose pods do nothing by themselves.
#pragma once

#include "dijob/testing/sim_cluster.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace divisi::dijob::testing {

using Names = std::vector<std::string>;

inline constexpr const char* kPodTemplate =
    "{spec: {containers: [{name: di-container, image: busybox}]}}";

// "{type: collector, replicas: 2, template: ..., <more>}"; none-typed ones bring their names in
// `more`.
inline std::string task(const std::string& type, int replicas, const std::string& more = {}) {
  return fmt::format("{{type: {}, replicas: {}, template: {}{}{}}}", type, replicas, kPodTemplate,
                     more.empty() ? "" : ", ", more);
}

inline std::string tasks_job(const std::vector<std::string>& tasks, const std::string& more = {},
                             const std::string& name = "j") {
  std::string list;
  for (const std::string& each : tasks) list += (list.empty() ? "" : ", ") + each;
  return fmt::format("{{metadata: {{name: {}}}, spec: {{tasks: [{}]{}{}}}}}", name, list,
                     more.empty() ? "" : ", ", more);
}

// The job of most acceptance items: a learner, an evaluator, two collectors.
inline std::string usual_job(const std::string& more = {}) {
  return tasks_job({task("learner", 1), task("evaluator", 1), task("collector", 2)}, more);
}

inline std::string sized(int learners, int evaluators, int collectors) {
  return fmt::format("{{spec: {{tasks: [{}, {}, {}]}}}}", task("learner", learners),
                     task("evaluator", evaluators), task("collector", collectors));
}

inline std::string template_job(const std::string& more, const std::string& name = "g") {
  return fmt::format("{{metadata: {{name: {}}}, spec: {{template: {}{}{}}}}}", name, kPodTemplate,
                     more.empty() ? "" : ", ", more);
}

class OperatorTest : public ::testing::Test {
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

  SimCluster cluster;
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
