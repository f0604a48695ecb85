// What peers that are slow, lost or gone cost the others, and how a node ends, on every medium.
#include "mesh/testing/bad_wire.h"
#include "mesh/testing/medium.h"
#include "mesh/testing/test_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <utility>

namespace divisi::mesh::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

constexpr std::size_t kQueue = 200'000;
constexpr std::size_t kEventBytes = 10'000;

class EndsConformance : public ::testing::TestWithParam<Medium> {
 protected:
  std::string fresh() { return GetParam().fresh_address(); }

  static NodeOptions small_queues() {
    NodeOptions options;
    options.queue_bytes = kQueue;
    options.memory_bytes = 2 * kQueue;
    return options;
  }
  // Until the queue refuses another one. Returns how many it took.
  static std::size_t fill(TestNode& sender, int peer, std::size_t bytes = kEventBytes) {
    std::size_t sent = 0;
    const SendOptions options{Target::to_node(peer), Policy::kError};
    while (sent < 1'000 && sender.send("n", options, 0, Buffer(bytes)).ok()) ++sent;
    return sent;
  }
  // Until a peer that is stuck has all it takes, and the queue is full for good.
  static std::size_t fill_for_good(TestNode& sender, int peer, std::size_t bytes = kEventBytes) {
    std::size_t sent = 0;
    EXPECT_TRUE(eventually([&] {
      sent += fill(sender, peer, bytes);
      return sent > 1 && sent * bytes > kQueue * 3 / 2 &&
             sender.stats_of(peer).queued_bytes > kQueue - 2 * kEventBytes;
    }));
    return sent;
  }
};
INSTANTIATE_TEST_SUITE_P(Media, EndsConformance, ::testing::ValuesIn(all_media()),
                         [](const auto& item) { return std::string(item.param.name); });

// A receiver whose callback waits at a door.
struct Stuck {
  Stuck(int id, TestNode& sender, const NodeOptions& options)
      : node(id, "", {sender->address()}, options) {
    link(sender, node);
    node.on("n", [this](int n, const Buffer&) {
      door.pass();
      seen.add(n);
    });
    node->ready();
  }
  ~Stuck() { door.open(); }

  Door door;
  Inbox<int> seen;
  TestNode node;
};

TEST_P(EndsConformance, LostPeersTakeNothingOfTheMemoryOfTheOthers) {
  TestNode sender(0, fresh(), {}, small_queues());
  Stuck healthy(1, sender, small_queues());
  std::vector<std::unique_ptr<TestNode>> lost;
  for (const int id : {2, 3, 4}) {
    lost.push_back(
        std::make_unique<TestNode>(id, "", std::vector{sender->address()}, small_queues()));
    link(sender, *lost.back());
    lost.back()->kill();
    sender->peer_died(id);
    ASSERT_TRUE(sender.hears(PeerChange::kLost, id));
    fill(sender, id);
    EXPECT_LE(sender.stats_of(id).queued_bytes, kQueue);
    EXPECT_GT(sender.stats_of(id).dropped, 0u);
  }
  // More than these three is all the memory there is.
  fill_for_good(sender, 1);
}

TEST_P(EndsConformance, APeerDeadForGoodIsForgottenAndItsEventsAreCounted) {
  TestNode sender(0, fresh(), {}, small_queues());
  auto dead = std::make_unique<TestNode>(1, fresh(), std::vector{sender->address()});
  link(sender, *dead);
  const auto address = *io::Address::parse((*dead)->address());
  dead->kill();
  ASSERT_TRUE(eventually([&] { return !sender.linked_with(1); }));
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(sender.emit("n", i).ok());
  sender->peer_died(1, address);
  ASSERT_TRUE(sender.hears(PeerChange::kLost, 1));
  EXPECT_TRUE(eventually([&] { return sender->peers().empty(); }));
  EXPECT_EQ(sender->stats().undelivered, 7u);
  EXPECT_TRUE(sender->close(EndLimits()).empty());
  EXPECT_THAT(sender.changes().values(), Not(Contains(Pair(PeerChange::kLeft, 1))));
}

TEST_P(EndsConformance, CloseWaitsForASlowListener) {
  TestNode sender(0, fresh(), {}, small_queues());
  Stuck slow(1, sender, small_queues());
  const std::size_t sent = fill_for_good(sender, 1);
  std::atomic<bool> closed{false};
  std::thread closing([&] {
    EXPECT_TRUE(sender->close(EndLimits()).empty());
    closed = true;
  });
  EXPECT_TRUE(eventually([&] { return sender.emit("probe").code() == Code::kClosed; }));
  EXPECT_FALSE(closed);
  slow.door.open();
  closing.join();
  EXPECT_TRUE(slow.seen.reaches(sent));
  EXPECT_TRUE(slow.node.hears(PeerChange::kLeft, 0));
  EXPECT_EQ(slow.node->stats().gaps, 0u);
}

TEST_P(EndsConformance, APeerThatIsGivenUpHearsOfTheGapBeforeTheGoodbye) {
  for (const std::size_t bytes : {kEventBytes, std::size_t{700'000}}) {
    SCOPED_TRACE(bytes);
    TestNode sender(0, fresh(), {}, small_queues());
    Stuck slow(1, sender, small_queues());
    const std::size_t sent = fill_for_good(sender, 1, bytes);
    const auto given_up = sender->close({.silence = 200ms});
    ASSERT_EQ(given_up.size(), 1u);
    EXPECT_EQ(given_up[0].node, 1);
    EXPECT_GT(given_up[0].events, 0u);
    EXPECT_FALSE(given_up[0].lost);
    ASSERT_TRUE(slow.node.hears(PeerChange::kLeft, 0));
    const std::uint64_t gaps = slow.node->stats().gaps;
    EXPECT_GT(gaps, 0u);
    EXPECT_LE(gaps, given_up[0].events);
    slow.door.open();
    EXPECT_TRUE(slow.seen.reaches(sent - gaps)) << slow.seen.size() << " of " << sent - gaps;
  }
}

TEST_P(EndsConformance, ALostPeerIsNotWaitedForAndSaidToBeLost) {
  NodeOptions options = small_queues();
  options.heartbeat = 100ms;
  options.lost_after = 300ms;
  TestNode sender(0, fresh(), {}, options);
  TestNode lost(1, "", {sender->address()}, options);
  link(sender, lost);
  lost.kill();
  ASSERT_TRUE(eventually([&] { return !sender.linked_with(1); }));
  ASSERT_TRUE(sender.emit("n", 1).ok());
  const auto given_up = sender->close(EndLimits());
  ASSERT_EQ(given_up.size(), 1u);
  EXPECT_EQ(given_up[0].events, 1u);
  EXPECT_TRUE(given_up[0].lost);
  EXPECT_FALSE(given_up[0].dead);
}

TEST_P(EndsConformance, WhoIsAskedToHurryWaitsNoLongerThanThat) {
  TestNode sender(0, fresh(), {}, small_queues());
  Stuck slow(1, sender, small_queues());
  fill_for_good(sender, 1);
  std::stop_source hurry;
  std::jthread closing([&] {
    const auto given_up = sender->close(
        {.silence = std::chrono::hours(1), .hurry = hurry.get_token(), .hurried = 10ms});
    EXPECT_EQ(given_up.size(), 1u);
  });
  EXPECT_TRUE(eventually([&] { return sender.emit("probe").code() == Code::kClosed; }));
  hurry.request_stop();
}

TEST_P(EndsConformance, PoliciesThatDropKeepToTheQueueWhateverTheNames) {
  for (const Policy policy : {Policy::kLatestOnly, Policy::kDropOldest}) {
    Inbox<std::string> seen;
    TestNode sender(0, fresh(), {}, small_queues());
    Stuck slow(1, sender, small_queues());
    constexpr std::size_t kNames = 300;
    for (std::size_t i = 0; i < kNames; ++i) {
      const std::string name = fmt::format("name{}", i);
      slow.node.on(name, [&, name](const Buffer&) {
        slow.door.pass();
        seen.add(name);
      });
    }
    // A peer that has not said what it listens to gets everything.
    ASSERT_TRUE(eventually([&] {
      return sender->peers().at(0).ready && sender->listens(1, fmt::format("name{}", kNames - 1));
    }));
    for (std::size_t i = 0; i < kNames; ++i) {
      ASSERT_TRUE(
          sender.send(fmt::format("name{}", i), {Target::all(), policy}, Buffer(kEventBytes)).ok());
      ASSERT_LE(sender.stats_of(1).queued_bytes, kQueue + 2 * (kEventBytes + 200));
    }
    const std::uint64_t dropped = sender.stats_of(1).dropped;
    EXPECT_GT(dropped, kNames / 3);
    std::uint64_t by_name = 0;
    for (const TopicStats& topic : sender->stats().topics) by_name += topic.dropped;
    EXPECT_EQ(by_name, dropped);
    slow.door.open();
    EXPECT_TRUE(eventually([&] { return slow.node->stats().gaps == dropped; }));
    EXPECT_TRUE(seen.reaches(kNames - dropped));
  }
}

TEST_P(EndsConformance, BesideEventsThatMayNotBeDroppedThereIsRoomForTheLatestOnly) {
  TestNode sender(0, fresh(), {}, small_queues());
  Stuck slow(1, sender, small_queues());
  ASSERT_TRUE(eventually([&] {
    fill(sender, 1);
    return sender.stats_of(1).queued_bytes > kQueue - kEventBytes - 200;
  }));
  const SendOptions options{Target::all(), Policy::kLatestOnly};
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(sender.send("n", options, -1, Buffer(kEventBytes)).ok());
  }
  EXPECT_LE(sender.stats_of(1).queued_bytes, kQueue + 2 * (kEventBytes + 200));
  const std::uint64_t dropped = sender.stats_of(1).dropped;
  EXPECT_GE(dropped, 7u);
  slow.door.open();
  EXPECT_TRUE(eventually([&] { return slow.node->stats().gaps == dropped; }));
}

TEST_P(EndsConformance, BelowItsBoundAnEmitDoesNotWaitForAPeerThatTakesNothing) {
  TestNode sender(0, fresh(), {});
  NodeOptions options;
  options.queue_bytes = kQueue;  // so much it takes, and no more
  Stuck slow(1, sender, options);
  constexpr int kCount = 5'000;
  std::atomic<int> sent{0};
  std::jthread emitter([&](const std::stop_token& stop) {
    for (; sent < kCount && !stop.stop_requested(); ++sent) {
      EXPECT_TRUE(sender.emit("n", sent.load(), Buffer(kEventBytes)).ok());
    }
  });
  // Of these 50 MB the sender keeps nearly all.
  EXPECT_TRUE(eventually([&] { return sent == kCount; })) << sent;
}

TEST_P(EndsConformance, CallbacksThatWaitForEachOtherAreToldAtOnceAndOneGoesOn) {
  NodeOptions options = small_queues();
  options.send_timeout = std::chrono::hours(1);
  constexpr int kCount = 200;
  Inbox<Status> outcomes;
  Inbox<int> seen;
  std::latch both{2};
  const auto flood = [&](TestNode& node) {
    both.arrive_and_wait();
    Status status;
    for (int i = 0; i < kCount && status.ok(); ++i) {
      status = node.emit("data", i, Buffer(kEventBytes));
    }
    outcomes.add(status);
  };
  TestNode a(0, fresh(), {}, options);
  TestNode b(1, "", {a->address()}, options);
  link(a, b);
  a.on("go", [&] { flood(a); });
  b.on("go", [&] { flood(b); });
  a.on("data", [&](int n, const Buffer&) { seen.add(n); });
  b.on("data", [](int, const Buffer&) {});
  ASSERT_TRUE(a.emit("go").ok());
  ASSERT_TRUE(b.emit("go").ok());
  ASSERT_TRUE(outcomes.reaches(2));
  const auto all = outcomes.values();
  EXPECT_EQ(all[0].code(), Code::kTimeout);
  EXPECT_THAT(all[0].message(), HasSubstr("node 0 and node 1 wait for each other"));
  EXPECT_TRUE(all[1].ok()) << all[1].message();
  EXPECT_TRUE(seen.reaches(kCount));
}

TEST_P(EndsConformance, CallbacksThatWaitForEachOtherAreToldAlsoAfterAReconnect) {
  NodeOptions options = small_queues();
  options.send_timeout = std::chrono::hours(1);
  constexpr int kCount = 200;
  Inbox<Status> outcomes;
  std::latch both{2};
  const auto flood = [&](TestNode& node) {
    both.arrive_and_wait();
    Status status;
    for (int i = 0; i < kCount && status.ok(); ++i) {
      status = node.emit("data", i, Buffer(kEventBytes));
    }
    outcomes.add(status);
  };
  TestNode a(0, fresh(), {}, options);
  BadWire wire(a->address());
  TestNode b(1, "", {wire.address()}, options);
  link(a, b);
  a.on("go", [&] { flood(a); });
  b.on("go", [&] { flood(b); });
  a.on("data", [](int, const Buffer&) {});
  b.on("data", [](int, const Buffer&) {});
  ASSERT_TRUE(a.emit("go").ok());
  ASSERT_TRUE(b.emit("go").ok());
  // Both wait; what they have said of it is lost with the connection.
  std::uint64_t before = 0;
  ASSERT_TRUE(eventually([&] {
    const auto is_full = [](const PeerStats& stats) {
      return stats.queued_bytes + kEventBytes > kQueue;
    };
    const std::uint64_t sent = a.stats_of(1).sent + b.stats_of(0).sent;
    return std::exchange(before, sent) == sent && is_full(a.stats_of(1)) && is_full(b.stats_of(0));
  }));
  wire.cut();
  ASSERT_TRUE(outcomes.reaches(2));
  const auto all = outcomes.values();
  EXPECT_EQ(all[0].code(), Code::kTimeout);
  EXPECT_THAT(all[0].message(), HasSubstr("node 0 and node 1 wait for each other"));
  EXPECT_TRUE(all[1].ok()) << all[1].message();
  EXPECT_GE(a.stats_of(1).reconnects, 1u);
}

TEST_P(EndsConformance, WhereWeAttachAPeerThatSaidGoodbyeIsDialledAgain) {
  TestNode first(0, fresh(), {});
  const std::string bound = first->address();
  NodeOptions options;
  options.lasting = {bound};
  TestNode stays(1, fresh(), {bound}, options);
  link(first, stays);
  first.close(1s);
  EXPECT_TRUE(stays.hears(PeerChange::kLeft, 0));
  for (int run = 2; run <= 3; ++run) {
    Inbox<int> heard;  // outlives the node whose callback fills it
    TestNode next(0, bound, {});
    EXPECT_TRUE(next.hears(PeerChange::kJoined, 1));
    next.on("n", [&](int n) { heard.add(n); });
    EXPECT_TRUE(eventually([&] { return stays.emit("n", run).ok() && heard.size() > 0; }));
  }
}

TEST_P(EndsConformance, AfterItsMainANodeTakesBackOldPeersOnly) {
  TestNode ending(0, fresh(), {});
  BadWire wire(ending->address());
  TestNode old(1, "", {wire.address()});
  link(ending, old);
  ending->welcome_newcomers(false);
  NodeOptions options;
  options.join_timeout = 300ms;
  TestNode late(2, "", {ending->address()}, options);
  EXPECT_EQ(late->join().code(), Code::kTimeout);
  wire.cut();
  EXPECT_TRUE(eventually([&] { return old.stats_of(0).reconnects == 1 && old.linked_with(0); }));
  EXPECT_FALSE(ending.linked_with(2));
  ending->welcome_newcomers(true);
  EXPECT_TRUE(eventually([&] { return ending.linked_with(2); }));
}

}  // namespace
}  // namespace divisi::mesh::testing
