#include "dijob/job_status.h"

#include "dijob/draft.h"

#include <gtest/gtest.h>

namespace divisi::dijob {
namespace {

using namespace std::chrono_literals;

json::Value parsed(std::string_view text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value) << text;
  return value ? *std::move(value) : json::Value();
}

json::Value with_status(std::string_view status) {
  json::Value object = parsed(R"({"metadata": {"generation": 3}})");
  object["status"] = parsed(status);
  return object;
}

const WallTime kNow = WallTime(std::chrono::seconds(1'800'000'000));

TEST(JobStatusTest, WhatIsReadIsWrittenAsItWas) {
  constexpr std::string_view kAll = R"({
    "phase": "Running", "form": "tasks", "observedGeneration": 3, "replicas": 4,
    "startTime": "2026-11-15T19:07:46Z", "restarts": 1, "spentRestarts": 1, "reschedules": 0,
    "taskRestarts": {"learner": 2}, "waveTime": "2026-11-15T19:08:46Z",
    "taskStatus": {"learner": {"Running": 1}}, "succeeded": ["j-learner-0"],
    "failures": {"j-learner-0": {"uid": "u", "count": 2, "time": "2026-11-15T19:08:46Z",
                                 "restart": 1, "older": ["t"], "hint": 1}},
    "sizes": {"spec": 2, "task": 2, "size": 2}, "allocation": ["a", null, "b"],
    "replicaStatus": {"Coordinator": {"active": 1}, "Collector": {}},
    "profilings": {"steps": 12}, "unknown": [1, 2]})";
  const json::Value object = with_status(kAll);
  const JobStatus status = read_job_status(object);
  EXPECT_EQ(status.allocation, (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(status.failures.at("j-learner-0").count, 2);
  EXPECT_EQ(status.replica_status.at("Coordinator").active, 1);
  EXPECT_EQ(write_job_status(status, status, *object.find("status")), *object.find("status"));
}

TEST(JobStatusTest, OnlyFieldsThatChangedAreWritten) {
  const json::Value object = with_status(R"({"restarts": "many", "phase": 7, "mine": true})");
  const JobStatus read = read_job_status(object);
  EXPECT_FALSE(read.restarts) << "of another kind: absent";
  JobStatus status = read;
  status.reschedules = 1;
  const json::Value written = write_job_status(status, read, *object.find("status"));
  EXPECT_EQ(written, parsed(R"({"restarts": "many", "phase": 7, "mine": true, "reschedules": 1})"));
}

TEST(JobStatusTest, AbsentFieldsAreTakenAway) {
  const json::Value object =
      with_status(R"({"rolling": "p", "restarts": 1, "failures": {"p": {"uid": "u"}}})");
  const JobStatus read = read_job_status(object);
  JobStatus status = read;
  status.rolling.clear();
  status.restarts.reset();
  status.failures.clear();
  EXPECT_EQ(write_job_status(status, read, *object.find("status")), parsed("{}"));
}

TEST(JobStatusTest, CountsOfRolesLeaveZerosOut) {
  const JobStatus read;
  JobStatus status;
  status.replica_status["Coordinator"] = {.active = 1};
  status.replica_status["Learner"];
  EXPECT_EQ(write_job_status(status, read, json::Value()),
            parsed(R"({"replicaStatus": {"Coordinator": {"active": 1}, "Learner": {}}})"));
}

TEST(DraftTest, InTheSecondGenerationOnePhaseHolds) {
  Draft status(with_status("{}"), kSecondGeneration, kNow);
  status.enter(phases::kPending, "a");
  status.enter(phases::kRunning, "b");
  EXPECT_FALSE(status.holds("Pending"));
  EXPECT_TRUE(status.holds("Running"));
  EXPECT_EQ(status->conditions.back().string_at({"reason"}), "JobRunning");
}

TEST(DraftTest, InTheFirstGenerationOnlyTheEndMakesRunningFalse) {
  Draft status(with_status("{}"), kFirstGeneration, kNow);
  status.enter(phases::kCreated, "a");
  status.enter(phases::kRunning, "b");
  EXPECT_TRUE(status.holds("Created"));
  EXPECT_TRUE(status.holds("Running"));
  const json::Value before = status.value();

  json::Value object;
  object["status"] = before;
  Draft later(object, kFirstGeneration, kNow + 1h);
  later.enter(phases::kFailed, "c");
  EXPECT_TRUE(later.holds("Created"));
  EXPECT_FALSE(later.holds("Running"));
  EXPECT_TRUE(later.holds("Failed"));
  EXPECT_EQ(later->conditions.at(2).string_at({"reason"}), "DIJobFailed");
  EXPECT_NE(later->conditions.at(1).string_at({"lastTransitionTime"}),
            status->conditions.at(1).string_at({"lastTransitionTime"}));
  EXPECT_EQ(later->conditions.at(0), status->conditions.at(0));
}

TEST(DraftTest, TheSamePhaseAgainChangesNothing) {
  Draft status(with_status("{}"), kFirstGeneration, kNow);
  status.enter(phases::kRunning, "first");
  status.enter(phases::kRunning, "second");
  EXPECT_EQ(status->conditions.size(), 1u);
  EXPECT_EQ(status->conditions.front().string_at({"message"}), "first");
}

TEST(DraftTest, CountsOfPodsAreNoChangeToWaitFor) {
  Draft first(with_status(R"({"form": "coordinator", "replicas": 1})"), kFirstGeneration, kNow);
  first->replicas = 5;
  first->replica_status["Collector"].active = 4;
  EXPECT_TRUE(first.differs());
  EXPECT_FALSE(first.differs_in_more_than_counts());
  Draft gang(with_status(R"({"form": "template", "replicas": 1})"), kSecondGeneration, kNow);
  gang->replicas = 5;
  EXPECT_TRUE(gang.differs_in_more_than_counts()) << "a size there";
}

}  // namespace
}  // namespace divisi::dijob
