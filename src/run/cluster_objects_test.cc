#include "run/cluster_objects.h"

#include "json/yaml.h"
#include "run/pod_logs.h"

#include <gmock/gmock.h>

namespace divisi::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json::Value object(const std::string& yaml) {
  auto documents = json::parse_yaml(yaml);
  EXPECT_TRUE(documents) << yaml;
  return documents->front();
}

json::Value pod(int rank, const std::string& state, const std::string& more = "") {
  return object(
      "metadata: {name: t-worker-" + std::to_string(rank) + ", annotations: {diengine/rank: '" +
      std::to_string(rank) +
      "'}}\n"
      "spec: {nodeName: n, containers: [{name: sidecar}, {name: di-container}]}\n"
      "status:\n  phase: Running\n" +
      more +
      "  containerStatuses: [{name: sidecar, state: {running: {}}}, {name: di-container, state: " +
      state + "}]\n");
}

json::Value dijob(const std::string& phase, const std::string& message = "") {
  return object("metadata: {name: t}\nstatus: {phase: " + phase + ", conditions: [{type: " + phase +
                ", status: 'True', message: '" + message + "'}]}\n");
}

JobRecord judged(BackendKind kind, const std::vector<json::Value>& owners,
                 const std::vector<json::Value>& pods) {
  JobRecord record;
  judge_job(kind, owners, pods, record);
  return record;
}

TEST(ClusterObjectsTest, TheRankIsThatOfTheOperatorOrTheIndexBehindTheFirstRank) {
  EXPECT_EQ(rank_of_pod(pod(4, "{running: {}}")), 4);
  EXPECT_EQ(rank_of_pod(object("metadata: {annotations: {divisi.opendilab.org/first-rank: '2', "
                               "batch.kubernetes.io/job-completion-index: '3'}}")),
            5);
  EXPECT_EQ(rank_of_pod(object("metadata: {name: other}")), std::nullopt);
}

TEST(ClusterObjectsTest, ADijobThatFailedHasTheCodeOfTheFirstFailure) {
  const auto record =
      judged(BackendKind::kDijob, {dijob("Failed", "job failed since pods failed")},
             {pod(0, "{terminated: {exitCode: 143, finishedAt: '2026-01-01T00:00:09Z'}}"),
              pod(1, "{terminated: {exitCode: 3, finishedAt: '2026-01-01T00:00:05Z'}}"),
              pod(2, "{running: {}}")});
  EXPECT_EQ(record.state, JobState::kFailed);
  EXPECT_EQ(record.exit_code, 3);
  EXPECT_EQ(record.reason, "worker 1 (pod t-worker-1) ended with exit code 3");
  EXPECT_EQ(record.workers[2].state, JobState::kStopped);
}

TEST(ClusterObjectsTest, ASignalAndTooMuchMemoryAreSaid) {
  const auto killed = judged(BackendKind::kDijob, {dijob("Failed")},
                             {pod(0, "{terminated: {exitCode: 137, reason: Error}}")});
  EXPECT_EQ(killed.exit_code, 137);
  EXPECT_THAT(killed.reason, HasSubstr("SIGKILL"));
  const auto memory = judged(BackendKind::kDijob, {dijob("Failed")},
                             {pod(0, "{terminated: {exitCode: 137, reason: OOMKilled}}")});
  EXPECT_THAT(memory.reason, HasSubstr("more memory than its limit"));
}

TEST(ClusterObjectsTest, ATimeoutIsNoFailureOfAWorker) {
  const auto dijob_record =
      judged(BackendKind::kDijob,
             {dijob("Failed", "job failed since it was active longer than 60 seconds")}, {});
  EXPECT_EQ(dijob_record.exit_code, 124);
  const json::Value job = object(
      "metadata: {name: t-worker}\nstatus: {conditions: [{type: Failed, status: 'True', reason: "
      "DeadlineExceeded}]}");
  EXPECT_EQ(judged(BackendKind::kJob, {job}, {}).exit_code, 124);
}

TEST(ClusterObjectsTest, AJobWithoutWordsOrPodsSaysWhatTheOperatorSays) {
  const auto invalid = judged(BackendKind::kDijob, {dijob("Failed", "there is no task")}, {});
  EXPECT_EQ(invalid.exit_code, 1);
  EXPECT_EQ(invalid.reason, "there is no task");
  const auto deleted = judged(BackendKind::kDijob, {}, {});
  EXPECT_EQ(deleted.state, JobState::kStopped);
}

TEST(ClusterObjectsTest, AFailedJobEndsTheOthersBeforeItHasEnded) {
  const json::Value failed = object(
      "metadata: {name: t-gpu}\nstatus: {conditions: [{type: FailureTarget, status: 'True'}, "
      "{type: Failed, status: 'True', reason: BackoffLimitExceeded}]}");
  json::Value other =
      object("metadata: {name: t-worker}\nspec: {suspend: false}\nstatus: {active: 2}");
  EXPECT_THAT(jobs_to_end({failed, other}), ElementsAre("t-worker"));
  EXPECT_FALSE(has_ended(judged(BackendKind::kJob, {failed, other}, {}).state));
  other["spec"]["suspend"] = true;
  EXPECT_THAT(jobs_to_end({failed, other}), IsEmpty());
  EXPECT_FALSE(has_ended(judged(BackendKind::kJob, {failed, other}, {}).state));
  other["status"]["active"] = 0;
  EXPECT_EQ(judged(BackendKind::kJob, {failed, other}, {}).state, JobState::kFailed);
}

TEST(ClusterObjectsTest, JobsHaveSucceededWhenAllHave) {
  const json::Value complete =
      object("metadata: {name: t-gpu}\nstatus: {conditions: [{type: Complete, status: 'True'}]}");
  const json::Value running = object("metadata: {name: t-worker}\nstatus: {active: 1}");
  EXPECT_EQ(judged(BackendKind::kJob, {complete, running}, {pod(0, "{running: {}}")}).state,
            JobState::kRunning);
  EXPECT_EQ(judged(BackendKind::kJob, {complete}, {}).state, JobState::kSucceeded);
}

TEST(ClusterObjectsTest, AJobIsResizedByItsScaleOrByTheEntryOfATask) {
  const json::Value one = object("spec: {tasks: [{name: worker, type: none}]}");
  const auto only = resize_of(one, 5, "");
  ASSERT_TRUE(only);
  EXPECT_TRUE(only->by_scale);
  EXPECT_EQ(only->patch.int_at({"spec", "replicas"}), 5);
  const json::Value two =
      object("spec: {tasks: [{name: gpu, type: none}, {name: worker, type: none}]}");
  const auto worker = resize_of(two, 2, "");
  ASSERT_TRUE(worker);
  EXPECT_FALSE(worker->by_scale);
  const json::Array& steps = *worker->patch.as_array();
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].string_at({"path"}), "/spec/tasks/1/name");
  EXPECT_EQ(steps[1].string_at({"path"}), "/spec/tasks/1/replicas");
  EXPECT_EQ(steps[1].int_at({"value"}), 2);
  EXPECT_THAT(resize_of(two, 2, "learner").error().message(), HasSubstr("one of gpu, worker"));
}

TEST(ClusterObjectsTest, AWaitingPodSaysWhy) {
  const auto image =
      wait_of_pod(pod(0, "{waiting: {reason: ImagePullBackOff, message: 'no such image'}}"));
  ASSERT_TRUE(image);
  EXPECT_EQ(image->kind, "ImagePull");
  EXPECT_EQ(image->text, "container di-container: ImagePullBackOff: no such image");
  const auto place = wait_of_pod(
      pod(0, "{waiting: {reason: ContainerCreating}}",
          "  conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: "
          "'0/1 nodes are available'}]\n"));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->kind, "Unschedulable");
  EXPECT_FALSE(wait_of_pod(pod(0, "{waiting: {reason: ContainerCreating}}")));
}

TEST(TimedLinesTest, AStreamThatIsOpenedAgainRepeatsNothing) {
  TimedLines lines;
  EXPECT_EQ(lines.resume(), std::nullopt);
  for (const char* const line : {"2026-01-01T00:00:01.5Z old", "2026-01-01T00:00:05.1Z a",
                                 "2026-01-01T00:00:05.1Z a", "2026-01-01T00:00:05.9Z b"}) {
    EXPECT_TRUE(lines.take(line)) << line;
  }
  const auto since = lines.resume();
  ASSERT_TRUE(since);
  // The server cuts it to 00:00:04: from there on everything was seen.
  std::vector<std::string> taken;
  for (const char* const line :
       {"2026-01-01T00:00:05.1Z a", "2026-01-01T00:00:05.1Z a", "2026-01-01T00:00:05.9Z b",
        "2026-01-01T00:00:05.9Z b", "2026-01-01T00:00:06Z "}) {
    if (const auto made = lines.take(line)) taken.push_back(made->text);
  }
  EXPECT_THAT(taken, ElementsAre("b", "")) << "a line that was printed twice comes twice";
}

}  // namespace
}  // namespace divisi::run
