// What becomes of a job whose pods fail, vanish or are resized: ranks, counters, survivors.
#include "dijob/testing/operator_fixture.h"

#include <algorithm>
#include <set>

namespace divisi::dijob::testing {
namespace {

using namespace std::chrono_literals;

class OperatorRecoveryTest : public OperatorTest {
 protected:
  // The engine takes DI_NODES[DI_RANK] for itself.
  void expect_own_place(const std::string& name) {
    const json::Value pod = cluster.pod(name);
    const std::string nodes = env_of(pod, "DI_NODES");
    Names hosts;
    for (std::size_t at = 0; at <= nodes.size();) {
      const std::size_t end = std::min(nodes.find(',', at), nodes.size());
      hosts.push_back(nodes.substr(at, end - at));
      at = end + 1;
    }
    const auto index = std::stoul(env_of(pod, "DI_RANK"));
    ASSERT_LT(index, hosts.size()) << name;
    EXPECT_EQ(hosts[index], name + ".di-j.default.svc.cluster.local");
  }
};

TEST_F(OperatorRecoveryTest, O056_AResizeUpLeavesThePodsAndRanksThatAreThere) {
  create_running(usual_job());
  const auto before = uids();
  cluster.edit_job("j", sized(2, 2, 3));
  cluster.settle();
  const auto after = uids();
  EXPECT_EQ(after.size(), 7u);
  for (const auto& [name, uid] : before) EXPECT_EQ(after.at(name), uid) << name;
  EXPECT_EQ(
      rank("j-learner-0") + rank("j-evaluator-0") + rank("j-collector-0") + rank("j-collector-1"),
      "0123");
  EXPECT_EQ(rank("j-learner-1") + rank("j-evaluator-1") + rank("j-collector-2"), "456");
  for (const auto& [name, uid] : after) expect_own_place(name);
  cluster.run_all("j");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Running");
  EXPECT_EQ(cluster.status("j", "restarts"), 0);
}

TEST_F(OperatorRecoveryTest, O057_AResizeDownTakesTheHighestOfEachTask) {
  create_running(tasks_job({task("learner", 2), task("evaluator", 2), task("collector", 3)}));
  auto expected = uids();
  for (const char* gone : {"j-learner-1", "j-evaluator-1", "j-collector-2"}) expected.erase(gone);
  cluster.edit_job("j", sized(1, 1, 2));
  cluster.settle();
  EXPECT_EQ(uids(), expected);
  EXPECT_EQ(cluster.phase("j"), "Running");
  EXPECT_EQ(cluster.status("j", "replicas"), 4);
}

TEST_F(OperatorRecoveryTest, O061_OD02_AReplacedPodIsTheSamePlaceAgain) {
  create_running(usual_job());
  const std::string ranks = rank("j-collector-0");
  const std::string uid = cluster.uid("j-collector-0");
  fail("j-collector-0");
  cluster.settle();
  EXPECT_NE(cluster.uid("j-collector-0"), uid);
  EXPECT_EQ(rank("j-collector-0"), ranks);
  expect_own_place("j-collector-0");
}

TEST_F(OperatorRecoveryTest, O061_OD02_ASingleReplicaStaysRankZero) {
  create_running(tasks_job({task("none", 1, "name: serial")}));
  const std::string uid = cluster.uid("j-serial-0");
  fail("j-serial-0");
  cluster.settle();
  EXPECT_NE(cluster.uid("j-serial-0"), uid);
  EXPECT_NE(cluster.uid("j-serial-0"), "");
  EXPECT_EQ(rank("j-serial-0"), "0");
  expect_own_place("j-serial-0");
}

TEST_F(OperatorRecoveryTest, O063_OD14_PodsThatTheNodeRefusesAreReplacedForNothing) {
  create(usual_job("backoffLimit: 0"));
  for (const char* reason :
       {"UnexpectedAdmissionError", "OutOfcpu", "OutOfnvidia.com/gpu", "Outofmemory"}) {
    const std::string uid = cluster.uid("j-learner-0");
    cluster.kubelet.fail_with_reason("default/j-learner-0", reason);
    cluster.settle(15min);
    EXPECT_NE(cluster.uid("j-learner-0"), uid) << reason;
    EXPECT_EQ(cluster.phase("j"), "Starting") << reason;
    EXPECT_EQ(cluster.status("j", "restarts"), 0) << reason;
  }
  cluster.run_all("j");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Running");
}

TEST_F(OperatorRecoveryTest, O063_AnEvictionIsAFailure) {
  create_running(usual_job("backoffLimit: 0"));
  cluster.kubelet.fail_with_reason("default/j-learner-0", "Evicted");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Failed");
}

TEST_F(OperatorRecoveryTest, APodThatTheClusterTookAwayCostsNothing) {
  create_running(usual_job("backoffLimit: 0"));
  const std::string uid = cluster.uid("j-learner-0");
  json::Value pod = cluster.pod("j-learner-0");
  pod["status"]["phase"] = "Failed";
  pod["status"]["reason"] = "NodeShutdown";
  pod["status"]
      .find("conditions")
      ->as_array()
      ->push_back(json::Object{{"type", "DisruptionTarget"}, {"status", "True"}});
  cluster.api.store.update(kPods, in_default("j-learner-0"), pod);
  cluster.api.changed();
  cluster.settle();
  EXPECT_NE(cluster.uid("j-learner-0"), uid);
  EXPECT_EQ(cluster.status("j", "restarts"), 0);
  EXPECT_EQ(cluster.phase("j"), "Starting");
}

TEST_F(OperatorRecoveryTest, O064_ALimitOfNullIsNone) {
  create(usual_job("backoffLimit: null"));
  for (int i = 1; i <= 12; ++i) {
    fail("j-learner-0");
    cluster.settle(20min);
    ASSERT_EQ(cluster.status("j", "restarts"), i);
    ASSERT_EQ(cluster.pods("j").size(), 4u);
  }
  cluster.succeed_all("j");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Succeeded");
}

TEST_F(OperatorRecoveryTest, TheBudgetIsThreeUnlessItIsSaid) {
  create(usual_job());
  for (int i = 1; i <= 4; ++i) {
    ASSERT_EQ(cluster.phase("j"), "Starting") << i;
    fail("j-learner-0");
    cluster.settle(20min);
  }
  EXPECT_EQ(cluster.phase("j"), "Failed");
  EXPECT_EQ(cluster.status("j", "restarts"), 3);
}

TEST_F(OperatorRecoveryTest, TheFirstReplacementIsMadeAtOnceAndLaterOnesWait) {
  create_running(usual_job("backoffLimit: null"));
  fail("j-learner-0");
  EXPECT_TRUE(cluster.loop.run_until(
      [&] { return cluster.pod("j-learner-0").string_at({"status", "phase"}) == "Pending"; }, 1s));
  fail("j-learner-0");
  cluster.settle(9s);
  EXPECT_NE(cluster.pod("j-learner-0").string_at({"status", "phase"}), "Pending");
  cluster.settle(3s);
  EXPECT_EQ(cluster.pod("j-learner-0").string_at({"status", "phase"}), "Pending");
}

TEST_F(OperatorRecoveryTest, OD15_TasksWithoutATypeAreKeptApart) {
  create_running(tasks_job({task("none", 2, "name: a-x"), task("none", 2, "name: b")}));
  const std::string host = ".di-j.default.svc.cluster.local";
  EXPECT_EQ(env_of(cluster.pod("j-b-1"), "DI_B_NODES"), "j-b-0" + host + ",j-b-1" + host);
  EXPECT_EQ(env_of(cluster.pod("j-b-1"), "DI_A_X_NODES"), "j-a-x-0" + host + ",j-a-x-1" + host);
  auto expected = uids();
  expected.erase("j-b-1");
  cluster.edit_job("j", fmt::format("{{spec: {{tasks: [{}, {}]}}}}", task("none", 2, "name: a-x"),
                                    task("none", 1, "name: b")));
  cluster.settle();
  EXPECT_EQ(uids(), expected);
}

TEST_F(OperatorRecoveryTest, OD16_TheCountersChangeInTheWriteThatChangesThePhase) {
  Counters last;
  std::string phase;
  cluster.on_change = [&](const SimCluster::Change& change) {
    if (change.collection != kJobs) return;
    const Counters now = counters(cluster);
    const std::string entered(change.object.string_at({"status", "phase"}));
    const bool restarts = entered == "Restarting" && phase != entered;
    const bool reschedules = entered == "Rescheduling" && phase != entered;
    EXPECT_EQ(now.restarts - last.restarts, restarts ? 1 : 0);
    EXPECT_EQ(now.reschedules - last.reschedules, reschedules ? 1 : 0);
    last = now;
    phase = entered;
  };
  create_running(usual_job());
  fail("j-collector-0");
  cluster.settle();
  cluster.delete_pod("j-collector-1");
  cluster.settle();
  EXPECT_EQ(counters(cluster), (Counters{1, 1}));
}

TEST_F(OperatorRecoveryTest, OD09_PodsAreDeletedWithTheirOwnGrace) {
  Names graces;
  cluster.api.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    if (request.method == "DELETE" && request.target.find("/pods/") != std::string::npos) {
      const auto options = json::parse(request.body);
      const auto grace = options->int_at({"gracePeriodSeconds"});
      graces.push_back(grace ? std::to_string(*grace) : "its own");
    }
    return std::nullopt;
  };
  create_running(tasks_job({task("learner", 1), task("collector", 3)}));
  cluster.kubelet.automatic = true;  // their ends take a while
  cluster.edit_job(
      "j", fmt::format("{{spec: {{tasks: [{}, {}]}}}}", task("learner", 1), task("collector", 1)));
  cluster.settle(3min);
  EXPECT_EQ(graces, (Names{"its own", "its own"}));
}

TEST_F(OperatorRecoveryTest, OD09_APodWhoseNodeIsUnreachableForMinutesIsForcedOut) {
  create_running(tasks_job({task("learner", 1)}));
  const std::string uid = cluster.uid("j-learner-0");
  const json::Value pod = cluster.pod("j-learner-0");
  cluster.kubelet.kill_node(std::string(pod.string_at({"spec", "nodeName"})));
  cluster.settle(5min + 30s);  // tainted after 40 s, marked for deletion after 5 min
  EXPECT_EQ(cluster.uid("j-learner-0"), uid);
  cluster.settle(1min);
  EXPECT_NE(cluster.uid("j-learner-0"), uid);
  EXPECT_NE(cluster.uid("j-learner-0"), "");
  EXPECT_EQ(rank("j-learner-0"), "0");
}

TEST_F(OperatorRecoveryTest, NoPodIsForcedOffANodeThatAnswers) {
  create_running(tasks_job({task("learner", 1)}));
  const std::string uid = cluster.uid("j-learner-0");
  cluster.kubelet.automatic = true;
  cluster.kubelet.slow_down(1h);  // a process that cannot be killed
  cluster.delete_pod("j-learner-0");
  for (const auto skew : {0s, 120s, 7200s, -7200s}) {
    cluster.skew = skew;
    cluster.settle(5min);
    EXPECT_EQ(cluster.uid("j-learner-0"), uid);
  }
}

TEST_F(OperatorRecoveryTest, APodGoesAtOnceWhenItsNodeIsGoneOrOutOfService) {
  for (const bool gone : {false, true}) {
    SCOPED_TRACE(gone);
    create_running(tasks_job({task("learner", 1)}));
    const std::string uid = cluster.uid("j-learner-0");
    const std::string node(cluster.pod("j-learner-0").string_at({"spec", "nodeName"}));
    cluster.kubelet.automatic = true;
    cluster.kubelet.slow_down(1h);
    cluster.delete_pod("j-learner-0");
    cluster.settle(1min);
    ASSERT_EQ(cluster.uid("j-learner-0"), uid);
    if (gone) {
      cluster.api.store.remove("/api/v1/nodes", node);
      cluster.api.changed();
    } else {
      cluster.kubelet.taint(node, {"node.kubernetes.io/out-of-service"});
    }
    cluster.settle();
    EXPECT_NE(cluster.uid("j-learner-0"), uid);
    cluster.kubelet.taint(node, {});
    cluster.kubelet.automatic = false;
    cluster.delete_job("j");
    cluster.settle(1min);
  }
}

TEST_F(OperatorRecoveryTest, ForceCanBeTurnedOff) {
  cluster.crash_all();
  cluster.force_delete_after = 0s;
  cluster.start_operator();
  create_running(tasks_job({task("learner", 1)}));
  const std::string uid = cluster.uid("j-learner-0");
  cluster.kubelet.kill_node(
      std::string(cluster.pod("j-learner-0").string_at({"spec", "nodeName"})));
  cluster.settle(15min);
  EXPECT_EQ(cluster.uid("j-learner-0"), uid);
}

TEST_F(OperatorRecoveryTest, OD10_ServicesOfAFinishedJobGoThoughItHasNoPods) {
  create_running(usual_job());
  cluster.crash_all();
  for (const std::string& name : cluster.pod_names("j")) {
    cluster.kubelet.finish_deletion(in_default(name));
  }
  cluster.edit_status("j", "{phase: Failed}");
  ASSERT_EQ(cluster.services("j").size(), 1u);
  cluster.start_operator();
  cluster.settle();
  EXPECT_TRUE(cluster.services("j").empty());
  EXPECT_TRUE(cluster.pods("j").empty());
}

TEST_F(OperatorRecoveryTest, OD37_ADeleteThatFailsIsTriedAgain) {
  int refused = 0;
  cluster.api.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    if (request.method != "DELETE" || request.target.find("j-collector-1") == std::string::npos ||
        refused >= 20) {
      return std::nullopt;
    }
    ++refused;
    return kube::status_answer(500, "InternalError", "not now");
  };
  create_running(tasks_job({task("learner", 1), task("collector", 3)}));
  cluster.edit_job(
      "j", fmt::format("{{spec: {{tasks: [{}, {}]}}}}", task("learner", 1), task("collector", 1)));
  cluster.settle(10min);
  EXPECT_EQ(refused, 20);
  EXPECT_EQ(cluster.pod_names("j"), (Names{"j-collector-0", "j-learner-0"}));
}

TEST_F(OperatorRecoveryTest, OD38_AGangThatWasCreatedInPartIsCompleted) {
  cluster.create_job(usual_job());
  ASSERT_TRUE(cluster.loop.run_until([&] { return cluster.pods("j").size() == 1; }));
  cluster.crash_all();
  cluster.settle();
  const auto before = uids();
  ASSERT_LT(before.size(), 4u) << "the test has nothing to show";
  cluster.start_operator();
  cluster.settle();
  EXPECT_EQ(cluster.pods("j").size(), 4u);
  EXPECT_EQ(cluster.phase("j"), "Starting");
  for (const auto& [name, uid] : before) EXPECT_EQ(cluster.uid(name), uid);
}

}  // namespace
}  // namespace divisi::dijob::testing
