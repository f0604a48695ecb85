#include "dijob/allocator_loop.h"

#include "dijob/job_testing.h"
#include "dijob/names.h"
#include "dijob/operator.h"
#include "dijob/replica_resources.h"
#include "kube/testing/fake_api.h"

#include <gmock/gmock.h>

namespace divisi::dijob {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr const char* kJobs = "/apis/diengine.opendilab.org/v2alpha1/dijobs";
constexpr const char* kNodes = "/api/v1/nodes";
constexpr const char* kPods = "/api/v1/pods";

class AllocatorTest : public ::testing::Test {
 protected:
  void add_job(const std::string& name, std::string_view spec) {
    json::Value object = job_object(spec);
    object["metadata"]["name"] = name;
    object["metadata"].erase("uid");
    api_.store.create(kJobs, "rl/" + name, std::move(object), "2026-11-15T10:00:00Z");
    api_.changed();
  }

  void add_node(const std::string& name, int cpu) {
    api_.store.create(
        kNodes, name,
        yaml(fmt::format(
            "metadata: {{name: {}}}\nstatus: {{allocatable: {{cpu: {}, memory: 64Gi, pods: 10}}}}",
            name, cpu)),
        "2026-11-15T10:00:00Z");
    api_.changed();
  }

  const json::Value& job(const std::string& name) { return *api_.store.find(kJobs, "rl/" + name); }

  std::vector<std::string> allocation(const std::string& name) {
    std::vector<std::string> nodes;
    const json::Value* list = job(name).find_path({"status", "allocation"});
    if (list == nullptr) return nodes;
    for (const json::Value& node : *list->as_array()) nodes.push_back(*node.as_string());
    return nodes;
  }

  // "True: ...", "False: ..."; "" before it was ever told.
  std::string condition(const std::string& name) {
    const json::Value* list = job(name).find_path({"status", "conditions"});
    if (list == nullptr) return {};
    for (const json::Value& each : *list->as_array()) {
      if (each.string_at({"type"}) != "Allocated") continue;
      return fmt::format("{}: {}", each.string_at({"status"}), each.string_at({"message"}));
    }
    return {};
  }

  bool eventually(const std::function<bool()>& done) { return loop_.run_until(done, 10min); }

  static std::string spec(int collectors, std::string_view resources = "{}") {
    return fmt::format(
        "preemptible: true\ntasks:\n- {{type: collector, replicas: {}, template: {{spec: "
        "{{containers: [{{name: c, "
        "resources: {}}}]}}}}}}\n",
        collectors, resources);
  }

  kube::testing::SimLoop loop_;
  kube::testing::FakeApi api_{loop_, 1};
  kube::Client client_{loop_, api_};
  AllocatorOptions options_{.defaults = *read_default_resources(""),
                            .wall_clock = [this] { return loop_.wall(); }};
};

TEST_F(AllocatorTest, O065_AJobWithoutCapacityStaysPendingSaysWhyAndRunsWhenThereIsSome) {
  Operator jobs(client_, {.wall_clock = [this] { return loop_.wall(); }});
  Allocator allocator(client_, options_);
  add_job("job", spec(2));
  add_node("n1", 1);
  jobs.start();
  allocator.start();
  ASSERT_TRUE(eventually([&] { return !condition("job").empty(); }));
  EXPECT_EQ(condition("job"),
            "False: asked: 2 replicas with cpu 2, memory 4Gi, pods 2; free: cpu 1, memory 64Gi, "
            "pods 10 on 1 of 1 nodes; "
            "ahead of it: 0 jobs");
  loop_.run_for(5min);
  EXPECT_EQ(job("job").string_at({"status", "phase"}), "Pending");
  EXPECT_TRUE(api_.store.all(kPods).empty());

  add_node("n2", 1);
  ASSERT_TRUE(eventually([&] { return api_.store.all(kPods).size() == 2; }));
  EXPECT_THAT(allocation("job"), ::testing::ElementsAre("n1", "n2"));
  EXPECT_THAT(condition("job"), HasSubstr("True: 2 of 2"));
  EXPECT_EQ(api_.store.find(kPods, "rl/job-collector-1")->string_at({"spec", "nodeName"}), "n2");
  EXPECT_EQ(job("job").int_at({"status", "replicas"}), 2);
}

TEST_F(AllocatorTest, O066_LimitsWithoutRequestsAreReckonedWith) {
  Allocator allocator(client_, options_);
  add_job("job", spec(2, "{limits: {cpu: 3}}"));
  add_node("n1", 4);
  add_node("n2", 4);
  allocator.start();
  ASSERT_TRUE(eventually([&] { return !allocation("job").empty(); }));
  EXPECT_THAT(allocation("job"), ::testing::ElementsAre("n1", "n2"));
}

TEST_F(AllocatorTest, JobsThatAreNotPreemptibleAreNoneOfItsBusinessAndItWatchesNothingForThem) {
  Allocator allocator(client_, options_);
  add_job("job", three_tasks(1, 1, 1));
  add_node("n1", 4);
  int asked = 0;
  api_.intercept = [&](const http::Request& request) {
    asked += request.target.find("/nodes") != std::string::npos ||
             request.target.find("/pods") != std::string::npos;
    return std::nullopt;
  };
  allocator.start();
  loop_.run_for(5min);
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(allocator.rounds(), 0u);
  EXPECT_EQ(job("job").find("status"), nullptr);
}

TEST_F(AllocatorTest, PodsOfOthersTakeTheirShareAndASuspendedJobGivesItsPlacesBack) {
  Allocator allocator(client_, options_);
  add_node("n1", 2);
  api_.store.create(
      kPods, "rl/other",
      yaml("metadata: {name: other, namespace: rl}\nspec: {nodeName: n1, containers: [{name: c, "
           "resources: {requests: {cpu: 1}}}]}\nstatus: {phase: Running}"),
      "2026-11-15T10:00:00Z");
  add_job("a", spec(1));
  add_job("b", spec(1));
  allocator.start();
  ASSERT_TRUE(eventually([&] { return !condition("a").empty() && !condition("b").empty(); }));
  EXPECT_THAT(allocation("a"), ::testing::ElementsAre("n1"));
  EXPECT_THAT(condition("b"), HasSubstr("free: cpu 0"));

  json::Value suspended = job("a");
  suspended["spec"]["suspend"] = true;
  api_.store.update(kJobs, "rl/a", std::move(suspended));
  api_.changed();
  ASSERT_TRUE(eventually([&] { return !allocation("b").empty(); }));
  EXPECT_TRUE(allocation("a").empty());
}

TEST_F(AllocatorTest, SettlesUnderFaultsAndThenIsSilent) {
  api_.faults = {.refuse = 0.1, .cut_stream = 0.1, .repeat_event = 0.1, .conflict = 0.2};
  Allocator allocator(client_, options_);
  for (int i = 0; i < 6; ++i) add_job(fmt::format("job{}", i), spec(2));
  add_node("n1", 4);
  add_node("n2", 4);
  allocator.start();
  ASSERT_TRUE(eventually([&] {
    for (int i = 0; i < 6; ++i) {
      if (condition(fmt::format("job{}", i)).empty()) return false;
    }
    return true;
  }));
  api_.faults = {};
  loop_.run_for(10min);
  std::map<std::string, int> used;
  for (int i = 0; i < 6; ++i) {
    const auto nodes = allocation(fmt::format("job{}", i));
    EXPECT_TRUE(nodes.empty() || nodes.size() == 2);
    for (const std::string& node : nodes) ++used[node];
  }
  EXPECT_EQ(used["n1"], 4);
  EXPECT_EQ(used["n2"], 4);
  const std::uint64_t version = api_.store.version();
  loop_.run_for(10min);
  EXPECT_EQ(api_.store.version(), version) << "it writes although nothing has changed";
}

TEST_F(AllocatorTest, DestroyingItWhileAWriteRunsIsSafe) {
  add_job("job", spec(1));
  add_node("n1", 4);
  auto allocator = std::make_unique<Allocator>(client_, options_);
  allocator->start();
  ASSERT_TRUE(eventually([&] { return allocator->rounds() > 0; }));
  allocator->stop();
  allocator.reset();
  loop_.run_for(1min);
  EXPECT_THAT(allocation("job"), ::testing::ElementsAre("n1"));
}

}  // namespace
}  // namespace divisi::dijob
