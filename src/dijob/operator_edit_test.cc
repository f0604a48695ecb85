// What an edit of a live job does (M3, M5), field by field.
#include "dijob/testing/operator_fixture.h"

namespace divisi::dijob::testing {
namespace {

using namespace std::chrono_literals;

class OperatorEditTest : public OperatorTest {
 protected:
  // The one-task job, with this template and these fields of the task and of the spec.
  static std::string one_task(const std::string& pod_template, const std::string& spec = {}) {
    return fmt::format(
        "{{spec: {{tasks: [{{type: none, name: w, replicas: 2, template: {}}}]{}{}}}}}",
        pod_template, spec.empty() ? "" : ", ", spec);
  }
  void create_one_task() {
    create_running(tasks_job({task("none", 2, "name: w")}));
    cluster.settle(1min);
  }
  std::string image_of(const std::string& pod) const {
    const json::Value object = cluster.pod(pod);
    return std::string(
        object.find_path({"spec", "containers"})->as_array()->front().string_at({"image"}));
  }
};

TEST_F(OperatorEditTest, WhatPodsAreMadeOfAppliesToThoseMadeFromThenOn) {
  const std::vector<std::string> edits{
      "{spec: {containers: [{name: di-container, image: other}]}}",
      "{spec: {containers: [{name: di-container, image: busybox, env: [{name: A, value: b}]}]}}",
      "{spec: {containers: [{name: di-container, image: busybox, args: [x]}]}}",
      "{spec: {containers: [{name: di-container, image: busybox, command: [x]}]}}",
      "{spec: {containers: [{name: di-container, image: busybox, resources: {limits: {cpu: 1}}}]}}",
      "{metadata: {labels: {team: rl}}, spec: {containers: [{name: di-container, image: "
      "busybox}]}}"};
  create_one_task();
  const auto before = uids();
  for (const std::string& edit : edits) {
    SCOPED_TRACE(edit);
    cluster.edit_job("j", one_task(edit));
    cluster.settle(1min);
    EXPECT_EQ(uids(), before);
    EXPECT_EQ(cluster.phase("j"), "Running");
    EXPECT_EQ(cluster.condition("j", "UpToDate").string_at({"status"}), "False");
    EXPECT_EQ(message("UpToDate").substr(0, 9), "2 of 2 po");
    cluster.edit_job("j", one_task(kPodTemplate));
    cluster.settle(1min);
    EXPECT_EQ(cluster.condition("j", "UpToDate").string_at({"status"}), "True");
  }
  cluster.edit_job("j", one_task(kPodTemplate, "volumes: [{name: v, emptyDir: {}}]"));
  cluster.settle(1min);
  EXPECT_EQ(uids(), before);
  EXPECT_EQ(cluster.condition("j", "UpToDate").string_at({"status"}), "False");

  cluster.edit_job("j", one_task(edits[0]));
  cluster.delete_pod("j-w-1");
  cluster.settle();
  EXPECT_EQ(image_of("j-w-0"), "busybox");
  EXPECT_EQ(image_of("j-w-1"), "other");
  EXPECT_EQ(message("UpToDate").substr(0, 9), "1 of 2 po");
}

TEST_F(OperatorEditTest, RestartedAtMakesOlderPodsAgainOneByOne) {
  create_one_task();
  cluster.kubelet.automatic = true;
  cluster.edit_job("j", one_task("{spec: {containers: [{name: di-container, image: other}]}}"));
  cluster.settle(1min);
  std::size_t fewest = 2;
  cluster.on_change = [&](const SimCluster::Change& change) {
    if (change.collection != kPods) return;
    std::size_t ready = 0;
    for (const json::Value& pod : cluster.pods("j")) {
      ready += pod.find_path({"metadata", "deletionTimestamp"}) == nullptr &&
                       pod.string_at({"status", "phase"}) == "Running"
                   ? 1
                   : 0;
    }
    fewest = std::min(fewest, ready);
  };
  cluster.edit_job("j",
                   "{metadata: {annotations: {diengine/restartedAt: '2026-01-01T00:00:00Z'}}}");
  cluster.settle(5min);
  EXPECT_EQ(image_of("j-w-0"), "other");
  EXPECT_EQ(image_of("j-w-1"), "other");
  EXPECT_EQ(fewest, 1u) << "never all at once";
  EXPECT_EQ(cluster.status("j", "restarts"), 0);
  EXPECT_EQ(cluster.phase("j"), "Running");
  EXPECT_EQ(cluster.condition("j", "UpToDate").string_at({"status"}), "True");
  const auto after = uids();
  cluster.settle(10min);
  EXPECT_EQ(uids(), after) << "once";
}

TEST_F(OperatorEditTest, NamesTypesAndFormOfALiveJobStayAsTheyAre) {
  create_running(usual_job());
  const auto before = uids();
  const std::map<std::string, std::string> edits{
      {"name", fmt::format("{{spec: {{tasks: [{}, {}, {}]}}}}", task("learner", 1, "name: boss"),
                           task("evaluator", 1), task("collector", 2))},
      {"type", fmt::format("{{spec: {{tasks: [{}, {}, {}]}}}}", task("none", 1, "name: learner"),
                           task("evaluator", 1), task("collector", 2))},
      {"form",
       fmt::format("{{spec: {{tasks: null, minReplicas: 1, template: {}}}}}", kPodTemplate)}};
  for (const auto& [what, edit] : edits) {
    SCOPED_TRACE(what);
    cluster.edit_job("j", edit);
    cluster.settle(1min);
    EXPECT_EQ(uids(), before);
    EXPECT_EQ(cluster.phase("j"), "Running");
    EXPECT_EQ(cluster.condition("j", "EditRefused").string_at({"status"}), "True");
    EXPECT_NE(message("EditRefused").find("is not applied"), std::string::npos);
    EXPECT_TRUE(told("Warning EditRefused"));
    cluster.edit_job("j", "{spec: {template: null, minReplicas: null}}");
    cluster.edit_job("j", fmt::format("{{spec: {{tasks: [{}, {}, {}]}}}}", task("learner", 1),
                                      task("evaluator", 1), task("collector", 2)));
    cluster.settle(1min);
    EXPECT_EQ(cluster.condition("j", "EditRefused").string_at({"status"}), "False");
    EXPECT_EQ(uids(), before);
  }
}

TEST_F(OperatorEditTest, ATaskMayBeAddedAndTakenAway) {
  create_running(tasks_job({task("learner", 1)}));
  const std::string learner = cluster.uid("j-learner-0");
  cluster.edit_job(
      "j", fmt::format("{{spec: {{tasks: [{}, {}]}}}}", task("learner", 1), task("collector", 2)));
  cluster.settle();
  EXPECT_EQ(cluster.pod_names("j"), (Names{"j-collector-0", "j-collector-1", "j-learner-0"}));
  cluster.edit_job("j", fmt::format("{{spec: {{tasks: [{}]}}}}", task("learner", 1)));
  cluster.settle();
  EXPECT_EQ(cluster.pod_names("j"), Names{"j-learner-0"});
  EXPECT_EQ(cluster.uid("j-learner-0"), learner);
}

TEST_F(OperatorEditTest, TheBudgetCountsAsItIsWhenSomethingFails) {
  create_running(usual_job("backoffLimit: 0"));
  cluster.edit_job("j", "{spec: {backoffLimit: 1}}");
  cluster.settle();
  fail("j-learner-0");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Starting");
  cluster.edit_job("j", "{spec: {backoffLimit: 0}}");
  fail("j-learner-0");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Failed");
}

TEST_F(OperatorEditTest, TheCleanPolicyIsTheOneOfTheEnd) {
  create_running(usual_job("backoffLimit: 0"));
  cluster.edit_job("j", "{spec: {cleanPodPolicy: All, priority: high}}");
  cluster.settle();
  fail("j-learner-0");
  cluster.settle();
  EXPECT_TRUE(cluster.pods("j").empty());
}

TEST_F(OperatorEditTest, ABadEditEndsNothingThatRuns) {
  for (const bool tasks : {true, false}) {
    SCOPED_TRACE(tasks ? "tasks" : "template");
    create_running(tasks ? usual_job() : template_job("minReplicas: 2", "j"));
    cluster.settle(1min);
    const auto before = uids();
    // One that can be read but not run, and one that cannot be read.
    for (const std::string edit : {"{spec: {priority: wrong}}", "{spec: {backoffLimit: [3]}}"}) {
      SCOPED_TRACE(edit);
      cluster.edit_job("j", edit);
      cluster.settle(1min);
      EXPECT_EQ(uids(), before);
      EXPECT_EQ(cluster.phase("j"), "Running");
      EXPECT_NE(message("EditRefused").find(edit.substr(8, 8)), std::string::npos)
          << message("EditRefused");
      EXPECT_TRUE(told("Warning EditRefused"));
      cluster.edit_job("j", "{spec: {priority: normal, backoffLimit: 3}}");
      cluster.settle(1min);
      EXPECT_EQ(cluster.condition("j", "EditRefused").string_at({"status"}), "False");
      EXPECT_EQ(cluster.phase("j"), "Running");
    }
    EXPECT_EQ(uids(), before);
    cluster.delete_job("j");
    cluster.settle(1min);
  }
}

TEST_F(OperatorEditTest, WithABadEditTheJobEndsWhenItsLastPodHas) {
  create_running(usual_job());
  cluster.edit_job("j", "{spec: {priority: wrong}}");
  cluster.settle();
  for (const auto& [pod, uid] : uids()) {
    EXPECT_EQ(cluster.phase("j"), "Running");
    fail(pod);
    cluster.settle();
  }
  EXPECT_EQ(cluster.phase("j"), "Failed");
  EXPECT_NE(message("Failed").find("spec.priority"), std::string::npos);
}

// --- M3: spec.replicas is the size of the collector task under another name ---

class OperatorScaleTest : public OperatorTest {
 protected:
  std::int64_t collectors() const {
    const json::Value job = cluster.job("j");
    return job.find_path({"spec", "tasks"})->as_array()->at(2).int_at({"replicas"}).value_or(-1);
  }
  std::int64_t replicas() const {
    return cluster.job("j").int_at({"spec", "replicas"}).value_or(-1);
  }
};

TEST_F(OperatorScaleTest, TheNumberIsFilledInAndFollowsTheTask) {
  create_running(usual_job());
  EXPECT_EQ(replicas(), 2);
  cluster.edit_job("j", sized(1, 1, 4));
  cluster.settle();
  EXPECT_EQ(replicas(), 4);
  EXPECT_EQ(cluster.pods("j").size(), 6u);
}

TEST_F(OperatorScaleTest, TheTaskFollowsTheNumber) {
  create_running(usual_job());
  const auto before = uids();
  cluster.edit_job("j", "{spec: {replicas: 5}}");
  cluster.settle();
  EXPECT_EQ(collectors(), 5);
  EXPECT_EQ(cluster.pods("j").size(), 7u);
  for (const auto& [name, uid] : before) EXPECT_EQ(cluster.uid(name), uid);
  cluster.edit_job("j", "{spec: {replicas: 1}}");
  cluster.settle();
  EXPECT_EQ(collectors(), 1);
  EXPECT_EQ(cluster.pod_names("j"), (Names{"j-collector-0", "j-evaluator-0", "j-learner-0"}));
  EXPECT_EQ(cluster.status("j", "scaledReplicas"), 1);
}

TEST_F(OperatorScaleTest, TheTaskWinsWhenBothWereChanged) {
  create_running(usual_job());
  cluster.edit_job("j", sized(1, 1, 3));
  cluster.edit_job("j", "{spec: {replicas: 7}}");
  cluster.settle();
  EXPECT_EQ(collectors(), 3);
  EXPECT_EQ(replicas(), 3);
}

TEST_F(OperatorScaleTest, ANumberThatCannotBeIsPutBack) {
  create_running(usual_job());
  cluster.edit_job("j", "{spec: {replicas: 0}}");
  cluster.settle();
  EXPECT_EQ(collectors(), 2);
  EXPECT_EQ(replicas(), 2);
  EXPECT_EQ(cluster.pods("j").size(), 4u);
  EXPECT_TRUE(told("Warning EditRefused"));
}

TEST_F(OperatorScaleTest, TheGangOfATemplateFollowsTheNumberToo) {
  create_running(template_job("minReplicas: 2, maxReplicas: 4"), "g");
  cluster.edit_job("g", "{spec: {replicas: 3}}");
  cluster.settle();
  EXPECT_EQ(cluster.pod_names("g"), (Names{"g-1-0", "g-1-1", "g-1-2"}));
  EXPECT_EQ(cluster.status("g", "replicas"), 3);
}

}  // namespace
}  // namespace divisi::dijob::testing
