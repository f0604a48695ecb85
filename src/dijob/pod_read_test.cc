#include "dijob/job_testing.h"
#include "dijob/pod.h"
#include "kube/time.h"

namespace divisi::dijob {
namespace {

json::Value pod_with(std::string_view name, std::string_view more) {
  json::Value pod = yaml(more);
  pod["metadata"]["name"] = name;
  pod["metadata"]["namespace"] = "rl";
  return pod;
}

TEST(BelongsTo, ByTheUidOfTheControllerAlone) {
  const Job job = job_of(three_tasks(1, 1, 1));
  EXPECT_TRUE(belongs_to(pods_of(job)[0], job));
  Job later = job;
  later.uid = "another";
  EXPECT_FALSE(belongs_to(pods_of(job)[0], later)) << "left by a deleted job of the same name";

  const std::string labels =
      "metadata: {labels: {diengine/job: job, diengine/operator: di-operator}}";
  EXPECT_FALSE(belongs_to(pod_with("x", labels), job));
  EXPECT_TRUE(is_orphan_of(pod_with("x", labels), job));
  EXPECT_FALSE(is_orphan_of(pods_of(job)[0], later)) << "somebody else's";
  Job elsewhere = job;
  elsewhere.space = "other";
  EXPECT_FALSE(is_orphan_of(pod_with("x", labels), elsewhere));
  EXPECT_FALSE(is_orphan_of(pod_with("x", "metadata: {labels: {diengine/job: job}}"), job));
  EXPECT_FALSE(belongs_to(json::Value(), job));
}

TEST(ReadPod, ReadsBackWhatMakePodWrote) {
  const Job job = job_of(three_tasks(1, 1, 2));
  const Pod pod = read_pod(pods_of(job).at(3), job);
  EXPECT_EQ(pod.name, "job-collector-1");
  EXPECT_TRUE(pod.has_slot);
  EXPECT_EQ(pod.slot, (Slot{"collector", 1, 3}));
  EXPECT_EQ(pod.replicas, 4);
  EXPECT_EQ(pod.made_of, template_hash(job, job.tasks[2]));
  EXPECT_EQ(pod.phase, "Pending");
  EXPECT_FALSE(pod.ready || pod.scheduled || pod.terminating || pod.exit_code);
  EXPECT_EQ(pod.port, 22270);
}

TEST(ReadPod, AdoptsAPodOfTheReferenceByItsName) {
  const Job job = job_of("tasks: [{type: none, name: a-1}, {type: learner}]");
  const Pod old = read_pod(pod_with("job-a-1-2",
                                    "metadata: {labels: {diengine/rank: \"2\"}, "
                                    "annotations: {diengine/task-type: none}}"),
                           job);
  EXPECT_TRUE(old.has_slot);
  EXPECT_EQ(old.slot, (Slot{"a-1", 2, 2}));
  const Pod unknown = read_pod(pod_with("job-learner-0", "{}"), job);
  EXPECT_EQ(unknown.slot, (Slot{"learner", 0, -1}));
  for (const std::string_view name : {"job", "job-", "job-learner", "job-learner-x",
                                      "other-learner-0", "jobs-learner-0", "job--0"}) {
    EXPECT_FALSE(read_pod(pod_with(name, "{}"), job).has_slot) << name;
  }
}

TEST(ReadPod, AWorkerOfATemplateFormHasARankAndAGeneration) {
  const Job job = job_of("{minReplicas: 2, template: {spec: {containers: [{name: a}]}}}");
  const Pod made = read_pod(
      PodMaker(job, {.all = slots_of(job), .replicas = 2, .generation = 3}).make({{"", 1, 1}}),
      job);
  EXPECT_EQ(made.slot, (Slot{"", 1, 1}));
  EXPECT_EQ(made.generation, 3);
  const Pod bare = read_pod(pod_with("job-3-1", "{}"), job);
  EXPECT_EQ(bare.slot, (Slot{"", 1, 1}));
  EXPECT_EQ(bare.generation, 3);
}

TEST(ReadPod, OD06_AReadyPodIsOneWhoseConditionSaysSoWhateverItsContainersSay) {
  const Job job = job_of(three_tasks(1, 1, 1));
  const auto read = [&](std::string_view status) {
    return read_pod(pod_with("job-learner-0", fmt::format("status: {{{}}}", status)), job);
  };
  const std::string_view two =
      "containerStatuses: [{name: a, ready: true}, {name: b, ready: true}]";
  EXPECT_TRUE(
      read(fmt::format("phase: Running, conditions: [{{type: Ready, status: 'True'}}, {{type: "
                       "PodScheduled, status: 'True'}}], {}",
                       two))
          .ready);
  EXPECT_FALSE(read(two).ready);
  EXPECT_TRUE(read("conditions: [{type: PodScheduled, status: 'True'}]").scheduled);
}

TEST(ReadPod, TheExitCodeIsTheMainContainers) {
  const Job job = job_of(three_tasks(1, 1, 1));
  const Pod pod =
      read_pod(pod_with("job-learner-0",
                        "spec: {containers: [{name: shell}, {name: di-container}], nodeName: n1}\n"
                        "status:\n  phase: Failed\n  reason: Evicted\n  podIP: 10.0.0.1\n"
                        "  startTime: 2026-11-15T10:00:00Z\n  containerStatuses:\n"
                        "  - {name: shell, state: {terminated: {exitCode: 143, finishedAt: "
                        "\"2026-11-15T10:00:09Z\"}}}\n"
                        "  - {name: di-container, state: {terminated: {exitCode: 7, finishedAt: "
                        "\"2026-11-15T10:00:05Z\"}}}\n"),
               job);
  EXPECT_EQ(pod.exit_code, 7);
  EXPECT_TRUE(pod.exit_143);
  EXPECT_TRUE(pod.any_ended);
  EXPECT_EQ(pod.ended, kube::parse_time("2026-11-15T10:00:09Z"));
  EXPECT_EQ(pod.started, kube::parse_time("2026-11-15T10:00:00Z"));
  EXPECT_EQ(pod.reason, "Evicted");
  EXPECT_EQ(pod.node, "n1");
  EXPECT_EQ(pod.ip, "10.0.0.1");
}

TEST(ReadPod, AContainerThatCrashesAgainAndAgainHasEndedAndAnInitContainerHasNot) {
  const Job job = job_of(three_tasks(1, 1, 1));
  const auto any_ended = [&](std::string_view status) {
    return read_pod(pod_with("job-learner-0", status), job).any_ended;
  };
  EXPECT_TRUE(any_ended(
      "status: {containerStatuses: [{name: a, state: {waiting: {reason: CrashLoopBackOff}}}]}"));
  EXPECT_FALSE(any_ended(
      "status: {containerStatuses: [{name: a, state: {waiting: {reason: ContainerCreating}}}], "
      "initContainerStatuses: [{name: i, state: {terminated: {exitCode: 0}}}]}"));
}

TEST(ReadPod, PodWhoseContainersHaveEndedIsNotCleaned) {
  const Job job = job_of(three_tasks(1, 1, 1));
  const auto is_cleaned = [&](std::string_view containers) {
    return read_pod(
               pod_with("job-learner-0",
                        fmt::format("spec: {{containers: [{{name: di-container}}, {{name: b}}]}}\n"
                                    "status: {{phase: Running, containerStatuses: [{}]}}",
                                    containers)),
               job)
        .is_cleaned();
  };
  constexpr std::string_view kMainEnded =
      "{name: di-container, state: {terminated: {exitCode: 0}}}";
  EXPECT_TRUE(is_cleaned("{name: di-container, state: {running: {}}}"));
  EXPECT_FALSE(is_cleaned(kMainEnded)) << "its phase follows in a moment";
  EXPECT_TRUE(is_cleaned(fmt::format("{}, {{name: b, state: {{running: {{}}}}}}", kMainEnded)));
}

TEST(ReadPod, ATerminatingPodSaysWhenItIsKilled) {
  const Job job = job_of(three_tasks(1, 1, 1));
  const Pod pod = read_pod(
      pod_with("job-learner-0", "metadata: {deletionTimestamp: \"2026-11-15T10:00:30Z\"}"), job);
  EXPECT_TRUE(pod.terminating);
}

}  // namespace
}  // namespace divisi::dijob
