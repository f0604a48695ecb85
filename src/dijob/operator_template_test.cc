// The template form: one gang, made again as a whole.
#include "dijob/testing/operator_fixture.h"

namespace divisi::dijob::testing {
namespace {

using namespace std::chrono_literals;

class OperatorTemplateTest : public OperatorTest {};

TEST_F(OperatorTemplateTest, O069_AGangOfTheLeastReplicasRunsAndSucceeds) {
  create(template_job("minReplicas: 3"));
  EXPECT_EQ(cluster.pod_names("g"), (Names{"g-0-0", "g-0-1", "g-0-2"}));
  EXPECT_EQ(cluster.phase("g"), "Starting");
  EXPECT_EQ(cluster.services("g"), Names{"g"});
  cluster.run_all("g");
  cluster.settle();
  EXPECT_EQ(cluster.phase("g"), "Running");
  EXPECT_EQ(cluster.status("g", "readyReplicas"), 3);
  EXPECT_EQ(cluster.status("g", "replicas"), 3);
  cluster.succeed_all("g");
  cluster.settle();
  EXPECT_EQ(cluster.phase("g"), "Succeeded");
}

TEST_F(OperatorTemplateTest, O070_AFailedWorkerFailsTheJob) {
  create_running(template_job("minReplicas: 2"), "g");
  fail("g-0-1");
  cluster.settle();
  EXPECT_EQ(cluster.phase("g"), "Failed");
  EXPECT_EQ(message("Failed", "g"), "job failed since 1 replicas failed.");
}

TEST_F(OperatorTemplateTest, O071_ALostPodRestartsTheGangUnderTheNextGeneration) {
  create(template_job("minReplicas: 3"));
  for (const char* state : {"Starting", "Running"}) {
    if (state == std::string("Running")) {
      cluster.run_all("g");
      cluster.settle();
    }
    ASSERT_EQ(cluster.phase("g"), state);
    const std::int64_t before = cluster.status("g", "generation");
    cluster.delete_pod(fmt::format("g-{}-1", before));
    cluster.settle();
    EXPECT_EQ(cluster.status("g", "generation"), before + 1);
    EXPECT_EQ(cluster.status("g", "restarts"), before + 1) << "both columns show it";
    EXPECT_EQ(cluster.phase("g"), "Starting");
    Names expected;
    for (int i = 0; i < 3; ++i) expected.push_back(fmt::format("g-{}-{}", before + 1, i));
    EXPECT_EQ(cluster.pod_names("g"), expected);
  }
}

TEST_F(OperatorTemplateTest, O072_APodMadeForAnotherSizeRestartsTheGang) {
  create_running(template_job("minReplicas: 2"), "g");
  json::Value pod = cluster.pod("g-0-0");
  pod["metadata"]["annotations"]["diengine/replicas"] = "5";
  cluster.api.store.update(kPods, "default/g-0-0", pod);
  cluster.api.changed();
  cluster.settle();
  EXPECT_EQ(cluster.status("g", "generation"), 1);
  EXPECT_EQ(cluster.pod_names("g"), (Names{"g-1-0", "g-1-1"}));
}

// The names of two generations differ: the server would let two pods of a rank live side by side.
TEST_F(OperatorTemplateTest, AGangThatIsResumedWaitsUntilTheFormerOneHasLeft) {
  create_running(template_job("minReplicas: 2"), "g");
  cluster.kubelet.automatic = true;  // from now on pods take their time to leave
  cluster.on_change = [this](const SimCluster::Change&) {
    std::map<std::string, Names> by_rank;
    for (const std::string& pod : cluster.pod_names("g")) by_rank[rank(pod)].push_back(pod);
    for (const auto& [rank, pods] : by_rank) {
      EXPECT_EQ(pods.size(), 1u) << pods.front() << " and " << pods.back() << " of rank " << rank;
    }
  };
  for (int round = 0; round < 5; ++round) {
    cluster.delete_pod(fmt::format("g-{}-1", cluster.status("g", "generation")));
    cluster.settle(10ms);
    ASSERT_EQ(cluster.phase("g"), "Restarting");
    cluster.edit_job("g", "{spec: {suspend: true}}");
    cluster.settle(10ms);
    cluster.edit_job("g", "{spec: {suspend: false}}");
    cluster.settle(10ms);
    ASSERT_FALSE(cluster.pods("g").empty()) << "the former gang should be leaving still";
    cluster.settle(1min);
    ASSERT_EQ(cluster.phase("g"), "Running");
    EXPECT_EQ(cluster.pods("g").size(), 2u);
  }
}

TEST_F(OperatorTemplateTest, O075_TheStatusSaysHowLargeTheGangIs) {
  create_running(template_job("minReplicas: 2, maxReplicas: 5"), "g");
  cluster.edit_status("g", "{replicas: 4}");
  cluster.settle();
  EXPECT_EQ(cluster.pod_names("g"), (Names{"g-1-0", "g-1-1", "g-1-2", "g-1-3"}));
  EXPECT_EQ(env_of(cluster.pod("g-1-3"), "DI_RANK"), "3");
  cluster.run_all("g");
  cluster.settle();
  EXPECT_EQ(cluster.phase("g"), "Running");
  EXPECT_EQ(cluster.status("g", "replicas"), 4);
}

TEST_F(OperatorTemplateTest, O089_AJobWithoutAReplicaCountWaits) {
  create(template_job(""));
  cluster.settle(10min);
  EXPECT_EQ(cluster.phase("g"), "Pending");
  EXPECT_EQ(message("Pending", "g"), "job is pending since no replicas assigned.");
  EXPECT_TRUE(cluster.pods("g").empty());
  cluster.edit_status("g", "{replicas: 2}");
  cluster.settle();
  EXPECT_EQ(cluster.phase("g"), "Starting");
  EXPECT_EQ(cluster.pods("g").size(), 2u);
}

TEST_F(OperatorTemplateTest, ABudgetThatWasAskedForIsSpentByTheGang) {
  create_running(template_job("minReplicas: 2, backoffLimit: 1"), "g");
  fail("g-0-1");
  cluster.settle();
  EXPECT_EQ(cluster.phase("g"), "Starting");
  EXPECT_EQ(cluster.pod_names("g"), (Names{"g-1-0", "g-1-1"}));
  EXPECT_EQ(cluster.status("g", "restarts"), 1);
  fail("g-1-0");
  cluster.settle();
  EXPECT_EQ(cluster.phase("g"), "Failed");
}

}  // namespace
}  // namespace divisi::dijob::testing
