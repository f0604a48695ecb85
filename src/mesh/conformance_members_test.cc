// A job that changes its size, on every medium: who is dialled, who is forgotten, who is waited
// for.
#include "mesh/testing/bad_wire.h"
#include "mesh/testing/medium.h"
#include "mesh/testing/raw_socket.h"
#include "mesh/testing/test_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::mesh::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::Not;
using ::testing::Pair;

class MembersConformance : public ::testing::TestWithParam<Medium> {
 protected:
  std::string fresh() { return GetParam().fresh_address(); }

  static PeerPlace place(int node, const std::string& address, bool dial = true) {
    return {node, *io::Address::parse(address), std::nullopt, dial};
  }
  static void welcome(TestNode& who, const PeerPlace& place) {
    who.on_loop([&] { who->welcome(place); });
  }
  static void dismiss(TestNode& who, const PeerPlace& place) {
    who.on_loop([&] { who->dismiss(place); });
  }
  // Node 1, which dialled a node 0 that has said goodbye, and where that one listened.
  std::pair<std::unique_ptr<TestNode>, std::string> left_by_node_zero(bool is_listed) {
    TestNode first(0, fresh(), {});
    const std::string bound = first->address();
    auto survivor = std::make_unique<TestNode>(1, fresh(), std::vector{bound});
    link(first, *survivor);
    if (is_listed) welcome(*survivor, place(0, bound));
    first.close(1s);
    EXPECT_TRUE(survivor->hears(PeerChange::kLeft, 0));
    return {std::move(survivor), bound};
  }
  // A name that leads nowhere.
  static std::string nowhere() { return "tcp://nowhere.invalid:50515"; }
};
INSTANTIATE_TEST_SUITE_P(Media, MembersConformance, ::testing::ValuesIn(all_media()),
                         [](const auto& item) { return std::string(item.param.name); });

TEST_P(MembersConformance, ANewcomerIsDialledAndTold) {
  TestNode survivor(5, fresh(), {});
  TestNode newcomer(3, fresh(), {});
  welcome(survivor, place(3, newcomer->address()));
  EXPECT_TRUE(survivor.hears(PeerChange::kJoined, 3));
  EXPECT_TRUE(newcomer.hears(PeerChange::kJoined, 5));
  welcome(survivor, place(3, newcomer->address()));  // said twice is said once
  EXPECT_EQ(survivor->peers().size(), 1u);
}

TEST_P(MembersConformance, ANewcomerIsFoundWhereItIsWhenItsNameIsNotKnownYet) {
  TestNode survivor(5, fresh(), {});
  TestNode newcomer(3, fresh(), {});
  PeerPlace by_name = place(3, nowhere());
  by_name.at = *io::Address::parse(newcomer->address());
  welcome(survivor, by_name);
  EXPECT_TRUE(survivor.hears(PeerChange::kJoined, 3));
}

TEST_P(MembersConformance, ANewcomerThatMovedIsFoundByItsName) {
  TestNode survivor(5, fresh(), {});
  TestNode newcomer(3, fresh(), {});
  const Reserved former(fresh());
  PeerPlace moved = place(3, newcomer->address());
  moved.at = *io::Address::parse(former.address());
  welcome(survivor, moved);
  EXPECT_TRUE(survivor.hears(PeerChange::kJoined, 3));
}

TEST_P(MembersConformance, ALostPeerThatIsDismissedHasLeftAndIsNotListed) {
  NodeOptions options;
  options.lost_after = 300ms;
  TestNode survivor(0, fresh(), {}, options);
  TestNode gone(1, fresh(), {survivor->address()});
  link(survivor, gone);
  gone.kill();
  ASSERT_TRUE(survivor.hears(PeerChange::kLost, 1));
  dismiss(survivor, place(1, nowhere(), false));
  EXPECT_TRUE(survivor.hears(PeerChange::kLeft, 1));
  EXPECT_TRUE(survivor->peers().empty());
  EXPECT_TRUE(survivor->stats().peers.empty());
}

TEST_P(MembersConformance, ADismissedPeerMayFinishWhatItSaysAndThenLeavesWithoutBeingLost) {
  Inbox<int> heard;
  TestNode survivor(0, fresh(), {});
  survivor.on("n", [&](int n) { heard.add(n); });
  TestNode leaving(1, fresh(), {survivor->address()});
  link(survivor, leaving);
  dismiss(survivor, place(1, nowhere(), false));
  EXPECT_TRUE(leaving.emit("n", 7).ok());
  ASSERT_TRUE(heard.reaches(1));
  EXPECT_EQ(survivor->peers().size(), 1u);
  leaving.kill();
  EXPECT_TRUE(survivor.hears(PeerChange::kLeft, 1));
  EXPECT_TRUE(survivor->peers().empty());
  EXPECT_THAT(survivor.changes().values(), Not(Contains(Pair(PeerChange::kLost, 1))));
}

TEST_P(MembersConformance, APeerThatLeftAndIsWelcomeAgainIsDialledAgain) {
  const auto [survivor, bound] = left_by_node_zero(false);  // so nobody would dial it again
  TestNode second(0, bound, {});
  welcome(*survivor, place(0, bound));
  EXPECT_TRUE(second.hears(PeerChange::kJoined, 1));
  EXPECT_TRUE(eventually([&] { return survivor->linked_with(0); }));
}

TEST_P(MembersConformance, APeerThatLeftAndIsStillListedIsDialledUntilItsSuccessorIsThere) {
  const auto [survivor, bound] = left_by_node_zero(true);
  TestNode second(0, bound, {});  // nobody says a word about it
  EXPECT_TRUE(second.hears(PeerChange::kJoined, 1));
}

// What the two have exchanged before decides what the greeting says of it.
TEST_P(MembersConformance, AProcessThatLivesAndIsWelcomeAgainIsLinkedAnew) {
  for (const bool from_survivor : {false, true}) {
    for (const bool from_dismissed : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", from_survivor, from_dismissed));
      TestNode dismissed(1, fresh(), {});
      BadWire wire(dismissed->address());
      TestNode survivor(0, fresh(), {});
      welcome(survivor, place(1, wire.address()));
      link(survivor, dismissed);
      Inbox<int> at_survivor;
      Inbox<int> at_dismissed;
      survivor.on("n", [&](int n) { at_survivor.add(n); });
      dismissed.on("n", [&](int n) { at_dismissed.add(n); });
      ASSERT_TRUE(!from_survivor || survivor.emit("n", 1).ok());
      ASSERT_TRUE(!from_dismissed || dismissed.emit("n", 1).ok());
      ASSERT_TRUE(survivor->flush(kDeadline) && dismissed->flush(kDeadline));
      dismiss(survivor, place(1, wire.address()));
      wire.cut();
      ASSERT_TRUE(survivor.hears(PeerChange::kLeft, 1));
      ASSERT_TRUE(eventually([&] { return !dismissed.linked_with(0); }));
      welcome(survivor, place(1, wire.address()));
      ASSERT_TRUE(eventually([&] { return survivor.linked_with(1) && dismissed.linked_with(0); }));
      ASSERT_TRUE(survivor.emit("n", 2).ok());
      ASSERT_TRUE(dismissed.emit("n", 2).ok());
      EXPECT_TRUE(at_dismissed.reaches(from_survivor ? 2 : 1));
      EXPECT_TRUE(at_survivor.reaches(from_dismissed ? 2 : 1));
    }
  }
}

TEST_P(MembersConformance, MainDoesNotWaitForWhoIsGone) {
  NodeOptions options;
  options.expected_nodes = {0, 2};
  TestNode waiting(1, fresh(), {nowhere()}, options);
  EXPECT_FALSE(waiting->joined());
  dismiss(waiting, place(0, nowhere()));
  dismiss(waiting, place(2, "tcp://another.invalid:50515", false));
  EXPECT_TRUE(waiting->join().ok());
}

TEST_P(MembersConformance, TheJoinTimeoutBeginsAnewWhileSomebodyKnowsThatThePeerWillCome) {
  NodeOptions options;
  options.expected_nodes = {1};
  options.join_timeout = 2s;
  TestNode waiting(0, fresh(), {}, options);
  // Extended over and over until long after the first deadline, then the peer comes.
  const auto start = std::chrono::steady_clock::now();
  std::unique_ptr<TestNode> late;
  std::unique_ptr<io::Timer> timer;
  std::function<void()> again;
  const auto reactor = io::make_reactor();
  again = [&] {
    waiting.on_loop([&] { waiting->extend_join(); });
    if (std::chrono::steady_clock::now() - start > 3 * options.join_timeout) return;
    timer = reactor->after(200ms, again);
  };
  reactor->post(again);
  std::unique_ptr<io::Timer> arrival;
  reactor->run_on_loop([&] {
    arrival = reactor->after(2 * options.join_timeout, [&] {
      late = std::make_unique<TestNode>(1, "", std::vector{waiting->address()});
    });
  });
  EXPECT_TRUE(waiting->join().ok());
  reactor->run_on_loop([&] {
    timer.reset();
    arrival.reset();
  });
}

}  // namespace
}  // namespace divisi::mesh::testing
