// The life of a job in the tasks form, on a simulated cluster: the acceptance items of its phases.
#include "dijob/testing/operator_fixture.h"

#include <algorithm>
#include <set>

namespace divisi::dijob::testing {
namespace {

using namespace std::chrono_literals;

TEST_F(OperatorTest, O041_EveryReplicaGetsAPodByItsNameAndTheJobStarts) {
  create(usual_job());
  EXPECT_EQ(cluster.pod_names("j"),
            (Names{"j-collector-0", "j-collector-1", "j-evaluator-0", "j-learner-0"}));
  EXPECT_EQ(cluster.phase("j"), "Starting");
  EXPECT_EQ(cluster.services("j"), Names{"di-j"});
  EXPECT_TRUE(told("Normal JobPending: job created."));
  EXPECT_TRUE(told("Normal JobStarting: job is starting since all replicas are created."));
  EXPECT_TRUE(told("Normal SuccessfulCreate: pod j-learner-0 was successfully created"));
}

TEST_F(OperatorTest, O042_RunsWhenAllPodsAreReady) {
  create_running(usual_job());
  EXPECT_EQ(cluster.status("j", "readyReplicas"), 4);
  EXPECT_TRUE(told("Normal JobRunning: job is running since all replicas are ready."));
  EXPECT_EQ(message("Running"), "job is running since all pods are ready.");
}

TEST_F(OperatorTest, O043_SucceedsWhenAllPodsHave) {
  create_running(usual_job());
  cluster.succeed_all("j");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Succeeded");
  EXPECT_EQ(cluster.status("j", "readyReplicas"), 0);
  EXPECT_NE(cluster.job("j").string_at({"status", "completionTimestamp"}), "");
  EXPECT_EQ(message("Succeeded"), "job succeeded since all the replicas are succeeded.");
  EXPECT_EQ(cluster.condition("j", "Running").string_at({"status"}), "False");
}

TEST_F(OperatorTest, O044_WithoutABudgetThePhaseFollowsThePods) {
  create(usual_job("backoffLimit: 0"));
  EXPECT_EQ(cluster.phase("j"), "Starting") << "pods that are Pending";
  cluster.run_all("j");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Running");
  fail("j-collector-1");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Failed");
  EXPECT_EQ(message("Failed"), "job failed since 1 pods failed and exceed backoff limit");

  create(tasks_job({task("learner", 1)}, "backoffLimit: 0", "k"));
  cluster.succeed_all("k");
  cluster.settle();
  EXPECT_EQ(cluster.phase("k"), "Succeeded");
}

TEST_F(OperatorTest, O045_AStartWithoutTroubleCountsNothing) {
  create_running(usual_job());
  EXPECT_EQ(counters(cluster), (Counters{0, 0}));
}

TEST_F(OperatorTest, O046_AFailureWhileStartingIsOneRestart) {
  create(usual_job());
  fail("j-learner-0");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Starting");
  EXPECT_EQ(counters(cluster), (Counters{1, 0}));
  EXPECT_EQ(message("Restarting"), "job is restarting since 1 pods failed.");
  EXPECT_EQ(cluster.pods("j").size(), 4u);
}

TEST_F(OperatorTest, O047_StaysStartingUntilTheLastPodIsReady) {
  create(usual_job());
  for (const char* pod : {"j-learner-0", "j-evaluator-0", "j-collector-0"}) {
    cluster.kubelet.run(in_default(pod));
  }
  cluster.settle(5min);
  EXPECT_EQ(cluster.phase("j"), "Starting");
  EXPECT_EQ(cluster.status("j", "readyReplicas"), 3);
  EXPECT_EQ(counters(cluster), (Counters{0, 0}));
}

TEST_F(OperatorTest, O048_FailuresAndThenALossWhileStartingAreOneOfEach) {
  for (const int failures : {2, 3}) {
    SCOPED_TRACE(failures);
    SimCluster other(3);
    other.kubelet.automatic = false;
    other.start_operator();
    other.create_job(usual_job());
    other.settle();
    const Names names = other.pod_names("j");
    for (int i = 0; i < failures; ++i) other.kubelet.fail(in_default(names.at(std::size_t(i))));
    other.settle();
    other.delete_pod("j-learner-0");
    other.settle();
    EXPECT_EQ(other.phase("j"), "Starting");
    EXPECT_EQ(counters(other), (Counters{1, 1}));
    EXPECT_EQ(other.pods("j").size(), 4u);
  }
}

TEST_F(OperatorTest, O049_ALostPodOfARunningJobIsARescheduleNotARestart) {
  create_running(usual_job());
  cluster.delete_pod("j-evaluator-0");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Starting");
  EXPECT_EQ(counters(cluster), (Counters{0, 1}));
  EXPECT_EQ(cluster.pods("j").size(), 4u);
}

TEST_F(OperatorTest, O050_FailuresOfARunningJobAreOneRestartTogether) {
  create_running(usual_job());
  fail("j-collector-0");
  fail("j-collector-1");
  cluster.settle();
  EXPECT_EQ(counters(cluster), (Counters{1, 0}));
  EXPECT_EQ(message("Restarting"), "job is restarting since 2 pods failed.");

  create_running(tasks_job({task("learner", 1), task("collector", 2)}, "", "k"), "k");
  fail("k-collector-0");
  cluster.settle();
  cluster.delete_pod("k-learner-0");
  cluster.settle();
  EXPECT_EQ(counters(cluster, "k"), (Counters{1, 1}));
}

TEST_F(OperatorTest, O052_EveryPodListsEveryReplica) {
  const std::vector<std::vector<int>> sizes{{1, 1, 1}, {1, 1, 2}, {1, 3, 2}};
  const std::vector<std::ptrdiff_t> sums{9, 16, 36};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::string name = fmt::format("s{}", i);
    create(tasks_job({task("learner", sizes[i][0]), task("evaluator", sizes[i][1]),
                      task("collector", sizes[i][2])},
                     "", name));
    std::ptrdiff_t sum = 0;
    for (const json::Value& pod : cluster.pods(name)) {
      const std::string hosts = env_of(pod, "DI_NODES");
      sum += hosts.empty() ? 0 : 1 + std::ranges::count(hosts, ',');
    }
    EXPECT_EQ(sum, sums[i]);
  }
}

TEST_F(OperatorTest, O053_StatusCountsReplicasAndPodsByTask) {
  const std::vector<std::vector<int>> sizes{{1, 1, 1}, {1, 1, 2}, {1, 3, 2}};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::string name = fmt::format("s{}", i);
    create_running(tasks_job({task("learner", sizes[i][0]), task("evaluator", sizes[i][1]),
                              task("collector", sizes[i][2])},
                             "", name),
                   name);
    EXPECT_EQ(cluster.status(name, "replicas"), sizes[i][0] + sizes[i][1] + sizes[i][2]);
    std::int64_t running = 0;
    const json::Value job = cluster.job(name);
    for (const char* each : {"learner", "evaluator", "collector"}) {
      running += job.int_at({"status", "taskStatus", each, "Running"}).value_or(0);
    }
    EXPECT_EQ(running, cluster.status(name, "replicas"));
  }
}

TEST_F(OperatorTest, O058_AJobThatCannotBeFailsWithTheTextAndNoPods) {
  const std::map<std::string, std::string> bad{
      {"the number of collector task is more than one",
       tasks_job({task("collector", 1), task("collector", 1, "name: other")}, "", "a")},
      {"none type task has no name", tasks_job({task("none", 1)}, "", "b")},
      {"there is more than one task named x",
       tasks_job({task("none", 1, "name: x"), task("learner", 1, "name: x")}, "", "c")}};
  for (const auto& [text, yaml] : bad) {
    const std::string uid = cluster.create_job(yaml);
    cluster.settle();
    for (const char* name : {"a", "b", "c"}) {
      if (cluster.job(name).string_at({"metadata", "uid"}) != uid) continue;
      EXPECT_EQ(cluster.phase(name), "Failed") << text;
      EXPECT_EQ(message("Failed", name), text);
      EXPECT_TRUE(cluster.pods(name).empty());
      EXPECT_TRUE(cluster.services(name).empty());
    }
  }
}

TEST_F(OperatorTest, O059_TypedTasksGetTheirTypesAsNamesInTheStoredSpec) {
  create_running(usual_job());
  const json::Value job = cluster.job("j");
  const json::Array& tasks = *job.find_path({"spec", "tasks"})->as_array();
  ASSERT_EQ(tasks.size(), 3u);
  EXPECT_EQ(tasks[0].string_at({"name"}), "learner");
  EXPECT_EQ(tasks[1].string_at({"name"}), "evaluator");
  EXPECT_EQ(tasks[2].string_at({"name"}), "collector");
  cluster.succeed_all("j");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Succeeded");
}

TEST_F(OperatorTest, O062_OD06_APodOfTwoContainersIsOneReplica) {
  const char* two = "{spec: {containers: [{name: di-container, image: a}, {name: s, image: b}]}}";
  create_running(tasks_job({fmt::format("{{type: learner, replicas: 2, template: {}}}", two)}));
  EXPECT_EQ(cluster.status("j", "readyReplicas"), 2);
}

TEST_F(OperatorTest, O067_AnOperatorThatStartsLeavesFinishedJobsAlone) {
  create_running(usual_job());
  cluster.succeed_all("j");
  cluster.settle();
  ASSERT_EQ(cluster.phase("j"), "Succeeded");
  cluster.crash_all();
  const json::Value before = cluster.job("j");
  const auto pods = uids();
  cluster.start_operator();
  cluster.settle(10min);
  EXPECT_EQ(cluster.job("j"), before);
  EXPECT_EQ(uids(), pods);
}

TEST_F(OperatorTest, OD11_TheTimeOfCompletionIsWrittenWithThePhaseAndStays) {
  std::set<std::string> times;
  cluster.on_change = [&](const SimCluster::Change& change) {
    if (change.collection != kJobs || change.type == "DELETED") return;
    const std::string_view phase = change.object.string_at({"status", "phase"});
    const std::string_view time = change.object.string_at({"status", "completionTimestamp"});
    EXPECT_EQ(time.empty(), phase != "Failed" && phase != "Succeeded") << phase;
    if (!time.empty()) times.emplace(time);
  };
  create_running(usual_job("backoffLimit: 0, cleanPodPolicy: All"));
  fail("j-learner-0");
  cluster.settle(3min);
  cluster.crash_all();
  cluster.start_operator();
  cluster.edit_job("j", "{spec: {priority: high}}");
  cluster.settle(3min);
  EXPECT_EQ(times.size(), 1u);
}

TEST_F(OperatorTest, OD13_NothingIsWrittenWhileNothingChanges) {
  create_running(usual_job());
  cluster.settle(1min);
  const std::uint64_t version = cluster.api.store.version();
  cluster.settle(1h);
  EXPECT_EQ(cluster.api.store.version(), version);
}

}  // namespace
}  // namespace divisi::dijob::testing
