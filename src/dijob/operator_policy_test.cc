// Beyond the reference, off unless asked for: suspension, deadlines, exit codes, budgets of tasks,
// who completes a job, gangs and the order of starting.
#include "dijob/testing/operator_fixture.h"

namespace divisi::dijob::testing {
namespace {

using namespace std::chrono_literals;

class OperatorPolicyTest : public OperatorTest {};

TEST_F(OperatorPolicyTest, ASuspendedJobHasNoPodsAndGoesOnWhereItWas) {
  create_running(usual_job());
  cluster.edit_job("j", "{spec: {suspend: true}}");
  cluster.settle();
  EXPECT_TRUE(cluster.pods("j").empty());
  EXPECT_EQ(cluster.phase("j"), "Pending");
  EXPECT_EQ(cluster.condition("j", "Suspended").string_at({"status"}), "True");
  cluster.settle(10min);
  EXPECT_TRUE(cluster.pods("j").empty());
  cluster.edit_job("j", "{spec: {suspend: false}}");
  cluster.settle();
  EXPECT_EQ(cluster.condition("j", "Suspended").string_at({"status"}), "False");
  EXPECT_EQ(cluster.pods("j").size(), 4u);
  EXPECT_EQ(counters(cluster), (Counters{0, 0}));
  EXPECT_EQ(rank("j-collector-1"), "3");
  cluster.run_all("j");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Running");
}

TEST_F(OperatorPolicyTest, AJobMayBeginSuspendedInBothForms) {
  create(usual_job("suspend: true"));
  create(template_job("minReplicas: 2, suspend: true"));
  for (const char* job : {"j", "g"}) {
    EXPECT_TRUE(cluster.pods(job).empty()) << job;
    EXPECT_EQ(cluster.phase(job), "Pending") << job;
    cluster.edit_job(job, "{spec: {suspend: null}}");
    cluster.settle();
    EXPECT_EQ(cluster.phase(job), "Starting") << job;
  }
}

TEST_F(OperatorPolicyTest, AFinishedJobIsKeptAsLongAsItSays) {
  create(usual_job("ttlSecondsAfterFinished: 600"));
  cluster.succeed_all("j");
  cluster.settle(9min);
  EXPECT_EQ(cluster.phase("j"), "Succeeded");
  cluster.settle(2min);
  EXPECT_FALSE(cluster.has_job("j"));
  EXPECT_TRUE(cluster.pods("j").empty()) << "they go with their owner";
}

TEST_F(OperatorPolicyTest, AJobThatIsActiveTooLongFails) {
  create_running(usual_job("activeDeadlineSeconds: 600"));
  cluster.settle(9min);
  EXPECT_EQ(cluster.phase("j"), "Running");
  cluster.settle(2min);
  EXPECT_EQ(cluster.phase("j"), "Failed");
  EXPECT_EQ(message("Failed"), "job failed since it was active longer than 600 seconds");
  EXPECT_TRUE(cluster.pods("j").empty());
}

TEST_F(OperatorPolicyTest, AnEventSaysWhyAJobWasActiveTooLong) {
  create_running(usual_job("activeDeadlineSeconds: 60"));
  cluster.settle(2min);
  EXPECT_TRUE(told("Warning JobFailed: job failed since it was active longer than 60 seconds"));
}

TEST_F(OperatorPolicyTest, TheTimeOfASuspensionIsNotActive) {
  create_running(usual_job("activeDeadlineSeconds: 600"));
  cluster.edit_job("j", "{spec: {suspend: true}}");
  cluster.settle(1h);
  EXPECT_EQ(cluster.phase("j"), "Pending");
  cluster.edit_job("j", "{spec: {suspend: false}}");
  cluster.settle(5min);
  EXPECT_EQ(cluster.phase("j"), "Starting");
}

TEST_F(OperatorPolicyTest, ExitCodesDecideWhatAFailureCosts) {
  create_running(
      usual_job("backoffLimit: 1, exitCodeRules: [{exitCodes: [42, 43], action: Ignore}, "
                "{exitCodes: [7], action: FailJob}]"));
  for (const int code : {42, 43, 42}) {
    const std::string uid = cluster.uid("j-collector-0");
    fail("j-collector-0", code);
    cluster.settle(15min);
    EXPECT_NE(cluster.uid("j-collector-0"), uid);
    EXPECT_EQ(cluster.status("j", "restarts"), 0);
  }
  fail("j-learner-0", 7);
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Failed");
  EXPECT_EQ(message("Failed"), "job failed since pod j-learner-0 ended with exit code 7");
}

TEST_F(OperatorPolicyTest, TheRulesOfATaskComeBeforeThoseOfTheJob) {
  create_running(
      tasks_job({task("learner", 1),
                 task("collector", 1, "exitCodeRules: [{exitCodes: [7], action: Ignore}]")},
                "exitCodeRules: [{exitCodes: [7], action: FailJob}]"));
  fail("j-collector-0", 7);
  cluster.settle();
  EXPECT_NE(cluster.phase("j"), "Failed");
  fail("j-learner-0", 7);
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Failed");
}

TEST_F(OperatorPolicyTest, ATaskMayHaveABudgetOfItsOwn) {
  create_running(tasks_job({task("learner", 1, "backoffLimit: 0"),
                            task("collector", 2, "backoffLimit: null"), task("evaluator", 1)},
                           "backoffLimit: 1"));
  for (int i = 1; i <= 5; ++i) {
    fail("j-collector-1");
    cluster.settle(20min);
    ASSERT_EQ(cluster.status("j", "restarts"), i);
  }
  cluster.run_all("j");
  cluster.settle(20s);
  fail("j-evaluator-0");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Starting") << "the job's budget is untouched by the collectors";
  cluster.run_all("j");
  cluster.settle(20s);
  fail("j-learner-0");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Failed");
  EXPECT_EQ(cluster.status("j", "restarts"), 6);
  EXPECT_EQ(cluster.job("j").int_at({"status", "taskRestarts", "collector"}), 5);
}

TEST_F(OperatorPolicyTest, ATaskThatIsNeverRestartedFailsTheJobAndOneThatAlwaysIsComesBack) {
  create_running(tasks_job(
      {task("learner", 1, "restartPolicy: Never"), task("collector", 1, "restartPolicy: Always")}));
  const std::string uid = cluster.uid("j-collector-0");
  cluster.kubelet.succeed("default/j-collector-0");
  cluster.settle();
  EXPECT_NE(cluster.uid("j-collector-0"), uid);
  EXPECT_EQ(cluster.status("j", "restarts"), 0);
  fail("j-learner-0");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Failed");
}

TEST_F(OperatorPolicyTest, OD33_TheTaskThatCompletesTheJobEndsTheOthers) {
  create_running(tasks_job({task("learner", 1, "completesJob: true"), task("collector", 2)}));
  cluster.kubelet.succeed("default/j-learner-0");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Succeeded");
  EXPECT_EQ(cluster.pod_names("j"), Names{"j-learner-0"});
}

TEST_F(OperatorPolicyTest, OD33_WithoutItAllMustSucceed) {
  create_running(tasks_job({task("learner", 1), task("collector", 2)}));
  cluster.kubelet.succeed("default/j-learner-0");
  cluster.settle(10min);
  EXPECT_EQ(cluster.phase("j"), "Running");
  EXPECT_EQ(cluster.pods("j").size(), 3u);
}

TEST_F(OperatorPolicyTest, ATaskStartsWhenThoseBeforeItAreReady) {
  create(tasks_job({task("collector", 2, "startAfter: [learner]"), task("learner", 1)}));
  EXPECT_EQ(cluster.pod_names("j"), Names{"j-learner-0"});
  cluster.settle(5min);
  EXPECT_EQ(cluster.pod_names("j"), Names{"j-learner-0"});
  cluster.run_all("j");
  cluster.settle();
  EXPECT_EQ(cluster.pods("j").size(), 3u);
  EXPECT_EQ(cluster.phase("j"), "Starting");
  cluster.run_all("j");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Running");
  EXPECT_EQ(counters(cluster), (Counters{0, 0}));
  EXPECT_EQ(rank("j-learner-0"), "2") << "ranks follow the order of the tasks";
}

TEST_F(OperatorPolicyTest, AGangMayRunWithFewerThanAll) {
  create(tasks_job({task("learner", 1), task("collector", 4, "minAvailable: 2")}));
  for (const char* pod : {"j-learner-0", "j-collector-0"}) cluster.kubelet.run(in_default(pod));
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Starting");
  cluster.kubelet.run("default/j-collector-3");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Running");
  EXPECT_EQ(cluster.status("j", "readyReplicas"), 3);
}

}  // namespace
}  // namespace divisi::dijob::testing
