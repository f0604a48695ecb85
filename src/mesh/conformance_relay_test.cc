// A hub that relays, on every medium: one leaf that is away or stuck must not stop the others.
#include "mesh/testing/bad_wire.h"
#include "mesh/testing/medium.h"
#include "mesh/testing/test_node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

namespace divisi::mesh::testing {
namespace {

using namespace std::chrono_literals;

constexpr int kEvents = 128;
constexpr std::size_t kEventBytes = 64 * 1024;  // 8 MiB in all

// A hub and its leaves 1, 2 and 3, of which the third is behind a bad wire. Leaf 2 listens.
class RelayedStar {
 public:
  RelayedStar(const std::string& address, NodeOptions options)
      : hub(0, address, {}, relaying(options)),
        wire(hub->address()),
        one(std::make_unique<TestNode>(1, "", std::vector{hub->address()}, options)),
        two(std::make_unique<TestNode>(2, "", std::vector{hub->address()}, options)),
        three(std::make_unique<TestNode>(3, "", std::vector{wire.address()}, options)) {
    two->on("n", [this](int n, const Buffer&) { seen.add(n); });
    for (TestNode* leaf : {one.get(), two.get(), three.get()}) link(hub, *leaf);
  }

  void emit_all() {
    for (int i = 0; i < kEvents; ++i) {
      const Status sent = one->emit("n", i, Buffer(kEventBytes));
      ASSERT_TRUE(sent.ok()) << sent.message();
    }
  }
  // Leaf 1 emits more than fits anywhere, until it waits for leaf 3, which takes nothing.
  std::jthread emit_until_stuck(const NodeOptions& options) {
    wire.stall(true);
    std::jthread emitter([this] { emit_all(); });
    std::uint64_t received = 0;
    int quiet = 0;
    EXPECT_TRUE(eventually([&] {
      const std::uint64_t now = hub.stats_of(1).received;
      const bool is_full =
          one->stats_of(0).queued_bytes > options.queue_bytes - kEventBytes - 1'000;
      quiet = is_full && now == std::exchange(received, now) ? quiet + 1 : 0;
      return quiet == 100;
    }));
    return emitter;
  }
  void expect_all_at_leaf_two() {
    ASSERT_TRUE(seen.reaches(kEvents));
    const auto values = seen.values();
    for (int i = 0; i < kEvents; ++i) ASSERT_EQ(values[static_cast<std::size_t>(i)], i);
  }

  Inbox<int> seen;
  TestNode hub;
  BadWire wire;
  std::unique_ptr<TestNode> one;
  std::unique_ptr<TestNode> two;
  std::unique_ptr<TestNode> three;

 private:
  static NodeOptions relaying(NodeOptions options) {
    options.relay = true;
    options.expected_peers = 3;
    return options;
  }
};

class RelayConformance : public ::testing::TestWithParam<Medium> {
 protected:
  std::string fresh() { return GetParam().fresh_address(); }

  static NodeOptions small_queues(std::chrono::milliseconds lost_after) {
    NodeOptions options;
    options.queue_bytes = 1 << 20;
    options.heartbeat = 100ms;
    options.lost_after = lost_after;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Media, RelayConformance, ::testing::ValuesIn(all_media()),
                         [](const auto& item) { return std::string(item.param.name); });

TEST_P(RelayConformance, ALostLeafDoesNotStopTheOthers) {
  RelayedStar star(fresh(), small_queues(500ms));
  star.three->kill();
  ASSERT_TRUE(star.hub.hears(PeerChange::kLost, 3));
  star.emit_all();
  star.expect_all_at_leaf_two();
  EXPECT_GT(star.hub.stats_of(3).dropped, 0u) << "beyond its bound, and counted";
  EXPECT_LE(star.hub.stats_of(3).queued_bytes, 2u << 20);
}

TEST_P(RelayConformance, ALostLeafThatComesBackIsToldOfTheGap) {
  RelayedStar star(fresh(), small_queues(500ms));
  Inbox<int> at_three;
  star.three->on("n", [&](int n, const Buffer&) { at_three.add(n); });
  star.wire.swallow(true);
  ASSERT_TRUE(star.hub.hears(PeerChange::kLost, 3));
  star.emit_all();
  star.expect_all_at_leaf_two();
  const auto dropped = star.hub.stats_of(3).dropped;
  EXPECT_GT(dropped, 0u);
  star.wire.swallow(false);
  EXPECT_TRUE(at_three.reaches(kEvents - dropped));
  EXPECT_TRUE(eventually([&] { return star.three->stats_of(0).gaps == dropped; }));
}

TEST_P(RelayConformance, WhoWaitsForAStuckLeafGoesOnWhenItIsLost) {
  const NodeOptions options = small_queues(kDeadline);
  RelayedStar star(fresh(), options);
  std::jthread emitter = star.emit_until_stuck(options);
  star.hub->peer_died(3);
  emitter.join();
  star.expect_all_at_leaf_two();
}

TEST_P(RelayConformance, WhoWaitsForAStuckLeafGoesOnWhenItHasLeft) {
  const NodeOptions options = small_queues(kDeadline);
  RelayedStar star(fresh(), options);
  std::jthread emitter = star.emit_until_stuck(options);
  star.hub.on_loop([&] {
    star.hub->dismiss({3, *io::Address::parse("tcp://nowhere.invalid:50515"), {}, false});
  });
  star.three->kill();  // so that it does not come back
  star.wire.cut();
  emitter.join();
  star.expect_all_at_leaf_two();
  EXPECT_TRUE(star.hub.hears(PeerChange::kLeft, 3));
}

TEST_P(RelayConformance, WhoWaitsForAStuckLeafGoesOnWhenItsSuccessorIsThere) {
  const NodeOptions options = small_queues(kDeadline);
  RelayedStar star(fresh(), options);
  std::jthread emitter = star.emit_until_stuck(options);
  star.three->kill();
  star.wire.cut();
  ASSERT_TRUE(eventually([&] { return !star.hub.linked_with(3); }));
  const TestNode successor(3, "", {star.hub->address()}, options);
  emitter.join();
  star.expect_all_at_leaf_two();
  EXPECT_TRUE(star.hub.hears(PeerChange::kBack, 3));
}

TEST_P(RelayConformance, AStuckLeafHoldsUpOnlyThoseWhoSendToIt) {
  const NodeOptions options = small_queues(kDeadline);
  RelayedStar star(fresh(), options);
  star.three->on("flood", [](const Buffer&) {});
  (*star.three)->ready();
  ASSERT_TRUE(eventually([&] { return !star.hub->listens(3, "n"); }));
  star.wire.stall(true);
  Status status;
  while (status.ok()) {
    status = star.hub.send("flood", {Target::to_node(3), Policy::kError}, Buffer(kEventBytes));
  }
  EXPECT_EQ(status.code(), Code::kWouldBlock);
  star.emit_all();  // far more than the leaf may send ahead
  star.expect_all_at_leaf_two();
  star.wire.stall(false);
}

TEST_P(RelayConformance, TheHubKeepsToItsMemoryWithAllLeavesStuck) {
  constexpr std::size_t kLeaves = 4;
  constexpr int kEach = 2'000;
  NodeOptions relaying = small_queues(kDeadline);
  relaying.memory_bytes = 2 << 20;
  relaying.relay = true;
  relaying.expected_peers = kLeaves;
  NodeOptions options = small_queues(kDeadline);
  options.queue_bytes = 64 * 1024;
  Door door;
  Inbox<int> seen[kLeaves];
  TestNode hub(0, fresh(), {}, relaying);
  std::vector<std::unique_ptr<TestNode>> leaves;
  for (std::size_t i = 0; i < kLeaves; ++i) {
    const int id = static_cast<int>(i) + 1;
    leaves.push_back(std::make_unique<TestNode>(id, "", std::vector{hub->address()}, options));
    leaves.back()->on("n", [&, i](int n, const Buffer&) {
      door.pass();
      seen[i].add(n);
    });
  }
  for (const auto& leaf : leaves) link(hub, *leaf);
  {
    std::vector<std::jthread> emitters;
    for (const auto& leaf : leaves) {
      emitters.emplace_back([&leaf] {
        for (int n = 0; n < kEach; ++n) EXPECT_TRUE(leaf->emit("n", n, Buffer(1'000)).ok());
      });
    }
    // Everybody waits: the leaves' queues are full, and nothing has moved at the hub for a while.
    std::size_t kept = 0;
    int quiet = 0;
    EXPECT_TRUE(eventually([&] {
      std::size_t now = 0;
      for (const PeerStats& peer : hub->stats().peers) now += peer.queued_bytes;
      const bool all_full = std::ranges::all_of(leaves, [&](const auto& leaf) {
        return leaf->stats_of(0).queued_bytes > options.queue_bytes - 2'000;
      });
      quiet = all_full && now == std::exchange(kept, now) ? quiet + 1 : 0;
      return quiet == 100;
    }));
    EXPECT_LE(kept, relaying.memory_bytes);
    door.open();
  }
  for (auto& each : seen) EXPECT_TRUE(each.reaches((kLeaves - 1) * kEach));
}

}  // namespace
}  // namespace divisi::mesh::testing
