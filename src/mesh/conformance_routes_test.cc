// Who gets an event, on every medium: directed and one-of-N, pruning after READY, holding before.
#include "mesh/testing/bad_wire.h"
#include "mesh/testing/medium.h"
#include "mesh/testing/test_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace divisi::mesh::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class RouteConformance : public ::testing::TestWithParam<Medium> {
 protected:
  std::string fresh() { return GetParam().fresh_address(); }

  static NodeOptions labelled(std::set<std::string> labels) {
    NodeOptions options;
    options.self.labels = std::move(labels);
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Media, RouteConformance, ::testing::ValuesIn(all_media()),
                         [](const auto& item) { return std::string(item.param.name); });

// A hub and three leaves that note what they get.
class Star {
 public:
  explicit Star(const std::string& address) : hub(0, address, {}) {
    const std::set<std::string> labels[] = {{"collector.1"}, {"collector.2"}, {"learner"}};
    for (int id = 1; id <= 3; ++id) {
      NodeOptions options;
      options.self.labels = labels[id - 1];
      leaves.push_back(std::make_unique<TestNode>(id, "", std::vector{hub->address()}, options));
      TestNode& leaf = *leaves.back();
      link(hub, leaf);
      leaf.on("n", [this, id](int n) { seen.add({id, n}); });
      if (id != 2) leaf->announce_role(id == 1 ? "worker" : "judge");
      leaf->ready();
    }
    eventually([this] {
      std::size_t told = 0;
      for (const PeerInfo& peer : hub->peers()) told += peer.ready ? 1 : 0;
      return told == 3;
    });
  }
  // Everything sent so far has arrived.
  void settle() { EXPECT_TRUE(hub->flush(kDeadline)); }
  std::map<int, int> counts() {
    std::map<int, int> all;
    for (const auto& [id, n] : seen.values()) ++all[id];
    return all;
  }

  TestNode hub;
  std::vector<std::unique_ptr<TestNode>> leaves;
  Inbox<std::pair<int, int>> seen;
};

TEST_P(RouteConformance, EveryNodeHasTheLabelsOfBeingOne) {
  Star star(fresh());
  ASSERT_TRUE(star.hub.send("n", {.to = Target::to_label("node.2")}, 1).ok());
  ASSERT_TRUE(star.hub.send("n", {.to = Target::to_label("node.[13]")}, 2).ok());
  ASSERT_TRUE(star.hub.send("n", {.to = Target::to_label("distributed")}, 3).ok());
  ASSERT_TRUE(star.seen.reaches(6));
  EXPECT_EQ(star.counts(), (std::map<int, int>{{1, 2}, {2, 2}, {3, 2}}));
}

TEST_P(RouteConformance, AnEventGoesToANodeALabelOrARole) {
  Star star(fresh());
  ASSERT_TRUE(star.hub.send("n", {Target::to_node(2), Policy::kBlock}, 1).ok());
  ASSERT_TRUE(star.seen.reaches(1));
  ASSERT_TRUE(star.hub.send("n", {Target::to_label("collector.*"), Policy::kBlock}, 2).ok());
  ASSERT_TRUE(star.seen.reaches(3));
  ASSERT_TRUE(star.hub.send("n", {Target::to_role("judge"), Policy::kBlock}, 3).ok());
  ASSERT_TRUE(star.seen.reaches(4));
  ASSERT_TRUE(star.hub.send("n", {Target::all(), Policy::kBlock}, 4).ok());
  ASSERT_TRUE(star.seen.reaches(7));
  EXPECT_EQ(star.counts(), (std::map<int, int>{{1, 2}, {2, 3}, {3, 2}}));
}

TEST_P(RouteConformance, OneOfManyGetsEachEventInTurn) {
  Star star(fresh());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(star.hub.send("n", {Target::one_of_label("collector.*"), Policy::kBlock}, i).ok());
  }
  ASSERT_TRUE(star.seen.reaches(100));
  star.settle();
  EXPECT_EQ(star.counts(), (std::map<int, int>{{1, 50}, {2, 50}}));
  ASSERT_TRUE(star.hub.send("n", {Target::one_of_role("judge"), Policy::kBlock}, 0).ok());
  ASSERT_TRUE(star.seen.reaches(101));
  EXPECT_EQ(star.counts()[3], 1);
}

TEST_P(RouteConformance, ADirectedEventWithoutATargetSaysSo) {
  Star star(fresh());
  const Status no_node = star.hub.send("n", {Target::to_node(77), Policy::kBlock}, 1);
  EXPECT_EQ(no_node.code(), Code::kNotFound);
  EXPECT_THAT(no_node.message(), HasSubstr("node 77"));
  const Status no_role = star.hub.send("n", {Target::one_of_role("king"), Policy::kBlock}, 1);
  EXPECT_EQ(no_role.code(), Code::kUnavailable);
  EXPECT_THAT(no_role.message(), HasSubstr("king"));
  const Status no_listener = star.hub.send("m", {Target::one_of_label("*"), Policy::kBlock}, 1);
  EXPECT_EQ(no_listener.code(), Code::kUnavailable);
}

TEST_P(RouteConformance, AReadyPeerGetsOnlyWhatItListensTo) {
  Star star(fresh());
  const auto before = star.hub.stats_of(1).sent;
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(star.hub.emit("unheard", i, std::string(10'000, 'x')).ok());
  ASSERT_TRUE(star.hub.emit("n", 1).ok());
  ASSERT_TRUE(star.seen.reaches(3));
  EXPECT_EQ(star.hub.stats_of(1).sent, before + 1);
  EXPECT_EQ(star.leaves[0]->stats_of(0).received, 1u);
  EXPECT_EQ((*star.leaves[0])->stats().unlistened, 0u);
}

TEST_P(RouteConformance, InterestIsToldAsItComesAndGoes) {
  Star star(fresh());
  TestNode& leaf = *star.leaves[0];
  Inbox<int> late;
  leaf.on("late", [&](int n) { late.add(n); });
  ASSERT_TRUE(eventually([&] { return star.hub->listens(1, "late"); }));
  ASSERT_TRUE(star.hub.emit("late", 1).ok());
  ASSERT_TRUE(late.reaches(1));
  leaf->unsubscribe("late", leaf.loop().core().get());
  ASSERT_TRUE(eventually([&] { return !star.hub->listens(1, "late"); }));
  const auto sent = star.hub.stats_of(1).sent;
  ASSERT_TRUE(star.hub.emit("late", 2).ok());
  EXPECT_EQ(star.hub.stats_of(1).sent, sent);
}

TEST_P(RouteConformance, EventsBeforeReadyWaitForTheirFirstListener) {
  Inbox<int> seen;
  TestNode a(0, fresh(), {});
  TestNode b(1, "", {a->address()});
  link(a, b);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(a.emit("early", i).ok());
  ASSERT_TRUE(a.emit("never", 1).ok());
  ASSERT_TRUE(eventually([&] { return b->stats().held == 51; }));
  b.on("early", [&](int n) { seen.add(n); });
  ASSERT_TRUE(a.emit("early", 50).ok());
  ASSERT_TRUE(seen.reaches(51));
  const auto values = seen.values();
  for (int i = 0; i <= 50; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(b->stats().unlistened, 0u);
  b->ready();
  EXPECT_EQ(b->stats().unlistened, 1u) << "what nobody listened to is counted";
  EXPECT_EQ(b->stats().held, 0u);
}

TEST_P(RouteConformance, WhatComesAfterTheLastListenerWentIsCounted) {
  Inbox<int> seen;
  TestNode a(0, fresh(), {});
  TestNode b(1, "", {a->address()});
  link(a, b);
  b.loop().once("e", [&](int n) { seen.add(n); });
  b->subscribe("e", "e", b.loop().core());
  b->ready();
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(a.emit("e", i).ok());
  EXPECT_TRUE(eventually([&] { return b->stats().unlistened == 5; })) << b->stats().unlistened;
  EXPECT_EQ(seen.values(), std::vector{0});
  b.on("e", [&](int n) { seen.add(n); });
  ASSERT_TRUE(a.emit("e", 6).ok());
  ASSERT_TRUE(seen.reaches(2));
  EXPECT_EQ(b->stats().unlistened, 5u) << "heard again";
}

TEST_P(RouteConformance, HoldingIsBoundedAndWhatDoesNotFitIsCounted) {
  NodeOptions options;
  options.queue_bytes = 100'000;
  TestNode a(0, fresh(), {});
  TestNode b(1, "", {a->address()}, options);
  link(a, b);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(a.emit("early", i, std::string(10'000, 'x')).ok());
  ASSERT_TRUE(eventually([&] { return b->stats().held + b->stats().unlistened == 20; }));
  EXPECT_GE(b->stats().held, 8u);
  EXPECT_LE(b->stats().held, 10u);
}

TEST_P(RouteConformance, ANodeThatNeverSaysReadyBecomesSo) {
  NodeOptions options;
  options.ready_after = 50ms;
  TestNode a(0, fresh(), {});
  TestNode b(1, "", {a->address()}, options);
  link(a, b);
  ASSERT_TRUE(b->join().ok());
  ASSERT_TRUE(eventually([&] {
    const auto peers = a->peers();
    return peers.size() == 1 && peers[0].ready;
  }));
  ASSERT_TRUE(a.emit("unheard", 1).ok());
  EXPECT_EQ(a.stats_of(1).sent, 0u);
}

TEST_P(RouteConformance, ANodeThatStillJoinsIsNotReady) {
  NodeOptions options;
  options.ready_after = 1ms;
  options.expected_nodes = {0, 2};
  TestNode a(0, fresh(), {});
  TestNode b(1, fresh(), {a->address()}, options);
  std::thread joins([&] { EXPECT_TRUE(b->join().ok()); });
  ASSERT_TRUE(eventually([&] { return a->peers().size() == 1 && a->peers().front().connected; }));
  ASSERT_TRUE(a.emit("early", 1).ok()) << "main, which will listen, waits for node 2";
  ASSERT_TRUE(eventually([&] { return b->stats().held == 1; }));
  const TestNode c(2, "", {b->address()});
  joins.join();
  EXPECT_TRUE(eventually([&] { return a->peers().front().ready; }));
}

TEST_P(RouteConformance, PeersTellTheirLabelsRolesAndAddresses) {
  TestNode a(0, fresh(), {}, labelled({"league", "node.0"}));
  TestNode b(1, fresh(), {a->address()}, labelled({"actor"}));
  link(a, b);
  b->announce_role("learner");
  ASSERT_TRUE(
      eventually([&] { return a->peers().front().roles == std::set<std::string>{"learner"}; }));
  EXPECT_EQ(a->peers().front().labels, std::set<std::string>{"actor"});
  EXPECT_EQ(a->peers().front().listen, b->address());
  EXPECT_EQ(a->peers().front().incarnation, b->incarnation());
  EXPECT_EQ(b->peers().front().labels, (std::set<std::string>{"league", "node.0"}));
}

// The list of topics comes anew with each connection, in several frames.
TEST_P(RouteConformance, ALongListOfTopicsIsNotPrunedByWhileItComes) {
  Inbox<int> seen;
  TestNode a(0, fresh(), {});
  BadWire wire(a->address());
  TestNode b(1, "", {wire.address()});
  link(a, b);
  constexpr int kTopics = 5'000;
  for (int i = 0; i < kTopics; ++i) {
    b->subscribe(fmt::format("topic {:0240}", i), "other", b.loop().core());
  }
  b.on("~last", [&](int n) { seen.add(n); });  // in the last of the frames
  b->ready();
  ASSERT_TRUE(eventually([&] { return a->peers().front().ready; }));
  int n = 0;
  for (int round = 0; round < 20; ++round) {
    wire.cut();
    const std::string behind_the_list = fmt::format("round {}", round);
    b->announce_labels({behind_the_list});
    while (!a->peers().front().labels.contains(behind_the_list)) {
      ASSERT_TRUE(a.emit("~last", n++).ok());
    }
  }
  ASSERT_TRUE(seen.reaches(static_cast<std::size_t>(n)));
  EXPECT_EQ(seen.values().back(), n - 1);
}

TEST_P(RouteConformance, WhoSubscribesWhileAnotherStopsIsHeardOf) {
  TestNode a(0, fresh(), {});
  TestNode b(1, "", {a->address()});
  link(a, b);
  a->ready();
  b->ready();
  EventLoop loops[2] = {EventLoop("even"), EventLoop("odd")};
  b->subscribe("n", "n", loops[0].core());
  for (std::size_t round = 0; round < 500; ++round) {
    const auto& leaving = loops[round % 2].core();
    const auto& coming = loops[(round + 1) % 2].core();
    {
      const std::jthread other([&] { b->unsubscribe("n", leaving.get()); });
      b->subscribe("n", "n", coming);
    }
    // Behind all that was said before.
    b->announce_role(std::to_string(round));
    ASSERT_TRUE(
        eventually([&] { return a->peers().front().roles.contains(std::to_string(round)); }));
    ASSERT_TRUE(a->listens(1, "n")) << round;
  }
}

TEST_P(RouteConformance, LabelsThatTasksAddDirectEventsWhileTheyLast) {
  Inbox<int> seen;
  TestNode a(0, fresh(), {});
  BadWire wire(a->address());
  TestNode b(1, "", {wire.address()}, labelled({"actor"}));
  link(a, b);
  b.on("n", [&](int n) { seen.add(n); });
  const auto labels_at_a = [&] { return a->peers().front().labels; };
  b->announce_labels({"gpu.big", "left"});
  ASSERT_TRUE(eventually(
      [&] { return labels_at_a() == std::set<std::string>{"actor", "gpu.big", "left"}; }));
  ASSERT_TRUE(a.send("n", {Target::to_label("gpu*"), Policy::kBlock}, 1).ok());
  ASSERT_TRUE(a.send("n", {Target::one_of_label("left"), Policy::kBlock}, 2).ok());
  // What was taken back while the link was down is not there afterwards.
  wire.stall(true);
  wire.cut();
  b->announce_labels({"right"});
  wire.stall(false);
  ASSERT_TRUE(eventually([&] { return labels_at_a() == std::set<std::string>{"actor", "right"}; }));
  b->announce_labels({});
  ASSERT_TRUE(eventually([&] { return labels_at_a() == std::set<std::string>{"actor"}; }));
  EXPECT_EQ(a.send("n", {Target::one_of_label("left"), Policy::kBlock}, 3).code(),
            Code::kUnavailable);
  ASSERT_TRUE(a.send("n", {Target::to_label("gpu*"), Policy::kBlock}, 4).ok());
  ASSERT_TRUE(a.send("n", {Target::to_label("actor"), Policy::kBlock}, 5).ok());
  ASSERT_TRUE(seen.reaches(3));
  EXPECT_EQ(seen.values(), (std::vector<int>{1, 2, 5}));
}

TEST_P(RouteConformance, SixteenNodesFormAMesh) {
  constexpr int kNodes = 16;
  constexpr int kEvents = 20;
  std::vector<std::unique_ptr<TestNode>> nodes;
  std::vector<std::string> addresses;
  Inbox<std::pair<int, int>> seen[kNodes];
  for (int id = 0; id < kNodes; ++id) {
    NodeOptions options;
    options.expected_peers = kNodes - 1;
    nodes.push_back(std::make_unique<TestNode>(id, fresh(), addresses, options));
    addresses.push_back((*nodes.back())->address());
    nodes.back()->on("n", [&seen, id](int from, int n) { seen[id].add({from, n}); });
  }
  for (auto& node : nodes) ASSERT_TRUE((*node)->join().ok());
  for (int i = 0; i < kEvents; ++i) {
    for (int id = 0; id < kNodes; ++id) {
      ASSERT_TRUE(nodes[static_cast<std::size_t>(id)]->emit("n", id, i).ok());
    }
  }
  for (int id = 0; id < kNodes; ++id) {
    ASSERT_TRUE(seen[id].reaches((kNodes - 1) * kEvents)) << id;
    std::map<int, int> next;
    for (const auto& [from, n] : seen[id].values()) EXPECT_EQ(n, next[from]++);
  }
}

}  // namespace
}  // namespace divisi::mesh::testing
