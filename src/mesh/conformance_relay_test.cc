// A hub that relays, on every medium: one leaf that is away or stuck must not stop the others.
#include "mesh/testing/bad_wire.h"
#include "mesh/testing/medium.h"
#include "mesh/testing/test_node.h"

#include <gtest/gtest.h>

#include <thread>

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
    EXPECT_TRUE(eventually([&] {
      return hub.stats_of(3).queued_bytes >= options.queue_bytes &&
             one->stats_of(0).queued_bytes > options.queue_bytes - kEventBytes - 1'000;
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

}  // namespace
}  // namespace divisi::mesh::testing
