// What failures cost when several come together (M20), and what counts as one (M14).
#include "dijob/testing/operator_fixture.h"

namespace divisi::dijob::testing {
namespace {

using namespace std::chrono_literals;

class OperatorWaveTest : public OperatorTest {
 protected:
  // The main container ends, its sidecar goes on.
  void end_main(const std::string& pod, int exit_code) {
    json::Value object = cluster.pod(pod);
    for (json::Value& status : *object["status"].find("containerStatuses")->as_array()) {
      if (status.string_at({"name"}) != "di-container") continue;
      status["ready"] = false;
      status["state"] =
          *json::parse(fmt::format(R"({{"terminated": {{"exitCode": {}}}}})", exit_code));
    }
    for (json::Value& condition : *object["status"].find("conditions")->as_array()) {
      if (condition.string_at({"type"}) == "Ready") condition["status"] = "False";
    }
    cluster.api.store.update(kPods, in_default(pod), object);
    cluster.api.changed();
    cluster.settle();
  }
  static std::string with_sidecar(int replicas, const std::string& more = {}) {
    return tasks_job({fmt::format("{{type: learner, replicas: {}, template: {{spec: {{containers: "
                                  "[{{name: log}}, {{name: di-container}}]}}}}}}",
                                  replicas)},
                     more);
  }
};

TEST_F(OperatorWaveTest, O048_O050_FailuresOfOneIncidentAreOneRestartHoweverFarApart) {
  for (const auto apart : {1ms, 50ms, 200ms, 2000ms}) {
    SCOPED_TRACE(apart.count());
    create_running(tasks_job({task("learner", 1), task("collector", 4)}));
    cluster.settle(1min);
    for (const auto& [pod, uid] : uids()) {
      fail(pod);
      cluster.settle(apart);
    }
    cluster.settle();
    EXPECT_EQ(counters(cluster), (Counters{1, 0}));
    EXPECT_EQ(cluster.phase("j"), "Starting");
    EXPECT_EQ(cluster.pods("j").size(), 5u);
    cluster.delete_job("j");
    cluster.settle(1min);
  }
}

TEST_F(OperatorWaveTest, AReplacementThatFailsIsChargedAgain) {
  create_running(usual_job());
  cluster.settle(1min);
  fail("j-learner-0");
  cluster.settle(1s);
  fail("j-collector-0");
  cluster.settle(1s);
  EXPECT_EQ(cluster.status("j", "restarts"), 1);
  fail("j-learner-0");
  cluster.settle(20s);
  EXPECT_EQ(cluster.status("j", "restarts"), 2);
}

TEST_F(OperatorWaveTest, AWaveEndsWhenTheJobRunsAgainButNotWithinTenSeconds) {
  create_running(usual_job());
  cluster.settle(1min);
  fail("j-learner-0");
  cluster.settle(1s);
  cluster.run_all("j");
  cluster.settle(2s);
  ASSERT_EQ(cluster.phase("j"), "Running");
  fail("j-collector-0");
  cluster.settle(2s);
  EXPECT_EQ(cluster.status("j", "restarts"), 1);
  cluster.run_all("j");
  cluster.settle(10s);
  ASSERT_EQ(cluster.phase("j"), "Running");
  fail("j-collector-1");
  cluster.settle(2s);
  EXPECT_EQ(cluster.status("j", "restarts"), 2);
}

TEST_F(OperatorWaveTest, AnOperatorThatTakesOverKnowsTheWave) {
  create_running(usual_job());
  cluster.settle(1min);
  fail("j-learner-0");
  cluster.settle(1s);
  cluster.crash_all();
  cluster.start_operator();
  fail("j-collector-0");
  cluster.settle();
  EXPECT_EQ(cluster.status("j", "restarts"), 1);
  EXPECT_EQ(cluster.phase("j"), "Starting");
}

TEST_F(OperatorWaveTest, OD07_TheMainContainerDecidesThoughASidecarLives) {
  create_running(with_sidecar(2));
  end_main("j-learner-0", 0);
  EXPECT_EQ(cluster.phase("j"), "Running");
  end_main("j-learner-1", 0);
  EXPECT_EQ(cluster.phase("j"), "Succeeded");
  EXPECT_TRUE(cluster.pods("j").empty()) << "only sidecars ran: the policy Running takes them";
}

TEST_F(OperatorWaveTest, OD07_AMainContainerThatFailsIsReplacedWithItsSidecar) {
  create_running(with_sidecar(1, "backoffLimit: 1"));
  const std::string uid = cluster.uid("j-learner-0");
  end_main("j-learner-0", 1);
  EXPECT_EQ(cluster.status("j", "restarts"), 1);
  EXPECT_NE(cluster.uid("j-learner-0"), uid);
  cluster.run_all("j");
  cluster.settle(20s);
  end_main("j-learner-0", 1);
  EXPECT_EQ(cluster.phase("j"), "Failed");
  EXPECT_TRUE(cluster.pods("j").empty());
}

TEST_F(OperatorWaveTest, OD07_ASidecarThatEndsDecidesNothing) {
  create_running(with_sidecar(1));
  json::Value object = cluster.pod("j-learner-0");
  object["status"].find("containerStatuses")->as_array()->front()["state"] =
      *json::parse(R"({"terminated": {"exitCode": 1}})");
  cluster.api.store.update(kPods, in_default("j-learner-0"), object);
  cluster.api.changed();
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Running");
  EXPECT_EQ(cluster.status("j", "restarts"), 0);
}

}  // namespace
}  // namespace divisi::dijob::testing
