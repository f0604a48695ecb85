// What every medium promises when links break and peers go away: a bad wire between the nodes cuts,
// stalls and swallows.
#include "mesh/testing/bad_wire.h"
#include "mesh/testing/medium.h"
#include "mesh/testing/test_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stop_token>
#include <thread>

namespace divisi::mesh::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::Pair;

class FaultConformance : public ::testing::TestWithParam<Medium> {
 protected:
  std::string fresh() { return GetParam().fresh_address(); }

  // Silence is noticed soon; still long enough for a busy machine.
  static NodeOptions impatient() {
    NodeOptions options;
    options.heartbeat = 100ms;
    options.lost_after = 500ms;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Media, FaultConformance, ::testing::ValuesIn(all_media()),
                         [](const auto& item) { return std::string(item.param.name); });

// Events of many sizes whose content tells whether they are whole.
Buffer numbered(int n) {
  const std::size_t sizes[] = {10, 500, 9'000, 40'000, 300'000};
  Buffer bytes(sizes[static_cast<std::size_t>(n) % 5]);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes.mutable_data()[i] = static_cast<std::byte>(i + static_cast<std::size_t>(n));
  }
  return bytes;
}

bool is_numbered(const Buffer& bytes, int n) {
  const Buffer right = numbered(n);
  return bytes.text() == right.text();
}

void expect_all_in_order(Inbox<int>& seen, int count) {
  ASSERT_TRUE(seen.reaches(static_cast<std::size_t>(count)));
  const auto values = seen.values();
  ASSERT_EQ(values.size(), static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) ASSERT_EQ(values[static_cast<std::size_t>(i)], i);
}

TEST_P(FaultConformance, CutsInTheMiddleOfMessagesLoseRepeatAndReorderNothing) {
  Inbox<int> at_a;
  Inbox<int> at_b;
  TestNode a(0, fresh(), {});
  BadWire wire(a->address());
  TestNode b(1, "", {wire.address()});
  link(a, b);
  a.on("n", [&](int n, const Buffer& bytes) { at_a.add(is_numbered(bytes, n) ? n : -1); });
  b.on("n", [&](int n, const Buffer& bytes) { at_b.add(is_numbered(bytes, n) ? n : -1); });
  constexpr int kCount = 400;
  wire.cut_every(1'000'003);
  std::thread other([&] {
    for (int i = 0; i < kCount; ++i) EXPECT_TRUE(b.emit("n", i, numbered(i)).ok());
  });
  for (int i = 0; i < kCount; ++i) EXPECT_TRUE(a.emit("n", i, numbered(i)).ok());
  other.join();
  expect_all_in_order(at_a, kCount);
  expect_all_in_order(at_b, kCount);
  wire.cut_every(0);
  EXPECT_GE(wire.cuts(), 10u);
  EXPECT_GE(a.stats_of(1).reconnects, 10u);
  EXPECT_TRUE(a->flush(kDeadline));
  EXPECT_TRUE(b->flush(kDeadline));
  EXPECT_EQ(a.stats_of(1).dropped + b.stats_of(0).dropped, 0u);
}

TEST_P(FaultConformance, AFlushThatIsGivenUpLeavesEverythingOnItsWay) {
  Inbox<int> seen;
  TestNode a(0, fresh(), {});
  BadWire wire(a->address());
  TestNode b(1, "", {wire.address()});
  link(a, b);
  a.on("n", [&](int n) { seen.add(n); });
  wire.stall(true);
  EXPECT_TRUE(b.emit("n", 7).ok());
  std::stop_source source;
  const std::jthread meanwhile([&] { source.request_stop(); });
  EXPECT_FALSE(b->flush(kDeadline, source.get_token()));
  wire.stall(false);
  EXPECT_TRUE(b->flush(kDeadline));
  EXPECT_TRUE(seen.reaches(1));
}

TEST_P(FaultConformance, ALinkThatIsCutAndIdleIsAcknowledgedAfterwards) {
  Inbox<int> seen;
  TestNode a(0, fresh(), {});
  BadWire wire(a->address());
  TestNode b(1, "", {wire.address()});
  link(a, b);
  a.on("n", [&](int n, const Buffer&) { seen.add(n); });
  for (int round = 0; round < 10; ++round) {
    ASSERT_TRUE(b.emit("n", round, numbered(round)).ok());
    ASSERT_TRUE(seen.reaches(static_cast<std::size_t>(round) + 1));
    EXPECT_TRUE(b->flush(kDeadline)) << round;
    const auto reconnects = b.stats_of(0).reconnects;
    wire.cut();
    ASSERT_TRUE(eventually([&] { return b.stats_of(0).reconnects > reconnects; }));
  }
}

TEST_P(FaultConformance, AReceiverThatWasFullWhenTheLinkBrokeGoesOn) {
  NodeOptions options;
  options.queue_bytes = 1 << 20;
  Door door;
  Inbox<int> seen;
  TestNode a(0, fresh(), {}, options);
  BadWire wire(a->address());
  TestNode b(1, "", {wire.address()}, options);
  link(a, b);
  a.on("n", [&](int n, const Buffer& bytes) {
    seen.add(is_numbered(bytes, n) ? n : -1);
    door.pass();
  });
  constexpr int kCount = 200;
  std::thread sender([&] {
    for (int i = 0; i < kCount; ++i) EXPECT_TRUE(b.emit("n", i, numbered(i)).ok());
  });
  EXPECT_TRUE(eventually([&] { return b.stats_of(0).queued_bytes > 700'000; }));
  const auto reconnects = b.stats_of(0).reconnects;
  wire.cut();
  EXPECT_TRUE(eventually([&] { return b.stats_of(0).reconnects > reconnects; }));
  door.open();
  sender.join();
  expect_all_in_order(seen, kCount);
}

TEST_P(FaultConformance, ASilentPeerIsLostAndComesBackWithAllThatWasKept) {
  Inbox<int> seen;
  TestNode a(0, fresh(), {}, impatient());
  BadWire wire(a->address());
  TestNode b(1, "", {wire.address()}, impatient());
  link(a, b);
  a.on("n", [&](int n) { seen.add(n); });
  ASSERT_TRUE(b.emit("n", 0).ok());
  ASSERT_TRUE(seen.reaches(1));
  wire.swallow(true);  // half-open: no end, no error, no bytes
  ASSERT_TRUE(a.hears(PeerChange::kLost, 1));
  ASSERT_TRUE(b.hears(PeerChange::kLost, 0));
  EXPECT_TRUE(b->peers().front().lost);
  for (int i = 1; i < 100; ++i) ASSERT_TRUE(b.emit("n", i).ok());
  wire.swallow(false);
  ASSERT_TRUE(a.hears(PeerChange::kBack, 1));
  ASSERT_TRUE(b.hears(PeerChange::kBack, 0));
  expect_all_in_order(seen, 100);
  EXPECT_EQ(b->peers().front().lost, false);
}

TEST_P(FaultConformance, EmitsDoNotWaitForALostPeerAndTheGapIsToldToBothSides) {
  NodeOptions options = impatient();
  options.queue_bytes = 100'000;
  Inbox<int> seen;
  TestNode a(0, fresh(), {}, options);
  BadWire wire(a->address());
  TestNode b(1, "", {wire.address()}, options);
  link(a, b);
  a.on("n", [&](int n, const std::string&) { seen.add(n); });
  wire.swallow(true);
  ASSERT_TRUE(b.hears(PeerChange::kLost, 0));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(b.emit("n", i, std::string(10'000, 'x')).ok());
  const auto dropped = b.stats_of(0).dropped;
  EXPECT_GE(dropped, 90u);
  EXPECT_LE(b.stats_of(0).queued_bytes, 110'000u);
  wire.swallow(false);
  expect_all_in_order(seen, static_cast<int>(100 - dropped));
  EXPECT_TRUE(eventually([&] { return a.stats_of(1).gaps == dropped; }));
}

TEST_P(FaultConformance, AStalledPeerDelaysOthersOnlyUntilItIsLost) {
  NodeOptions options = impatient();
  options.lost_after = 3s;  // a pause of the other one is no silence
  options.queue_bytes = 100'000;
  Inbox<int> seen;
  TestNode hub(0, fresh(), {}, options);
  BadWire wire(hub->address());
  TestNode stalled(1, "", {wire.address()}, options);
  TestNode other(2, "", {hub->address()}, options);
  link(hub, stalled);
  link(hub, other);
  other.on("n", [&](int n, const Buffer&) { seen.add(n); });
  stalled.on("n", [&](int, const Buffer&) {});
  wire.stall(true);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(hub.emit("n", i, numbered(i)).ok());  // to both
  expect_all_in_order(seen, 100);
  EXPECT_TRUE(hub.hears(PeerChange::kLost, 1));
  wire.stall(false);
}

TEST_P(FaultConformance, AShortInterruptionIsNoLoss) {
  TestNode a(0, fresh(), {});
  BadWire wire(a->address());
  TestNode b(1, "", {wire.address()});
  link(a, b);
  for (int i = 1; i <= 5; ++i) {
    wire.cut();
    ASSERT_TRUE(eventually([&] { return b.stats_of(0).reconnects >= static_cast<unsigned>(i); }));
  }
  EXPECT_THAT(a.changes().values(), ElementsAre(Pair(PeerChange::kJoined, 1)));
  EXPECT_THAT(b.changes().values(), ElementsAre(Pair(PeerChange::kJoined, 0)));
}

TEST_P(FaultConformance, GoodbyeIsHeardAndCloseDeliversEverythingFirst) {
  Inbox<int> seen;
  TestNode a(0, fresh(), {});
  auto b = std::make_unique<TestNode>(1, "", std::vector{a->address()});
  link(a, *b);
  a.on("n", [&](int n, const Buffer& bytes) { seen.add(is_numbered(bytes, n) ? n : -1); });
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(b->emit("n", i, numbered(i)).ok());
  b->close(std::chrono::duration_cast<std::chrono::milliseconds>(kDeadline));
  b.reset();
  expect_all_in_order(seen, 500);
  ASSERT_TRUE(a.hears(PeerChange::kLeft, 1));
  EXPECT_THAT(a.changes().values(),
              ElementsAre(Pair(PeerChange::kJoined, 1), Pair(PeerChange::kLeft, 1)));
  EXPECT_TRUE(a->peers().empty());
}

TEST_P(FaultConformance, AClosedNodeRefusesToSend) {
  TestNode a(0, fresh(), {});
  a.close(100ms);
  a.close(100ms);
  EXPECT_EQ(a.emit("n", 1).code(), Code::kClosed);
}

TEST_P(FaultConformance, ASuccessorOfADeadProcessIsWelcomedAndTheLossIsCounted) {
  NodeOptions options = impatient();
  const std::string address = fresh();
  Inbox<int> seen;
  TestNode a(0, address, {}, options);
  auto b = std::make_unique<TestNode>(1, "", std::vector{a->address()}, options);
  link(a, *b);
  b->on("n", [](int) {});
  b->kill();
  ASSERT_TRUE(eventually([&] { return !a.linked_with(1); }));
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(a.emit("n", i).ok());
  ASSERT_TRUE(a.hears(PeerChange::kLost, 1));
  TestNode next(1, "", {a->address()}, options);
  next.on("n", [&](int n) { seen.add(n); });
  link(a, next);
  ASSERT_TRUE(a.hears(PeerChange::kBack, 1));
  EXPECT_EQ(a.stats_of(1).lost, 7u);
  EXPECT_EQ(a->stats().undelivered, 7u);
  ASSERT_TRUE(a.emit("n", 100).ok());
  ASSERT_TRUE(seen.reaches(1));
  EXPECT_THAT(seen.values(), ElementsAre(100));
}

TEST_P(FaultConformance, ADeathSeenByTheLauncherIsKnownAtOnce) {
  TestNode a(0, fresh(), {});
  TestNode b(1, "", {a->address()});
  link(a, b);
  b.kill();
  a->peer_died(1);
  ASSERT_TRUE(a.hears(PeerChange::kLost, 1));
}

TEST_P(FaultConformance, ABlockedEmitEndsWhenItsPeerLeavesOrTheNodeCloses) {
  NodeOptions options;
  options.queue_bytes = 100'000;
  Door door;
  std::atomic<bool> inside{false};
  TestNode a(0, fresh(), {}, options);
  auto b = std::make_unique<TestNode>(1, "", std::vector{a->address()}, options);
  link(a, *b);
  b->on("n", [&](int, const Buffer&) {
    inside = true;
    door.pass();
  });
  std::atomic<bool> full{false};
  std::thread flood([&] {
    for (int i = 0; i < 1'000 && a.emit("n", i, Buffer(20'000)).ok(); ++i) full = i > 15;
  });
  EXPECT_TRUE(eventually([&] { return inside && a.stats_of(1).queued_bytes > 80'000; }));
  b->kill();
  a->peer_died(1);  // lost: nobody waits for it any more
  flood.join();
  EXPECT_GT(a.stats_of(1).dropped, 0u);
  door.open();
}

}  // namespace
}  // namespace divisi::mesh::testing
