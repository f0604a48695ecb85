// The life of a first-generation job on a simulated cluster: O001 to O018 as far as they can be
// shown without a real one.
#include "dijob/testing/first_fixture.h"

#include <algorithm>

namespace divisi::dijob::testing {
namespace {

using namespace std::chrono_literals;
using first::Role;

TEST_F(FirstOperatorTest, O001_CoordinatorAndItsServiceAppearAndThePhaseIsCreated) {
  create(first_job());
  EXPECT_EQ(cluster.pod_names("j"), Names{kCoordinator});
  EXPECT_EQ(cluster.services("j"), Names{kCoordinator});
  EXPECT_EQ(cluster.phase("j"), "Created");
  EXPECT_EQ(message("Created"), "DIJob j created");
  EXPECT_EQ(cluster.condition("j", "Created").string_at({"reason"}), "DIJobCreated");
  EXPECT_TRUE(told("Normal DIJobCreated: DIJob j created"));
  EXPECT_TRUE(told("Normal SuccessfulCreate: Create pod: j-coordinator"));
  EXPECT_TRUE(told("Normal SuccessfulCreate: Create service: j-coordinator"));
  const json::Value pod = cluster.pod(kCoordinator);
  EXPECT_EQ(env_of(pod, "KUBERNETES_SERVER_URL"), "di-server.di-system:8080");
  EXPECT_EQ(env_of(pod, "KUBERNETES_COORDINATOR_URL"), "j-coordinator.default:22273");
  EXPECT_EQ(pod.string_at({"spec", "restartPolicy"}), "Never");
}

TEST_F(FirstOperatorTest, O002_RunsWhenTheCoordinatorRuns) {
  create_first();
  EXPECT_EQ(counts("Coordinator"), "1 0 0");
  EXPECT_EQ(message("Running"), "coordinator and aggregator of DIJob j are running");
  EXPECT_EQ(condition("Created"), "True") << "other conditions keep their status";
  EXPECT_FALSE(told("DIJobRunning"));
  EXPECT_EQ(cluster.status("j", "replicas"), 1);
  EXPECT_EQ(cluster.status("j", "readyReplicas"), 1);
  // Roles without a pod are empty objects.
  for (const char* role : {"Collector", "Learner", "Aggregator"}) {
    const json::Value job = cluster.job("j");
    const json::Value* const found = job.find_path({"status", "replicaStatus", role});
    ASSERT_NE(found, nullptr) << role;
    EXPECT_EQ(json::print(*found), "{}");
  }
}

TEST_F(FirstOperatorTest, O003_FailsWhenTheCoordinatorFails) {
  create_first();
  fail(kCoordinator);
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Failed");
  EXPECT_EQ(counts("Coordinator"), "0 0 1");
  EXPECT_EQ(message("Failed"), "DIJob j failed because coordinator failed");
  EXPECT_EQ(condition("Running"), "False");
  EXPECT_EQ(condition("Created"), "True");
  EXPECT_TRUE(told("Warning DIJobFailed: DIJob j failed because coordinator failed"));
}

TEST_F(FirstOperatorTest, O004_SucceedsWhenTheCoordinatorSucceeds) {
  create_first();
  succeed_coordinator();
  EXPECT_EQ(counts("Coordinator"), "0 1 0");
  EXPECT_EQ(message("Succeeded"), "DIJob j succeeded because coordinator succeeded");
  EXPECT_EQ(condition("Running"), "False");
  EXPECT_TRUE(told("Normal DIJobSucceeded: DIJob j succeeded because coordinator succeeded"));
  EXPECT_NE(cluster.job("j").string_at({"status", "completionTimestamp"}), "");
}

TEST_F(FirstOperatorTest, O005_ACoordinatorThatCannotBeCreatedLeavesTheJobCreated) {
  int asked = 0;
  cluster.api.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    if (request.method != "POST" || !request.target.ends_with("/pods")) return std::nullopt;
    ++asked;
    return kube::status_answer(422, "Invalid",
                               "spec.containers[0].resources.limits[nvidia.com/gpu]: "
                               "Invalid value: must be an integer");
  };
  create(first_job());
  cluster.settle(10min);
  EXPECT_EQ(cluster.phase("j"), "Created");
  EXPECT_TRUE(told("Warning FailedCreate: Failed to create pod: j-coordinator error: "));
  EXPECT_EQ(condition("Blocked"), "True");
  EXPECT_NE(message("Blocked").find("must be an integer"), std::string::npos);
  EXPECT_GE(asked, 10);
  EXPECT_LE(asked, 20) << "later and later, at last once a minute";

  cluster.api.intercept = nullptr;
  cluster.settle(2min);
  EXPECT_EQ(cluster.pod_names("j"), Names{kCoordinator});
  EXPECT_EQ(condition("Blocked"), "False");
}

TEST_F(FirstOperatorTest, O006_CountsOfEveryRoleFollowItsPods) {
  create_first();
  add_running(Role::kCollector);
  add_running(Role::kCollector);
  fail(add(Role::kCollector));
  cluster.kubelet.succeed(in_default(add(Role::kLearner)));
  add_running(Role::kAggregator);
  add(Role::kLearner);  // pending: not counted
  cluster.settle();
  EXPECT_EQ(counts("Collector"), "2 0 1");
  EXPECT_EQ(counts("Learner"), "0 1 0");
  EXPECT_EQ(counts("Aggregator"), "1 0 0");
  EXPECT_EQ(cluster.phase("j"), "Running");
  EXPECT_EQ(cluster.status("j", "replicas"), 7);
  EXPECT_EQ(cluster.status("j", "readyReplicas"), 4);
}

TEST_F(FirstOperatorTest, O007_EveryPodHasItsService) {
  create_first();
  add_running(Role::kCollector);
  fail(add(Role::kCollector));
  cluster.kubelet.succeed(in_default(add(Role::kLearner)));
  cluster.settle();
  EXPECT_EQ(cluster.services("j").size(), 1u + 2 + 1);
  EXPECT_TRUE(same_names());
  EXPECT_EQ(ports_of(cluster.services("j").front()), Names{"di-port=22270"});
}

TEST_F(FirstOperatorTest, O008_SuccessMovesActiveToSucceeded) {
  create_first();
  add_running(Role::kCollector);
  cluster.kubelet.succeed(in_default(add(Role::kCollector)));
  fail(add(Role::kCollector));
  add_running(Role::kLearner);
  cluster.settle();
  succeed_coordinator();
  EXPECT_EQ(counts("Collector"), "0 2 1");
  EXPECT_EQ(counts("Learner"), "0 1 0");
  cluster.settle(2min);  // after its pods are gone, too
  EXPECT_EQ(counts("Collector"), "0 2 1");
  EXPECT_EQ(cluster.status("j", "readyReplicas"), 0);
}

TEST_F(FirstOperatorTest, O009_ServicesOfDdpLearnersHaveAPortForEachGpu) {
  create_first();
  const std::string aggregator = add_running(Role::kAggregator);
  const auto ports = [&](bool master, int gpus) {
    first::DdpPlace place{.world_size = gpus, .gpus = gpus, .several = true};
    if (!master) place.master = "some-master";
    const std::string pod = server.add("j", Role::kDdpLearner, place, aggregator);
    cluster.settle();
    return ports_of(pod).size();
  };
  EXPECT_EQ(ports(true, 4), 5u);
  EXPECT_EQ(ports(false, 6), 6u);
  EXPECT_EQ(ports(true, 1), 2u);
  EXPECT_EQ(ports(true, 0), 2u);
  EXPECT_EQ(ports(false, 0), 1u);
}

TEST_F(FirstOperatorTest, O010_ThePolicySaysWhichPodsStay) {
  const std::vector<std::pair<const char*, std::size_t>> cases{
      {"All", 0}, {"ALL", 0}, {"None", 4}, {"Running", 2}};
  for (const auto& [policy, left] : cases) {
    SCOPED_TRACE(policy);
    create_first(first_job(fmt::format("cleanPodPolicy: {}", policy)));
    add_running(Role::kCollector);
    add_running(Role::kLearner);
    fail(add(Role::kCollector));
    cluster.settle();
    succeed_coordinator();
    EXPECT_EQ(cluster.pod_names("j").size(), left);
    EXPECT_EQ(cluster.services("j"), Names{});
    cluster.delete_job("j");
    cluster.settle(1min);
  }
}

TEST_F(FirstOperatorTest, O011_AnEmptyPolicyIsStoredAsRunning) {
  const auto policy = [this] {
    return std::string(cluster.job("j").string_at({"spec", "cleanPodPolicy"}));
  };
  create(first_job("cleanPodPolicy: ''"));
  EXPECT_EQ(policy(), "Running");
  cluster.edit_job("j", "{spec: {cleanPodPolicy: ''}}");
  cluster.settle();
  EXPECT_EQ(policy(), "Running");
  cluster.edit_job("j", "{spec: {cleanPodPolicy: null}}");
  cluster.settle();
  EXPECT_EQ(policy(), "Running");
}

TEST_F(FirstOperatorTest, O012_APolicyThatExistsStays) {
  for (const std::string policy : {"Running", "All", "None"}) {
    const std::string name = policy == "All" ? "all" : policy == "None" ? "none" : "running";
    create(first_job("cleanPodPolicy: " + policy, name));
    EXPECT_EQ(cluster.job(name).string_at({"spec", "cleanPodPolicy"}), policy);
    EXPECT_EQ(cluster.phase(name), "Created");
  }
}

TEST_F(FirstOperatorTest, APolicyThatDoesNotExistFailsTheJob) {
  create(first_job("cleanPodPolicy: hello"));
  EXPECT_EQ(cluster.phase("j"), "Failed");
  EXPECT_EQ(message("Failed"), "Invalid CleanPodPolicy hello, expected in [None, Running, All]");
  EXPECT_EQ(cluster.pod_names("j"), Names{});
}

TEST_F(FirstOperatorTest, O014_AJobWithOnlyACoordinatorRunsToItsEnd) {
  create_first(serial_job());
  succeed_coordinator();
  EXPECT_EQ(cluster.services("j"), Names{});
}

TEST_F(FirstOperatorTest, O015_ADeletedServiceIsCreatedAgain) {
  create_first();
  const std::string aggregator = add_running(Role::kAggregator);
  add_running(Role::kCollector);
  add_running(Role::kLearner);
  server.add("j", Role::kDdpLearner, first::DdpPlace{.world_size = 2, .gpus = 2, .start_rank = 0},
             aggregator);
  cluster.settle();
  const Names all = cluster.services("j");
  ASSERT_EQ(all.size(), 5u);
  for (const std::string& service : all) {
    delete_service(service);
    cluster.settle();
    EXPECT_EQ(cluster.services("j"), all) << service;
  }
  for (const std::string& service : all) delete_service(service);
  cluster.settle();
  EXPECT_EQ(cluster.services("j"), all);
  succeed_coordinator();
}

TEST_F(FirstOperatorTest, O016_ADeletedCoordinatorIsCreatedAgainUnderItsName) {
  create_first();
  const std::string before = cluster.uid(kCoordinator);
  const std::string collector = add_running(Role::kCollector);
  cluster.settle();
  EXPECT_EQ(cluster.job("j").string_at({"status", "coordinatorUid"}), before);
  cluster.delete_pod(kCoordinator);
  cluster.settle();
  const std::string after = cluster.uid(kCoordinator);
  ASSERT_NE(after, "");
  EXPECT_NE(after, before);
  EXPECT_EQ(cluster.job("j").string_at({"status", "coordinatorUid"}), after);
  EXPECT_EQ(cluster.status("j", "restarts"), 1);
  EXPECT_NE(cluster.uid(collector), "") << "its workers are counted by di-server";
  EXPECT_TRUE(same_names());
  cluster.kubelet.run(in_default(kCoordinator));
  cluster.settle();
  succeed_coordinator();
}

TEST_F(FirstOperatorTest, O016_ServicesOfDeletedWorkersGo) {
  create_first();
  const std::string collector = add_running(Role::kCollector);
  cluster.settle();
  cluster.delete_pod(collector);
  cluster.settle();
  EXPECT_EQ(cluster.services("j"), Names{kCoordinator});
  EXPECT_TRUE(told("Normal SuccessfulDelete: Delete service: " + collector));
}

TEST_F(FirstOperatorTest, O017_AKilledWorkerLeavesTheJobRunningAKilledCoordinatorEndsIt) {
  create_first();
  const std::string collector = add_running(Role::kCollector);
  fail(collector, 137);
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Running");
  EXPECT_EQ(counts("Collector"), "0 0 1");
  fail(kCoordinator, 137);
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Failed");
}

TEST_F(FirstOperatorTest, O018_WithTheJobAllPodsAndServicesGo) {
  create_first();
  add_running(Role::kCollector);
  add_running(Role::kLearner);
  cluster.settle();
  cluster.delete_job("j");
  cluster.settle(1min);
  EXPECT_EQ(cluster.pod_names("j"), Names{});
  EXPECT_EQ(cluster.services("j"), Names{});
}

// --- beside the numbered lines ---

TEST_F(FirstOperatorTest, ASidecarDoesNotKeepAFinishedCoordinatorRunning) {
  create_first();
  const json::Value* const before = cluster.api.store.find(kPods, in_default(kCoordinator));
  json::Value pod = *before;
  json::Value ended;
  ended["name"] = "di-container";
  ended["state"]["terminated"]["exitCode"] = 0;
  ended["state"]["terminated"]["reason"] = "Completed";
  json::Value side;
  side["name"] = "shell";
  side["state"]["running"]["startedAt"] = "2026-01-01T00:00:00Z";
  pod["status"]["containerStatuses"] = json::Array{side, ended};
  cluster.api.store.update(kPods, in_default(kCoordinator), std::move(pod));
  cluster.api.changed();
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Succeeded");
  EXPECT_EQ(cluster.pod_names("j"), Names{}) << "only a sidecar ran";
}

TEST_F(FirstOperatorTest, AFinishedJobIsNotRunAgainByTheNextOperator) {
  create_first(first_job("cleanPodPolicy: All"));
  succeed_coordinator();
  const json::Value before = cluster.job("j");
  cluster.crash_all();
  cluster.start_operator();
  cluster.settle(5min);
  EXPECT_EQ(cluster.pod_names("j"), Names{});
  EXPECT_EQ(json::print(*cluster.job("j").find("status")), json::print(*before.find("status")));
}

TEST_F(FirstOperatorTest, ServicesOfAFinishedJobWithoutPodsGo) {
  create_first();
  cluster.crash_all();
  cluster.edit_status("j", "{phase: Succeeded}");
  cluster.api.store.remove(kPods, in_default(kCoordinator));
  cluster.start_operator();
  cluster.settle();
  EXPECT_EQ(cluster.services("j"), Names{});
}

TEST_F(FirstOperatorTest, APodWithoutAnOwnerBecomesTheJobs) {
  create_first();
  const std::string collector = add(Role::kCollector);
  json::Value pod = cluster.pod(collector);
  pod["metadata"].erase("ownerReferences");
  cluster.api.store.update(kPods, in_default(collector), std::move(pod));
  cluster.kubelet.run(in_default(collector));
  cluster.settle();
  EXPECT_EQ(owner_of(cluster.pod(collector)),
            std::string(cluster.job("j").string_at({"metadata", "uid"})));
  EXPECT_EQ(counts("Collector"), "1 0 0");
}

TEST_F(FirstOperatorTest, APodWithoutAnOwnerOfAFinishedJobIsCleanedToo) {
  create_first(first_job("cleanPodPolicy: All"));
  succeed_coordinator();
  const std::string collector = add(Role::kCollector);
  json::Value pod = cluster.pod(collector);
  pod["metadata"].erase("ownerReferences");
  cluster.api.store.update(kPods, in_default(collector), std::move(pod));
  cluster.kubelet.run(in_default(collector));
  cluster.settle();
  EXPECT_EQ(cluster.uid(collector), "");
}

TEST_F(FirstOperatorTest, ARejectedCoordinatorIsReplaced) {
  create(first_job());
  const std::string before = cluster.uid(kCoordinator);
  cluster.kubelet.fail_with_reason(in_default(kCoordinator), "OutOfcpu");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Created");
  EXPECT_NE(cluster.uid(kCoordinator), before);
  EXPECT_NE(cluster.uid(kCoordinator), "");
}

TEST_F(FirstOperatorTest, AnEditedServiceIsRepaired) {
  create_first();
  json::Value service = *cluster.api.store.find(kServices, in_default(kCoordinator));
  service["spec"]["selector"]["pod-name"] = "somebody-else";
  cluster.api.store.update(kServices, in_default(kCoordinator), std::move(service));
  cluster.api.changed();
  cluster.settle();
  const json::Value* const now = cluster.api.store.find(kServices, in_default(kCoordinator));
  ASSERT_NE(now, nullptr);
  EXPECT_EQ(now->string_at({"spec", "selector", "pod-name"}), kCoordinator);
}

TEST_F(FirstOperatorTest, ANameThatIsTakenIsTold) {
  json::Value pod;
  pod["metadata"]["name"] = kCoordinator;
  pod["metadata"]["namespace"] = "default";
  cluster.api.store.create(kPods, in_default(kCoordinator), std::move(pod), "2026-01-01T00:00:00Z");
  create(first_job());
  EXPECT_EQ(cluster.phase("j"), "Created");
  EXPECT_NE(message("Blocked").find("a pod of that name belongs to nobody"), std::string::npos);
}

TEST_F(FirstOperatorTest, AnEditThatCannotRunLeavesTheSpecBeforeItInForce) {
  create_first();
  cluster.edit_job("j", "{spec: {cleanPodPolicy: hello}}");
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Running");
  EXPECT_NE(message("EditRefused").find("Invalid CleanPodPolicy hello"), std::string::npos);
  cluster.edit_job("j", "{spec: {coordinator: null}}");
  cluster.settle();
  cluster.delete_pod(kCoordinator);
  cluster.settle();
  EXPECT_NE(cluster.uid(kCoordinator), "") << "made from the spec that was good";
  cluster.edit_job("j", fmt::format("{{spec: {{cleanPodPolicy: All, coordinator: {{template: "
                                    "{}}}}}}}",
                                    kPodTemplate));
  cluster.settle();
  EXPECT_EQ(condition("EditRefused"), "False");
}

TEST_F(FirstOperatorTest, AJobKeepsItsGeneration) {
  create_running(usual_job());
  cluster.edit_job("j", fmt::format("{{spec: {{tasks: null, replicas: null, coordinator: "
                                    "{{template: {}}}}}}}",
                                    kPodTemplate));
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Running");
  EXPECT_EQ(condition("EditRefused"), "True");
  EXPECT_EQ(cluster.uid(kCoordinator), "");
}

TEST_F(FirstOperatorTest, AMixtureOfGenerationsFails) {
  create(
      fmt::format("{{metadata: {{name: j}}, spec: {{coordinator: {{template: {}}}, tasks: "
                  "[{}]}}}}",
                  kPodTemplate, task("learner", 1)));
  EXPECT_EQ(cluster.phase("j"), "Failed");
  EXPECT_NE(message("Failed").find("both coordinator and tasks"), std::string::npos);
}

TEST_F(FirstOperatorTest, DdpLearnersWithoutTheirAggregatorGoAfterSomeMinutes) {
  create_first();
  const std::string aggregator = add_running(Role::kAggregator);
  const std::string learner =
      server.add("j", Role::kDdpLearner,
                 first::DdpPlace{.world_size = 2, .gpus = 2, .start_rank = 0}, aggregator);
  cluster.kubelet.run(in_default(learner));
  cluster.settle();
  cluster.delete_pod(aggregator);
  cluster.settle();
  // The collector of garbage takes the reference to it away: the job owns the learner as well.
  json::Value pod = cluster.pod(learner);
  std::erase_if(*pod["metadata"].find("ownerReferences")->as_array(),
                [](const json::Value& owner) { return owner.string_at({"kind"}) == "Pod"; });
  cluster.api.store.update(kPods, in_default(learner), std::move(pod));
  cluster.api.changed();
  cluster.settle(1min);
  EXPECT_NE(cluster.uid(learner), "") << "di-server may rebuild the group";
  cluster.settle(3min);
  EXPECT_EQ(cluster.uid(learner), "");
  EXPECT_TRUE(same_names());
}

TEST_F(FirstOperatorTest, ThePriorityClassIsTheCoordinators) {
  create(first_job("priorityClassName: high"));
  EXPECT_EQ(cluster.pod(kCoordinator).string_at({"spec", "priorityClassName"}), "high");
}

TEST_F(FirstOperatorTest, WhoAppliesThePolicyKeepsIt) {
  create(
      fmt::format("{{metadata: {{name: j, managedFields: [{{manager: kubectl, operation: Apply, "
                  "fieldsV1: {{'f:spec': {{'f:cleanPodPolicy': {{}}}}}}}}]}}, spec: "
                  "{{cleanPodPolicy: '', coordinator: {{template: {}}}}}}}",
                  kPodTemplate));
  EXPECT_EQ(cluster.phase("j"), "Created");
  EXPECT_EQ(cluster.job("j").string_at({"spec", "cleanPodPolicy"}), "");
}

TEST_F(FirstOperatorTest, APodThatDoesNotStartShowsInTheStatus) {
  create(first_job());
  json::Value pod = cluster.pod(kCoordinator);
  pod["status"]["conditions"] = json::Array{json::Object{{"type", "PodScheduled"},
                                                         {"status", "False"},
                                                         {"reason", "Unschedulable"},
                                                         {"message", "0/3 nodes are available"}}};
  cluster.api.store.update(kPods, in_default(kCoordinator), std::move(pod));
  cluster.api.changed();
  cluster.settle();
  EXPECT_EQ(message("PodsWaiting"), "pod j-coordinator does not start: 0/3 nodes are available");
  cluster.kubelet.run(in_default(kCoordinator));
  cluster.settle();
  EXPECT_EQ(condition("PodsWaiting"), "False");
}

TEST_F(FirstOperatorTest, ADemandLargerThanTheClusterShowsInTheStatus) {
  create_first();
  const std::string collector = add(Role::kCollector);
  json::Value pod = cluster.pod(collector);
  pod["status"]["conditions"] = json::Array{json::Object{{"type", "PodScheduled"},
                                                         {"status", "False"},
                                                         {"reason", "Unschedulable"},
                                                         {"message", "Insufficient cpu"}}};
  cluster.api.store.update(kPods, in_default(collector), std::move(pod));
  cluster.api.changed();
  cluster.settle();
  EXPECT_EQ(message("PodsWaiting"),
            fmt::format("pod {} does not start: Insufficient cpu", collector));
  EXPECT_EQ(cluster.phase("j"), "Running") << "the coordinator decides what it can do with";
}

TEST_F(FirstOperatorTest, AMisspeltFieldIsTold) {
  create(first_job("cleanPodPolciy: All"));
  EXPECT_TRUE(
      told("Warning JobWarning: spec.cleanPodPolciy is not known and has no effect: is "
           "cleanPodPolicy meant?"));
}

}  // namespace
}  // namespace divisi::dijob::testing
