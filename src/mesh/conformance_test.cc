// What every medium promises while all goes well: exchange, order, sizes, back-pressure, policies,
// directed events, pruning and holding. Faults: conformance_faults_test.cc.
#include "mesh/testing/medium.h"
#include "mesh/testing/test_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

namespace divisi::mesh::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class LinkConformance : public ::testing::TestWithParam<Medium> {
 protected:
  std::string fresh() { return GetParam().fresh_address(); }
};
INSTANTIATE_TEST_SUITE_P(Media, LinkConformance, ::testing::ValuesIn(all_media()),
                         [](const auto& item) { return std::string(item.param.name); });

Buffer filled(std::size_t size, std::size_t salt) {
  Buffer bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes.mutable_data()[i] = static_cast<std::byte>(i * 7 + salt);
  return bytes;
}

bool is_filled(const Buffer& bytes, std::size_t salt) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes.data()[i] != static_cast<std::byte>(i * 7 + salt)) return false;
  }
  return true;
}

std::vector<int> counted_to(int n) {
  std::vector<int> all(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) all[static_cast<std::size_t>(i)] = i;
  return all;
}

TEST_P(LinkConformance, EventsTravelBothWays) {
  Inbox<std::string> answers;
  TestNode a(0, fresh(), {});
  TestNode b(1, "", {a->address()});
  link(a, b);
  b.on("question", [&](const std::string& text) { (void)b.emit("answer", text + "!"); });
  a.on("answer", [&](const std::string& text) { answers.add(text); });
  ASSERT_TRUE(a.emit("question", std::string("who")).ok());
  ASSERT_TRUE(answers.reaches(1));
  EXPECT_EQ(answers.values().front(), "who!");
}

TEST_P(LinkConformance, WhetherItHasJoinedAndFlushedMayBeAskedAtAnyTime) {
  Inbox<int> seen;
  TestNode a(0, fresh(), {});
  TestNode b(1, "", {a->address()});
  const std::jthread asking([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      (void)b->joined();
      (void)b->flushed();
    }
  });
  link(a, b);
  a.on("n", [&](int n) { seen.add(n); });
  for (int i = 0; i < 1'000; ++i) ASSERT_TRUE(b.emit("n", i).ok());
  ASSERT_TRUE(seen.reaches(1'000));
  EXPECT_TRUE(b->joined());
  EXPECT_TRUE(eventually([&] { return b->flushed(); }));
}

TEST_P(LinkConformance, TenThousandEventsOfSeveralNamesKeepTheirOrder) {
  Inbox<int> seen;
  TestNode a(0, fresh(), {});
  TestNode b(1, "", {a->address()});
  link(a, b);
  for (const char* name : {"x", "y", "z"}) {
    a.on(name, [&](int n, const std::string&) { seen.add(n); });
  }
  for (int i = 0; i < 10'000; ++i) {
    const std::string name(1, "xyz"[i % 3]);
    ASSERT_TRUE(b.emit(name, i, std::string(static_cast<std::size_t>(i % 700), 'p')).ok());
  }
  ASSERT_TRUE(seen.reaches(10'000));
  EXPECT_EQ(seen.values(), counted_to(10'000));
}

TEST_P(LinkConformance, SeveralThreadsEmitAtOnceAndEachKeepsItsOrder) {
  Inbox<std::pair<int, int>> seen;
  TestNode a(0, fresh(), {});
  TestNode b(1, "", {a->address()});
  link(a, b);
  a.on("n", [&](int thread, int n) { seen.add({thread, n}); });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2'000; ++i) EXPECT_TRUE(b.emit("n", t, i).ok());
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(seen.reaches(8'000));
  std::vector<int> by_thread[4];
  for (const auto& [thread, n] : seen.values()) by_thread[thread].push_back(n);
  for (const auto& numbers : by_thread) EXPECT_EQ(numbers, counted_to(2'000));
}

TEST_P(LinkConformance, MessagesFromNothingTo32MiBArriveUnchanged) {
  Inbox<std::pair<std::size_t, bool>> seen;
  TestNode a(0, fresh(), {});
  TestNode b(1, "", {a->address()});
  link(a, b);
  // Around every limit on the way: copies, direct landing, chunks.
  const std::vector<std::size_t> sizes = {0,       1,       8'191,   8'192,     32'768,
                                          65'536,  262'100, 262'144, 262'145,   524'288,
                                          700'001, 1 << 20, 5 << 20, 32u << 20, 3};
  a.on("n", [&](std::size_t k, const Buffer& bytes, const std::string& text) {
    seen.add({bytes.size(), is_filled(bytes, k) && text.size() == k * 5'000});
  });
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    ASSERT_TRUE(b.emit("n", k, filled(sizes[k], k), std::string(k * 5'000, 't')).ok());
  }
  ASSERT_TRUE(seen.reaches(sizes.size()));
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    EXPECT_EQ(seen.values()[k], std::pair(sizes[k], true)) << k;
  }
}

TEST_P(LinkConformance, AMessageAboveTheLimitIsRefusedByItsSender) {
  NodeOptions options;
  options.max_message_bytes = 100'000;
  TestNode a(0, fresh(), {});
  TestNode b(1, "", {a->address()}, options);
  link(a, b);
  const Status refused = b.emit("n", filled(100'001, 0));
  EXPECT_EQ(refused.code(), Code::kInvalid);
  EXPECT_THAT(refused.message(), HasSubstr("at most 100000"));
  EXPECT_EQ(b.emit(std::string(300, 'n'), 1).code(), Code::kInvalid);
}

TEST_P(LinkConformance, AMessageAboveTheLimitOfItsReceiverIsRefusedAndTheLinkStays) {
  NodeOptions options;
  options.max_message_bytes = 1'000'000;
  Inbox<std::size_t> seen;
  TestNode a(0, fresh(), {});
  TestNode b(1, "", {a->address()}, options);
  link(a, b);
  b.on("n", [&](const Buffer& bytes) { seen.add(bytes.size()); });
  const Status refused = a.emit("n", filled(1'000'001, 0));
  EXPECT_EQ(refused.code(), Code::kInvalid);
  EXPECT_THAT(refused.message(), HasSubstr("node 1 takes at most 1000000"));
  ASSERT_TRUE(a.emit("n", filled(999'000, 0)).ok());
  ASSERT_TRUE(seen.reaches(1));
  EXPECT_EQ(a.stats_of(1).reconnects, 0u);
}

// A receiver whose callback waits, with small queues.
class SlowReceiver {
 public:
  SlowReceiver(const std::string& address, NodeOptions options)
      : sender(0, address, {}, options), slow(1, "", {sender->address()}, options) {
    link(sender, slow);
    slow.on("n", [this](int n, const Buffer&) {
      seen.add(n);
      door.pass();
    });
    slow->ready();
  }
  ~SlowReceiver() { door.open(); }

  static NodeOptions small_queues() {
    NodeOptions options;
    options.queue_bytes = 1 << 20;
    options.memory_bytes = 8 << 20;
    return options;
  }

  Door door;
  Inbox<int> seen;
  TestNode sender;
  TestNode slow;
};

TEST_P(LinkConformance, ASlowReceiverHoldsUpItsSenderInBoundedMemoryAndNobodyElse) {
  Inbox<int> others;
  SlowReceiver pair(fresh(), SlowReceiver::small_queues());
  TestNode other(2, "", {pair.sender->address()}, SlowReceiver::small_queues());
  link(pair.sender, other);
  other.on("o", [&](int n) { others.add(n); });

  constexpr int kCount = 400;
  std::atomic<int> sent{0};
  std::thread flood([&] {
    for (int i = 0; i < kCount; ++i) {
      EXPECT_TRUE(
          pair.sender.send("n", {Target::to_node(1), Policy::kBlock}, i, filled(20'000, 0)).ok());
      ++sent;
    }
  });
  // Full: the queues of both sides and the sockets between them hold what was sent, no more.
  const auto queued = [&] { return pair.sender.stats_of(1).queued_bytes; };
  EXPECT_TRUE(eventually([&] { return queued() + 20'000 > (1 << 20); }));
  EXPECT_LE(queued(), (1u << 20) + 40'000);
  EXPECT_LT(sent, kCount);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(pair.sender.send("o", {Target::to_node(2), Policy::kBlock}, i).ok());
  }
  EXPECT_TRUE(others.reaches(100));
  EXPECT_LE(queued(), (1u << 20) + 40'000);
  // What the receiver took and has not handed to the callback is bounded by its window.
  EXPECT_LE(pair.slow.stats_of(0).received * 20'000, (1u << 20) + 2 * 40'000);
  EXPECT_LT(sent, kCount);
  pair.door.open();
  flood.join();
  ASSERT_TRUE(pair.seen.reaches(kCount));
  EXPECT_EQ(pair.seen.values(), counted_to(kCount));
}

TEST_P(LinkConformance, TinyEventsForASlowReceiverAreBoundedByWhatTheyTake) {
  const NodeOptions options = SlowReceiver::small_queues();
  Door door;
  Inbox<int> seen;
  TestNode sender(0, fresh(), {}, options);
  TestNode slow(1, "", {sender->address()}, options);
  link(sender, slow);
  slow.on("n", [&](int n) {
    seen.add(n);
    door.pass();
  });
  slow->ready();
  // Both queues together hold three quarters of them, although the payloads are 1 to 5 bytes.
  constexpr int kCount = 100'000;
  constexpr std::size_t kLeastFrame = kHeaderBytes + kMessagePrefix + 1;
  std::atomic<int> sent{0};
  std::thread flood([&] {
    for (int i = 0; i < kCount; ++i, ++sent) EXPECT_TRUE(sender.emit("n", i).ok());
  });
  EXPECT_TRUE(eventually([&] {
    return sender.stats_of(1).queued_bytes + 100 > options.queue_bytes || sent == kCount;
  }));
  EXPECT_LE(slow.stats_of(0).received, options.queue_bytes / kLeastFrame + 1);
  EXPECT_LT(sent, kCount);
  door.open();
  flood.join();
  ASSERT_TRUE(seen.reaches(kCount));
  EXPECT_EQ(seen.values(), counted_to(kCount));
}

TEST_P(LinkConformance, AnEmitThatWaitsTooLongFailsAndNamesThePeer) {
  NodeOptions options = SlowReceiver::small_queues();
  options.send_timeout = 200ms;
  SlowReceiver pair(fresh(), options);
  Status status;
  int sent = 0;
  for (; status.ok() && sent < 1'000; ++sent)
    status = pair.sender.emit("n", sent, filled(20'000, 0));
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("node 1"));
  EXPECT_THAT(status.message(), HasSubstr("'n'"));
  pair.door.open();
  ASSERT_TRUE(pair.seen.reaches(static_cast<std::size_t>(sent - 1)));
  EXPECT_EQ(pair.seen.values(), counted_to(sent - 1));
}

TEST_P(LinkConformance, TheLongestTimeoutsWait) {
  NodeOptions options = SlowReceiver::small_queues();
  options.send_timeout = options.join_timeout = std::chrono::milliseconds::max();
  SlowReceiver pair(fresh(), options);
  constexpr int kCount = 200;
  std::thread flood([&] {
    for (int i = 0; i < kCount; ++i) EXPECT_TRUE(pair.sender.emit("n", i, filled(20'000, 0)).ok());
  });
  EXPECT_TRUE(
      eventually([&] { return pair.sender.stats_of(1).queued_bytes + 20'000 > (1 << 20); }));
  pair.door.open();
  flood.join();
  EXPECT_TRUE(pair.sender->flush(std::chrono::milliseconds::max()));
  ASSERT_TRUE(pair.seen.reaches(kCount));
  EXPECT_TRUE(pair.sender->wait_for_peers(1, std::chrono::milliseconds::max()));
}

TEST_P(LinkConformance, ThePolicyErrorRefusesAtOnce) {
  SlowReceiver pair(fresh(), SlowReceiver::small_queues());
  Status status;
  int sent = 0;
  for (; status.ok() && sent < 1'000; ++sent) {
    status = pair.sender.send("n", {Target::all(), Policy::kError}, sent, filled(20'000, 0));
  }
  EXPECT_EQ(status.code(), Code::kWouldBlock);
  EXPECT_THAT(status.message(), HasSubstr("node 1"));
  pair.door.open();
  ASSERT_TRUE(pair.seen.reaches(static_cast<std::size_t>(sent - 1)));
  EXPECT_EQ(pair.seen.values(), counted_to(sent - 1));
}

void expect_drops_told(SlowReceiver& pair, Policy policy) {
  constexpr int kCount = 1'000;
  for (int i = 0; i < kCount; ++i) {
    ASSERT_TRUE(pair.sender.send("n", {Target::all(), policy}, i, filled(20'000, 0)).ok());
  }
  const auto dropped = pair.sender.stats_of(1).dropped;
  EXPECT_GT(dropped, 500u);
  pair.door.open();
  ASSERT_TRUE(pair.seen.reaches(kCount - dropped));
  EXPECT_TRUE(pair.sender->flush(kDeadline));
  const auto seen = pair.seen.values();
  EXPECT_EQ(seen.size(), kCount - dropped);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), seen.size());
  EXPECT_EQ(seen.back(), kCount - 1);
  EXPECT_TRUE(eventually([&] { return pair.slow.stats_of(0).gaps == dropped; }))
      << pair.slow.stats_of(0).gaps << " of " << dropped;
  for (const TopicStats& topic : pair.sender->stats().topics) {
    if (topic.topic == "n") {
      EXPECT_EQ(topic.dropped, dropped);
    }
  }
}

TEST_P(LinkConformance, DropOldestKeepsTheNewestAndBothSidesCountTheRest) {
  SlowReceiver pair(fresh(), SlowReceiver::small_queues());
  expect_drops_told(pair, Policy::kDropOldest);
}

TEST_P(LinkConformance, LatestOnlyKeepsTheNewestAndBothSidesCountTheRest) {
  SlowReceiver pair(fresh(), SlowReceiver::small_queues());
  expect_drops_told(pair, Policy::kLatestOnly);
  // Of those that waited in the sender only one was kept.
  EXPECT_LT(pair.sender.stats_of(1).queued_bytes, 100'000u);
}

TEST_P(LinkConformance, MessagesLargerThanTheQueueGoOneByOne) {
  NodeOptions options;
  options.queue_bytes = 100'000;
  options.send_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(kDeadline);
  Inbox<int> seen;
  TestNode a(0, fresh(), {}, options);
  TestNode b(1, "", {a->address()}, options);
  link(a, b);
  a.on("n", [&](int n, const Buffer& bytes) { seen.add(is_filled(bytes, 3) ? n : -1); });
  const Buffer bytes = filled(400'000, 3);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(b.emit("n", i, bytes).ok());
  ASSERT_TRUE(seen.reaches(200));
  EXPECT_EQ(seen.values(), counted_to(200));
}

TEST_P(LinkConformance, TwoCallbacksThatFloodEachOtherFinish) {
  NodeOptions options = SlowReceiver::small_queues();
  options.memory_bytes = 64 << 20;
  Inbox<int> seen_a;
  Inbox<int> seen_b;
  TestNode a(0, fresh(), {}, options);
  TestNode b(1, "", {a->address()}, options);
  link(a, b);
  const auto flood = [](TestNode& node, int n) {
    for (int i = 0; i < 100; ++i)
      EXPECT_TRUE(node.emit("back", n * 100 + i, filled(1'000, 0)).ok());
  };
  a.on("go", [&](int n) { flood(a, n); });
  b.on("go", [&](int n) { flood(b, n); });
  a.on("back", [&](int n, const Buffer&) { seen_a.add(n); });
  b.on("back", [&](int n, const Buffer&) { seen_b.add(n); });
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(a.emit("go", i).ok());
    ASSERT_TRUE(b.emit("go", i).ok());
  }
  ASSERT_TRUE(seen_a.reaches(10'000));
  ASSERT_TRUE(seen_b.reaches(10'000));
  EXPECT_EQ(seen_a.values(), counted_to(10'000));
  EXPECT_EQ(seen_b.values(), counted_to(10'000));
}

TEST_P(LinkConformance, EventsHeldInALoopOutliveTheirNode) {
  auto pair = std::make_unique<SlowReceiver>(fresh(), SlowReceiver::small_queues());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(pair->sender.emit("n", i, filled(30'000, 0)).ok());
  ASSERT_TRUE(pair->seen.reaches(1));
  ASSERT_TRUE(eventually([&] { return pair->slow.stats_of(0).received == 20; }));
  pair->slow.kill();
  pair->door.open();
  ASSERT_TRUE(pair->seen.reaches(20));
}

}  // namespace
}  // namespace divisi::mesh::testing
