#include "mesh/routes.h"

#include "divisi/detail/listener.h"
#include "divisi/event.h"
#include "mesh/testing/test_node.h"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

namespace divisi::mesh {
namespace {

using testing::Door;
using testing::Inbox;

class RoutesTest : public ::testing::Test {
 protected:
  ~RoutesTest() override { door_.open(); }

  void post(Routes& routes, int value) {
    PackScratch scratch;
    routes.post_local("topic", Payload::copy_of(pack_args(scratch, value)), 0);
  }

  // Events with a small number each, as a read brings them.
  class Read {
   public:
    explicit Read(int count, int first = 0) {
      topic_.name = "topic";
      for (int i = 0; i < count; ++i) {
        PackScratch scratch;
        const PayloadView& payload = pack_args(scratch, first + i);
        InEvent event;
        event.topic = &topic_;
        event.sequence = static_cast<std::uint64_t>(i + 1);
        event.codec = static_cast<std::uint8_t>(payload.codec);
        event.owner = static_cast<std::uint16_t>(received.owners.size());
        received.owners.push_back(Buffer::copy_of(payload.body));
        event.message = received.owners.back().data();
        event.length = event.body_length = static_cast<std::uint32_t>(payload.body.size());
        received.events.push_back(event);
      }
    }
    Received received;

   private:
    InTopic topic_;
  };

  void listen_at_the_door() {
    loop_.on("event", [&](int value) {
      seen_.add(value);
      door_.pass();
    });
  }
  static std::vector<int> counted_to(int count) {
    std::vector<int> values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), 0);
    return values;
  }

  Door door_;
  Inbox<int> seen_;
  EventLoop loop_{"routes"};
};

TEST_F(RoutesTest, WhatIsQueuedKeepsItsNameWhenItsRouteIsGone) {
  Routes routes(1 << 20);
  loop_.on("a name that does not fit into a string itself", [&](int value) {
    seen_.add(value);
    door_.pass();
  });
  ASSERT_TRUE(
      routes.subscribe("topic", "a name that does not fit into a string itself", loop_.core()));
  post(routes, 1);
  post(routes, 2);
  ASSERT_TRUE(seen_.reaches(1));
  ASSERT_TRUE(routes.unsubscribe("topic", loop_.core().get()));
  post(routes, 3);
  door_.open();
  ASSERT_TRUE(seen_.reaches(2));
  loop_.stop();
  EXPECT_EQ(seen_.values(), (std::vector{1, 2}));
}

TEST_F(RoutesTest, WhatWaitsForItsCallbackCountsWithAllThatItTakes) {
  constexpr int kCount = 1'000;
  Routes routes(1 << 20);
  listen_at_the_door();
  routes.subscribe("topic", "event", loop_.core());
  const auto gauge = std::make_shared<FlowGauge>();
  gauge->tell_after = 1 << 20;
  std::vector<LoopPtr> idle;
  Read read(kCount);
  routes.deliver(read.received, 1, gauge, idle);
  const std::uint64_t queued = gauge->queued;
  EXPECT_GT(queued, kCount * (kHeaderBytes + sizeof(InEvent)));
  EXPECT_LT(queued, kCount * 2 * (kHeaderBytes + sizeof(InEvent)));
  for (int i = 0; i < kCount; ++i) {
    Read alone(1);
    routes.deliver(alone.received, 1, gauge, idle);
  }
  EXPECT_GT(gauge->queued, queued + kCount * 256);
  for (const LoopPtr& loop : idle) loop->wake();
  door_.open();
  ASSERT_TRUE(seen_.reaches(2 * kCount));
  loop_.stop();
  EXPECT_EQ(gauge->queued, 0u) << "what was counted is given back";
}

TEST_F(RoutesTest, EveryListenerGetsWhatIsKeptInOrderAndOnce) {
  constexpr int kCount = 100;
  for (const int threads : {1, 3}) {
    EventLoop loop("kept", {.threads = threads});
    Routes routes(1 << 20);
    std::vector<LoopPtr> idle;
    std::vector<std::unique_ptr<Inbox<int>>> inboxes;
    const auto listen = [&] {
      inboxes.push_back(std::make_unique<Inbox<int>>());
      auto listener =
          detail::make_listener([inbox = inboxes.back().get()](int n) { inbox->add(n); });
      const bool is_behind = routes.begin_catch_up();
      const ListenerId id = loop.core()->add("event", std::move(listener), is_behind);
      routes.subscribe("topic", "event", loop.core());
      if (is_behind) routes.catch_up("topic", "event", loop.core(), id);
    };
    const auto arrive = [&](int first) {
      Read read(kCount, first);
      routes.deliver(read.received, 1, nullptr, idle);
      for (const LoopPtr& each : std::exchange(idle, {})) each->wake();
    };
    arrive(0);
    EXPECT_EQ(routes.held(), static_cast<std::uint64_t>(kCount));
    for (int round = 1; round <= 5; ++round) {
      listen();
      arrive(round * kCount);
      EXPECT_EQ(routes.held(), 0u);
    }
    routes.stop_holding();
    ASSERT_TRUE(inboxes[0]->reaches(6 * kCount));  // none of these waits for its callbacks
    listen();
    arrive(6 * kCount);
    for (std::size_t i = 0; i < 5; ++i) {
      ASSERT_TRUE(inboxes[i]->reaches(7 * kCount)) << i;
      EXPECT_EQ(inboxes[i]->values(), counted_to(7 * kCount)) << i;
    }
    ASSERT_TRUE(inboxes[5]->reaches(kCount));
    loop.stop();
    EXPECT_GE(inboxes[5]->values().front(), 5 * kCount) << "nothing is kept for one that is late";
    EXPECT_EQ(routes.unlistened(), 0u);
  }
}

TEST_F(RoutesTest, AReadyThatComesMeanwhileTakesNothingFromAListener) {
  Routes routes(1 << 20);
  std::vector<LoopPtr> idle;
  Read before(3);
  routes.deliver(before.received, 1, nullptr, idle);
  ASSERT_TRUE(routes.begin_catch_up());
  const ListenerId id =
      loop_.core()->add("event", detail::make_listener([&](int n) { seen_.add(n); }), true);
  routes.subscribe("topic", "event", loop_.core());
  routes.stop_holding();
  Read after(3, 3);
  routes.deliver(after.received, 1, nullptr, idle);
  routes.catch_up("topic", "event", loop_.core(), id);
  for (const LoopPtr& loop : idle) loop->wake();
  ASSERT_TRUE(seen_.reaches(6));
  loop_.stop();
  EXPECT_EQ(seen_.values(), counted_to(6));
  EXPECT_FALSE(routes.begin_catch_up());
  EXPECT_EQ(routes.unlistened(), 0u);
}

TEST_F(RoutesTest, WhatIsHeldForItsListenerCountsWithAllThatItTakes) {
  constexpr int kCount = 10'000;
  constexpr std::size_t kBytes = 100'000;
  Routes routes(kBytes);
  listen_at_the_door();
  door_.open();
  std::vector<LoopPtr> idle;
  std::uint64_t unlistened = 0;
  std::size_t heard = 0;
  for (int round = 0; round < 3; ++round) {
    Read read(kCount);
    routes.deliver(read.received, 1, nullptr, idle);
    const std::uint64_t held = routes.held();
    EXPECT_GT(held, kBytes / 1'000) << round;
    EXPECT_LT(held, kBytes / 256) << round;
    unlistened += kCount - held;
    EXPECT_EQ(routes.unlistened(), unlistened);
    routes.subscribe("topic", "event", loop_.core());
    EXPECT_EQ(routes.held(), 0u);
    heard += held;
    ASSERT_TRUE(seen_.reaches(heard));
    routes.unsubscribe("topic", loop_.core().get());
  }
}

}  // namespace
}  // namespace divisi::mesh
