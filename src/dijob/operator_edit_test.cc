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

// The operator fills in names and sizes: what else stands in the tasks stays as it was written.
TEST_F(OperatorEditTest, ABudgetWithoutALimitStaysInTheSpec) {
  create_running(tasks_job({task("learner", 1), task("collector", 1, "backoffLimit: null")},
                           "backoffLimit: 0"));
  cluster.settle(1min);
  const json::Value job = cluster.job("j");
  EXPECT_EQ(job.int_at({"spec", "replicas"}), 1);
  const json::Value& collector = job.find_path({"spec", "tasks"})->as_array()->back();
  EXPECT_EQ(collector.string_at({"name"}), "collector");
  ASSERT_NE(collector.find("backoffLimit"), nullptr);
  EXPECT_TRUE(collector.find("backoffLimit")->is_null());
  fail("j-collector-0");
  cluster.settle(1min);
  EXPECT_NE(cluster.phase("j"), "Failed");
}

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

TEST_F(OperatorEditTest, RestartedAtLeavesPodsAloneThatAreUpToDate) {
  create_one_task();
  cluster.kubelet.automatic = true;
  cluster.edit_job("j", one_task("{spec: {containers: [{name: di-container, image: other}]}}"));
  cluster.delete_pod("j-w-1");
  cluster.settle(1min);
  const std::string newer = cluster.uid("j-w-1");
  const std::string older = cluster.uid("j-w-0");
  cluster.edit_job("j", "{metadata: {annotations: {diengine/restartedAt: now}}}");
  cluster.settle(5min);
  EXPECT_EQ(cluster.uid("j-w-1"), newer);
  EXPECT_NE(cluster.uid("j-w-0"), older);
  EXPECT_EQ(image_of("j-w-0"), "other");
}

TEST_F(OperatorEditTest, AnEditAfterTheEndIsSeenAndChangesNothingElse) {
  create_running(usual_job("cleanPodPolicy: None"));
  cluster.succeed_all("j");
  cluster.settle();
  ASSERT_EQ(cluster.phase("j"), "Succeeded");
  cluster.edit_job("j", "{spec: {priority: high}}");
  cluster.settle();
  const json::Value job = cluster.job("j");
  EXPECT_EQ(job.int_at({"status", "observedGeneration"}), job.int_at({"metadata", "generation"}));
  EXPECT_EQ(cluster.phase("j"), "Succeeded");
  EXPECT_EQ(cluster.pods("j").size(), 4u);
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

TEST_F(OperatorEditTest, WithABadEditTheSpecBeforeItStaysInForce) {
  // That can be read but not run, that cannot be read, too large, and of another form.
  for (const std::string& edit :
       {std::string("{spec: {priority: wrong}}"), std::string("{spec: {backoffLimit: [3]}}"),
        sized(1, 1, 3000),
        fmt::format("{{spec: {{tasks: null, minReplicas: 1, template: {}}}}}", kPodTemplate)}) {
    SCOPED_TRACE(edit);
    create_running(usual_job());
    cluster.settle(1min);
    cluster.edit_job("j", edit);
    cluster.settle();
    EXPECT_EQ(cluster.condition("j", "EditRefused").string_at({"status"}), "True");
    const std::string uid = cluster.uid("j-collector-1");
    cluster.delete_pod("j-collector-1");
    fail("j-learner-0");
    cluster.settle(1min);
    EXPECT_NE(cluster.uid("j-collector-1"), uid);
    EXPECT_EQ(cluster.pods("j").size(), 4u);
    EXPECT_EQ(cluster.status("j", "restarts"), 1);
    EXPECT_EQ(rank("j-learner-0"), "0");
    // Whoever leads next knows the same.
    cluster.crash_all();
    cluster.start_operator();
    cluster.run_all("j");
    cluster.settle();
    EXPECT_EQ(cluster.phase("j"), "Running");
    EXPECT_EQ(cluster.status("j", "readyReplicas"), 4);
    cluster.succeed_all("j");
    cluster.settle();
    EXPECT_EQ(cluster.phase("j"), "Succeeded");
    cluster.delete_job("j");
    cluster.settle(1min);
  }
}

TEST_F(OperatorEditTest, OneGoodSpecOfAJobIsKept) {
  create_running(usual_job());
  for (int collectors = 3; collectors < 7; ++collectors) {
    cluster.edit_job("j", sized(1, 1, collectors));
    cluster.settle(1min);
  }
  const auto& saved = cluster.api.store.all("/apis/apps/v1/controllerrevisions");
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(owner_of(saved.begin()->second), cluster.job("j").string_at({"metadata", "uid"}));
  EXPECT_EQ(saved.begin()->second.int_at({"revision"}),
            cluster.job("j").int_at({"metadata", "generation"}));
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

TEST_F(OperatorScaleTest, ASizeThatCannotRunIsPutBackAndTheJobGoesOn) {
  create_running(usual_job());
  for (const int size : {3000, 1'000'000}) {
    SCOPED_TRACE(size);
    cluster.edit_job("j", fmt::format("{{spec: {{replicas: {}}}}}", size));
    cluster.settle();
    EXPECT_EQ(collectors(), 2);
    EXPECT_EQ(replicas(), 2);
    EXPECT_TRUE(told(fmt::format("Warning EditRefused: replicas {} is not applied", size)));
    cluster.delete_pod("j-collector-0");
    cluster.settle();
    EXPECT_EQ(cluster.pods("j").size(), 4u);
  }
}

TEST_F(OperatorScaleTest, ScalingBackFreesAJobWhoseTaskIsTooLarge) {
  create_running(usual_job());
  cluster.edit_job("j", sized(1, 1, 3000));
  cluster.settle();
  EXPECT_NE(message("EditRefused").find("DI_NODES"), std::string::npos);
  cluster.edit_job("j", "{spec: {replicas: 1}}");
  cluster.settle();
  EXPECT_EQ(collectors(), 1);
  EXPECT_EQ(replicas(), 1);
  EXPECT_EQ(cluster.condition("j", "EditRefused").string_at({"status"}), "False");
  EXPECT_EQ(cluster.pods("j").size(), 3u);
}

// --- M10, M11: a spec that a file keeps ---

class OperatorApplyTest : public OperatorScaleTest {
 protected:
  static std::string applied(std::string_view how, const std::string& collector) {
    const std::string metadata =
        how == "client" ? "annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}'}"
                        : "managedFields: [{manager: kubectl, operation: Apply, fieldsV1: "
                          "{'f:spec': {'f:tasks': {}}}}]";
    return fmt::format(
        "{{metadata: {{name: j, {}}}, spec: {{tasks: [{{type: learner, template: "
        "{}}}, {{type: evaluator, template: {}}}, {{type: collector{}, template: "
        "{}}}]}}}}",
        metadata, kPodTemplate, kPodTemplate, collector, kPodTemplate);
  }
  // As kubectl does it: the whole list of tasks, and nothing that it does not know.
  void apply(const std::string& collector) {
    cluster.edit_job("j", fmt::format("{{spec: {{tasks: [{{type: learner, template: {}}}, {{type: "
                                      "evaluator, template: {}}}, {{type: collector{}, template: "
                                      "{}}}]}}}}",
                                      kPodTemplate, kPodTemplate, collector, kPodTemplate));
    cluster.settle();
  }
};

TEST_F(OperatorApplyTest, NothingIsWrittenIntoItAndASecondApplyChangesNothing) {
  for (const char* const how : {"client", "server"}) {
    for (const char* const collector : {"", ", replicas: 2"}) {
      SCOPED_TRACE(fmt::format("{}{}", how, collector));
      create(applied(how, collector));
      cluster.run_all("j");
      cluster.settle();
      ASSERT_EQ(cluster.phase("j"), "Running");
      EXPECT_EQ(cluster.job("j").int_at({"metadata", "generation"}), 1) << "not even the names";
      cluster.edit_job("j", "{spec: {replicas: 3}}");  // kubectl scale
      cluster.settle();
      EXPECT_EQ(cluster.pods("j").size(), 5u);
      EXPECT_EQ(cluster.status("j", "scaledReplicas"), 3);
      EXPECT_EQ(cluster.job("j").int_at({"metadata", "generation"}), 2);
      apply(collector);
      EXPECT_EQ(cluster.job("j").int_at({"metadata", "generation"}), 2);
      EXPECT_EQ(cluster.pods("j").size(), 5u) << "what was scaled stays";
      apply(", replicas: 4");
      EXPECT_EQ(cluster.pods("j").size(), 6u) << "a new number in the file is a wish";
      cluster.edit_job("j", "{spec: {replicas: 5000}}");
      cluster.settle();
      EXPECT_EQ(cluster.pods("j").size(), 6u);
      EXPECT_EQ(cluster.condition("j", "EditRefused").string_at({"status"}), "True");
      cluster.edit_job("j", "{spec: {replicas: 1}}");
      cluster.settle();
      EXPECT_EQ(cluster.pods("j").size(), 3u);
      EXPECT_EQ(cluster.condition("j", "EditRefused").string_at({"status"}), "False");
      cluster.delete_job("j");
      cluster.settle(1min);
    }
  }
}

TEST_F(OperatorApplyTest, ANumberThatIsNotWrittenIsNeverFilledIn) {
  create_running(tasks_job({task("learner", 1), task("evaluator", 1),
                            fmt::format("{{type: collector, template: {}}}", kPodTemplate)}));
  EXPECT_EQ(replicas(), 1);
  cluster.edit_job("j", "{spec: {replicas: 3}}");
  cluster.settle();
  EXPECT_EQ(collectors(), -1);
  EXPECT_EQ(cluster.pods("j").size(), 5u);
}

TEST_F(OperatorScaleTest, WhatScaleSelectsAreThePodsItCounts) {
  create_running(usual_job());
  EXPECT_EQ(cluster.job("j").string_at({"status", "selector"}),
            "diengine/job=j,diengine/operator=di-operator,diengine/task-name=collector");
  EXPECT_EQ(cluster.status("j", "scaledReplicas"), 2);
}

TEST_F(OperatorScaleTest, TheGangOfATemplateFollowsTheNumberToo) {
  create_running(template_job("minReplicas: 2, maxReplicas: 4"), "g");
  cluster.edit_job("g", "{spec: {replicas: 3}}");
  cluster.settle();
  EXPECT_EQ(cluster.pod_names("g"), (Names{"g-1-0", "g-1-1", "g-1-2"}));
  EXPECT_EQ(cluster.status("g", "replicas"), 3);
}

TEST_F(OperatorTest, AMisspeltFieldIsTold) {
  create(tasks_job({task("learner", 1, "replica: 2")},
                   "backofLimit: 1, cleanpodPolicy: All, mine: 3"));
  EXPECT_TRUE(
      told("Warning JobWarning: spec.backofLimit is not known and has no effect: is "
           "backoffLimit meant?"));
  EXPECT_TRUE(told("spec.cleanpodPolicy is not known"));
  EXPECT_TRUE(told("spec.tasks[0].replica is not known and has no effect: is replicas meant?"));
  EXPECT_FALSE(told("spec.mine")) << "what looks like no field is somebody else's";
}

TEST_F(OperatorTest, AnEditedSelectorOfTheServiceIsRepaired) {
  create_running(usual_job());
  json::Value service = *cluster.api.store.find(kServices, in_default("di-j"));
  const json::Value before = service["spec"]["selector"];
  service["spec"]["selector"] = json::Object{{"app", "other"}};
  cluster.api.store.update(kServices, in_default("di-j"), std::move(service));
  cluster.api.changed();
  cluster.settle();
  EXPECT_EQ(
      json::print(
          *cluster.api.store.find(kServices, in_default("di-j"))->find_path({"spec", "selector"})),
      json::print(before));
  EXPECT_TRUE(told("Warning ServiceRepaired"));
}

class WaitingPodsTest : public OperatorTest {
 protected:
  void set_status(const std::string& pod, const std::string& key, const json::Value& value) {
    json::Value object = cluster.pod(pod);
    object["status"][key] = value;
    cluster.api.store.update(kPods, in_default(pod), std::move(object));
    cluster.api.changed();
    cluster.settle();
  }
  static json::Value unschedulable(const std::string& message) {
    return json::Array{json::Object{{"type", "PodScheduled"},
                                    {"status", "False"},
                                    {"reason", "Unschedulable"},
                                    {"message", message}}};
  }
};

TEST_F(WaitingPodsTest, PodsThatNoNodeHasRoomForShowInTheStatus) {
  create(usual_job());
  set_status("j-learner-0", "conditions", unschedulable("0/3 nodes are available"));
  EXPECT_EQ(cluster.condition("j", "PodsWaiting").string_at({"reason"}), "Unschedulable");
  EXPECT_EQ(message("PodsWaiting"), "pod j-learner-0 does not start: 0/3 nodes are available");
  set_status("j-learner-0", "conditions", unschedulable("0/4 nodes are available"));
  EXPECT_EQ(message("PodsWaiting"), "pod j-learner-0 does not start: 0/3 nodes are available")
      << "the words of a scheduler change all the time";
  set_status("j-learner-0", "conditions", json::Array{});
  cluster.run_all("j");
  cluster.settle();
  EXPECT_EQ(cluster.condition("j", "PodsWaiting").string_at({"status"}), "False");
}

TEST_F(WaitingPodsTest, AnImageThatCannotBePulledShowsInTheStatus) {
  create(usual_job());
  json::Value container = json::Object{{"name", "di-container"}};
  container["state"]["waiting"]["reason"] = "ImagePullBackOff";
  container["state"]["waiting"]["message"] = "Back-off pulling image \"nothing\"";
  set_status("j-collector-1", "containerStatuses", json::Array{container});
  EXPECT_EQ(cluster.condition("j", "PodsWaiting").string_at({"reason"}), "ImagePull");
  EXPECT_EQ(message("PodsWaiting"),
            "pod j-collector-1 does not start: container di-container: ImagePullBackOff: Back-off "
            "pulling image \"nothing\"");
}

}  // namespace
}  // namespace divisi::dijob::testing
