#include "dijob/roster.h"

#include "dijob/job_testing.h"

#include <gmock/gmock.h>

namespace divisi::dijob {
namespace {

using ::testing::ElementsAre;

Pod pod_at(std::string task, int index, int rank) {
  Pod pod;
  pod.has_slot = true;
  pod.slot = {std::move(task), index, rank};
  return pod;
}

std::vector<Pod> pods_at(const Roster& roster) {
  std::vector<Pod> pods;
  for (const Slot& slot : roster.slots) pods.push_back(pod_at(slot.task, slot.index, slot.rank));
  return pods;
}

std::vector<int> ranks(const Roster& roster) {
  std::vector<int> all;
  for (const Slot& slot : roster.slots) all.push_back(slot.rank);
  return all;
}

// DI_NODES must have an entry for every rank.
void expect_no_hole(const Roster& roster) {
  for (std::size_t i = 0; i < roster.all.size(); ++i) {
    EXPECT_EQ(roster.all[i].rank, static_cast<int>(i));
  }
}

TEST(RosterTest, OD02_RanksFollowTheTasksAndStayWhenPodsAreGone) {
  const Job job = job_of(three_tasks(1, 1, 2));
  const Roster first = make_roster(job, nullptr, {});
  EXPECT_THAT(ranks(first), ElementsAre(0, 1, 2, 3));
  const Roster again = make_roster(job, &first.record, {pod_at("collector", 1, 3)});
  EXPECT_EQ(again.slots, first.slots);
  EXPECT_EQ(again.record, first.record);
}

TEST(RosterTest, O056_NewReplicasTakeTheNextRanksInTaskOrder) {
  const Roster before = make_roster(job_of(three_tasks(1, 1, 2)), nullptr, {});
  const Roster after = make_roster(job_of(three_tasks(2, 2, 3)), &before.record, pods_at(before));
  EXPECT_THAT(ranks(after), ElementsAre(0, 4, 1, 5, 2, 3, 6));
  expect_no_hole(after);
}

TEST(RosterTest, AReplicaThatComesBackGetsItsRankAgainAndTheListHasNoHole) {
  const Roster four = make_roster(job_of(three_tasks(2, 1, 1)), nullptr, {});
  const Roster three = make_roster(job_of(three_tasks(1, 1, 1)), &four.record, pods_at(four));
  EXPECT_THAT(ranks(three), ElementsAre(0, 2, 3));
  expect_no_hole(three);
  const Roster back = make_roster(job_of(three_tasks(2, 1, 1)), &three.record, {});
  EXPECT_EQ(back.slots, four.slots);
}

TEST(RosterTest, AnotherReplicaTakesOverARankThatNobodyUses) {
  const Roster four = make_roster(job_of(three_tasks(2, 1, 1)), nullptr, {});
  const Roster three = make_roster(job_of(three_tasks(1, 1, 1)), &four.record, {});
  const Roster more = make_roster(job_of(three_tasks(1, 1, 2)), &three.record, {});
  EXPECT_THAT(ranks(more), ElementsAre(0, 2, 3, 1));
  expect_no_hole(more);
  const Roster learner_back = make_roster(job_of(three_tasks(2, 1, 2)), &more.record, {});
  EXPECT_THAT(ranks(learner_back), ElementsAre(0, 4, 2, 3, 1));
  expect_no_hole(learner_back);
}

TEST(RosterTest, ARankWhosePodStillLeavesIsNotGivenAway) {
  const Roster four = make_roster(job_of(three_tasks(2, 1, 1)), nullptr, {});
  const Roster more = make_roster(job_of(three_tasks(1, 1, 2)), &four.record, pods_at(four));
  EXPECT_THAT(ranks(more), ElementsAre(0, 2, 3, 4));
  expect_no_hole(more);
}

TEST(RosterTest, WhatIsAboveAllRanksInUseIsForgotten) {
  const Roster big = make_roster(job_of(three_tasks(1, 1, 16)), nullptr, {});
  const Roster small = make_roster(job_of(three_tasks(1, 1, 2)), &big.record, {});
  EXPECT_EQ(small.all.size(), 4u);
  EXPECT_EQ(small.record, make_roster(job_of(three_tasks(1, 1, 2)), nullptr, {}).record);
}

TEST(RosterTest, RanksOfPodsThatAnotherOperatorMadeAreKeptWhereTheyCanBeRight) {
  const Job job = job_of(three_tasks(1, 1, 2));
  const Roster adopted =
      make_roster(job, nullptr,
                  {pod_at("learner", 0, 3), pod_at("collector", 0, 0), pod_at("collector", 1, 9)});
  EXPECT_THAT(ranks(adopted), ElementsAre(3, 1, 0, 2));
  expect_no_hole(adopted);
}

TEST(RosterTest, WithoutARecordOurOwnPodsKeepTheirRanksThoughTheJobWasEdited) {
  std::vector<Pod> pods{pod_at("learner", 1, 1), pod_at("evaluator", 0, 3),
                        pod_at("collector", 1, 5)};
  for (Pod& pod : pods) pod.made_of = "0";
  const Roster kept = make_roster(job_of(three_tasks(1, 1, 2)), nullptr, pods);
  EXPECT_THAT(ranks(kept), ElementsAre(0, 3, 2, 5));
  EXPECT_EQ(kept.all.size(), 6u);
  expect_no_hole(kept);
  const Roster again = make_roster(job_of(three_tasks(1, 1, 2)), &kept.record, pods);
  EXPECT_EQ(again.slots, kept.slots);
  EXPECT_EQ(again.record, kept.record);
  for (const int learners : {1, 2, 3, 7}) {
    expect_no_hole(make_roster(job_of(three_tasks(learners, 1, 1)), nullptr, pods));
  }
}

TEST(RosterTest, ARecordThatIsNoneIsNotBelieved) {
  const Job job = job_of(three_tasks(1, 1, 2));
  for (const char* const text :
       {"[]", "{}", "[{task: learner, ranks: [-7]}]", "[{task: learner, ranks: [x, 0, 0]}]",
        "[{task: collector, ranks: [99999999999, 1]}]"}) {
    const json::Value record = yaml(text);
    const Roster made = make_roster(job, &record, {});
    EXPECT_EQ(made.slots.size(), 4u) << text;
    expect_no_hole(made);
  }
}

TEST(RosterTest, ATaskThatIsAddedOrRemovedIsAResize) {
  const Roster three = make_roster(job_of(three_tasks(1, 1, 1)), nullptr, {});
  Job job = job_of(three_tasks(1, 1, 1));
  job.tasks.erase(job.tasks.begin() + 1);
  EXPECT_TRUE(refuse_edits(job, &three.record).empty());
  const Roster two = make_roster(job, &three.record, pods_at(three));
  EXPECT_THAT(ranks(two), ElementsAre(0, 2));
  expect_no_hole(two);
}

TEST(RosterTest, TheNameAndTheTypeOfATaskStay) {
  const Roster record = make_roster(job_of(three_tasks(1, 1, 2)), nullptr, {});
  Job job = job_of(three_tasks(1, 1, 2));
  job.tasks[2].name = "actor";
  job.tasks[0].type = "none";
  EXPECT_THAT(refuse_edits(job, &record.record),
              ElementsAre("task collector keeps its name, actor is not applied",
                          "task learner keeps its type learner, none is not applied"));
  EXPECT_EQ(job.tasks[2].name, "collector");
  EXPECT_EQ(job.tasks[0].type, "learner");
}

}  // namespace
}  // namespace divisi::dijob
