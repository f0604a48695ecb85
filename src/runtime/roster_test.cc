#include "runtime/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Member member(int rank, std::string ip = "") {
  return {.rank = rank, .host = fmt::format("h{}", rank), .ip = std::move(ip)};
}

std::vector<Member> ranks(std::initializer_list<int> list) {
  std::vector<Member> members;
  for (const int rank : list) members.push_back(member(rank));
  return members;
}

JobLinks mesh_of(int rank, std::vector<std::string> hosts, std::vector<int> ports = {50515}) {
  return {Topology::kMesh, rank, std::move(ports), std::move(hosts)};
}

// "3>": node 3, to be dialled; "3": not from here.
std::vector<std::string> shown(const std::vector<mesh::PeerPlace>& places) {
  std::vector<std::string> texts;
  for (const auto& place : places) {
    texts.push_back(fmt::format("{}{}", place.node, place.dial ? ">" : ""));
  }
  return texts;
}

TEST(RosterTest, AMeshDialsLowerRanksAndExpectsHigherOnes) {
  Roster roster(mesh_of(2, {"h0", "h1", "h2"}));
  const auto change = roster.update(ranks({0, 1, 2, 3}));
  ASSERT_TRUE(change);
  EXPECT_THAT(shown(change->come), ElementsAre("0>", "1>", "3"));
  EXPECT_EQ(change->come[1].address.to_string(), "tcp://h1:50515");
  EXPECT_THAT(change->gone, IsEmpty());
  EXPECT_TRUE(roster.update(ranks({0, 1, 2, 3}))->empty()) << "the same list again";
}

TEST(RosterTest, InAStarOnlyRankZeroCounts) {
  Roster leaf({Topology::kStar, 2, {50515}, {"h0", "h1", "h2"}});
  EXPECT_THAT(shown(leaf.update(ranks({0, 1, 2, 3}))->come), ElementsAre("0>"));
  Roster hub({Topology::kStar, 0, {50515}, {"h0", "h1", "h2"}});
  EXPECT_THAT(shown(hub.update(ranks({0, 1, 2, 3}))->come), ElementsAre("1", "2", "3"));
}

TEST(RosterTest, EveryWorkerOfARankHasItsOwnIdAndPort) {
  Roster roster(mesh_of(1, {"h0", "h1"}, {50515, 50517}));
  const auto change = roster.update(ranks({0, 1, 3}));
  EXPECT_THAT(shown(change->come), ElementsAre("0>", "1>", "6", "7"));
  EXPECT_EQ(change->come[1].address.to_string(), "tcp://h0:50517");
  EXPECT_EQ(change->come[3].address.to_string(), "tcp://h3:50517");
}

TEST(RosterTest, WhoIsNoLongerListedIsGoneAndMayComeBackElsewhere) {
  Roster roster(mesh_of(2, {"h0", "h1", "h2"}));
  roster.update({member(0, "10.0.0.1"), member(1, "10.0.0.2"), member(2)});
  EXPECT_THAT(shown(roster.update({member(1, "10.0.0.2"), member(2)})->gone), ElementsAre("0>"));
  const auto back = roster.update({member(0, "10.0.0.9"), member(1, "10.0.0.2"), member(2)});
  EXPECT_THAT(shown(back->come), ElementsAre("0>"));
  EXPECT_EQ(back->come[0].at->to_string(), "tcp://10.0.0.9:50515");
  const auto moved = roster.update({member(0, "10.0.0.9"), member(1, "fd00::7"), member(2)});
  EXPECT_THAT(shown(moved->come), ElementsAre("1>"));
  EXPECT_EQ(moved->come[0].at->to_string(), "tcp://[fd00::7]:50515");
}

TEST(RosterTest, AListWithoutOurselvesChangesNothing) {
  Roster roster(mesh_of(2, {"h0", "h1", "h2"}));
  roster.update(ranks({0, 1, 2}));
  EXPECT_FALSE(roster.update(ranks({})));
  EXPECT_FALSE(roster.update(ranks({0})));
  EXPECT_TRUE(roster.update(ranks({0, 1, 2}))->empty());
}

TEST(RosterTest, RanksThatWereNeverListedAreGivenUpOnDemand) {
  Roster roster(mesh_of(1, {"h0", "h1", "h2", "h3"}));
  roster.update(ranks({1, 2}));
  ASSERT_TRUE(roster.has_absent());
  EXPECT_THAT(shown(roster.give_up_absent()), ElementsAre("0>", "3"));
  EXPECT_FALSE(roster.has_absent());
  EXPECT_THAT(shown(roster.update(ranks({0, 1, 2}))->come), ElementsAre("0>")) << "late is fine";
}

TEST(RosterTest, OneThatDiNodesNamesIsDialledByThatName) {
  Roster roster(mesh_of(1, {"short-name", "h1"}));
  EXPECT_EQ(roster.update(ranks({0, 1}))->come[0].address.to_string(), "tcp://short-name:50515");
}

TEST(MembersTest, AListIsReadWithWhatItNeeds) {
  const auto members = parse_members(
      R"({"members":[{"rank":3,"task":"collector","index":1,"pod":"j-collector-1",)"
      R"("host":"j-collector-1.di-j.ns.svc.cluster.local","ip":"10.1.2.3","port":22270,)"
      R"("ready":true},{"rank":4,"host":"x"}]})");
  ASSERT_TRUE(members) << members.error().message();
  EXPECT_THAT(*members,
              ElementsAre(Member{3, "j-collector-1", "j-collector-1.di-j.ns.svc.cluster.local",
                                 "10.1.2.3", true},
                          Member{4, "", "x", "", false}));
}

TEST(MembersTest, WhatIsWrongIsNamed) {
  const auto error = [](std::string_view text) {
    const auto members = parse_members(text);
    return members ? "understood" : members.error().message();
  };
  EXPECT_THAT(error("{"), HasSubstr("line 1"));
  EXPECT_THAT(error("[]"), HasSubstr("no list 'members'"));
  EXPECT_THAT(error(R"({"members":[{"host":"x"}]})"), HasSubstr("members[0]: no rank"));
  EXPECT_THAT(error(R"({"members":[{"rank":-1,"host":"x"}]})"), HasSubstr("no rank"));
  EXPECT_THAT(error(R"({"members":[{"rank":0,"host":"x"},{"rank":1,"host":""}]})"),
              HasSubstr("members[1]: 'host'"));
  EXPECT_THAT(error(R"({"members":[{"rank":0,"host":"x","ip":"a/b"}]})"), HasSubstr("'ip'"));
}

}  // namespace
}  // namespace divisi::runtime
