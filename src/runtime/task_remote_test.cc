// Tasks of several nodes, linked by a fake network: what a task asks of its router, and what it
// does with what comes. The same behaviours over real links are tested with the router itself.
#include "base/testing/wait_until.h"
#include "divisi/task.h"
#include "event/reclaim.h"
#include "runtime/task_fake_router.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace divisi {
namespace {

using namespace std::chrono_literals;
using runtime::testing::FakeRouter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using testing::wait_until;

class TaskRemoteTest : public ::testing::Test {
 protected:
  TaskRemoteTest() { FakeRouter::link(router0_, router1_); }

  // Waits until `task` has handled everything that was posted to it before.
  static void settle(Task& other) {
    auto done = std::make_shared<std::promise<void>>();
    const ListenerId id = other.on("settle", [done] { done->set_value(); });
    other.emit("settle", only_local);
    ASSERT_EQ(done->get_future().wait_for(30s), std::future_status::ready);
    other.off("settle", id);
  }
  static void wait_for_error(const Task& other) {
    wait_until("an error is stored", [&] { return other.stored_error() != nullptr; });
  }

  FakeRouter router0_{0};
  FakeRouter router1_{1};
  Task node0_{router0_};
  Task node1_{router1_};
};

// The peer answers at once, before wait() is called.
TEST_F(TaskRemoteTest, AnswersUnderExpectedNamesAreNotMissed) {
  const auto running0 = node0_.start();
  const auto running1 = node1_.start();
  node1_.on("ask", [&](int i) { node1_.emit(fmt::format("reply_{}", i), only_remote, i); });
  for (int i = 0; i < 300; ++i) {
    const std::string name = fmt::format("reply_{}", i);
    auto reply = node0_.expect(name);
    node0_.emit("ask", only_remote, i);
    settle(node1_);
    settle(node0_);
    const auto args = reply.wait({.timeout = 30s});
    ASSERT_TRUE(args.has_value()) << name;
    EXPECT_EQ((*args)[0].as<int>(), i);
  }
  EXPECT_EQ(router0_.subscriptions("task.reply_299"), 0u) << "the interest ends with the object";
}

TEST_F(TaskRemoteTest, AnExpectedEventMayBeWaitedForAgain) {
  EXPECT_THROW(static_cast<void>(node0_.expect("e")), UsageError);
  const auto running0 = node0_.start();
  auto first = node0_.expect("e");
  EXPECT_FALSE(first.wait({.timeout = 0s}).has_value());
  EXPECT_THROW(first.wait({.timeout = 0s, .ignore_timeout = false}), TimeoutError);
  node0_.emit("e", 1);
  node0_.emit("e", 2);
  settle(node0_);
  auto moved = std::move(first);
  EXPECT_THROW(first.wait(), UsageError);  // NOLINT(bugprone-use-after-move): that is the test
  EXPECT_EQ((*moved.wait({.timeout = 30s}))[0].as<int>(), 1);
  EXPECT_THROW(moved.wait(), UsageError);
}

TEST_F(TaskRemoteTest, AnExpectedEventThatFollowsACancelledWaitIsKept) {
  const auto running0 = node0_.start();
  auto expected = node0_.expect("e");
  std::stop_source cancelled;
  cancelled.request_stop();
  EXPECT_FALSE(expected.wait({.timeout = 30s, .stop = cancelled.get_token()}).has_value());
  node0_.emit("e", 1);
  settle(node0_);
  const auto args = expected.wait({.timeout = 30s});
  ASSERT_TRUE(args.has_value());
  EXPECT_EQ((*args)[0].as<int>(), 1);
}

TEST_F(TaskRemoteTest, AnEmitReachesLocalListenersAndPeersOnceEach) {
  int local = 0;
  int remote = 0;
  {
    const auto running0 = node0_.start();
    const auto running1 = node1_.start();
    node0_.on("greeting", [&](std::string) { ++local; });
    node1_.on("greeting", [&](std::string) { ++remote; });
    node0_.emit("greeting", "Hi");
    node0_.emit("greeting", only_remote, "Hi");
    node0_.emit("greeting", only_local, "Hi");
    node0_.emit_remote("greeting", "Hi");
    settle(node0_);
    settle(node1_);
  }
  EXPECT_EQ(local, 2);
  EXPECT_EQ(remote, 3);
  EXPECT_EQ(router0_.sent("task.greeting").size(), 3u);
}

TEST_F(TaskRemoteTest, A042D18ThreeListenersGetARemoteEventOnceEach) {
  std::vector<int> calls(3);
  const auto running0 = node0_.start();
  const auto running1 = node1_.start();
  for (int& count : calls) node1_.on("e", [&count](int) { ++count; });
  EXPECT_EQ(router1_.subscriptions("task.e"), 1u);
  node0_.emit("e", 1);
  settle(node1_);
  EXPECT_THAT(calls, ElementsAre(1, 1, 1));
}

TEST_F(TaskRemoteTest, A043D19OffOfOneListenerKeepsTheOthersConnected) {
  int f = 0;
  int g = 0;
  const auto running0 = node0_.start();
  const auto running1 = node1_.start();
  const ListenerId first = node1_.on("e", [&] { ++f; });
  node1_.on("e", [&] { ++g; });
  node1_.off("e", first);
  node0_.emit("e");
  settle(node1_);
  EXPECT_EQ(f, 0);
  EXPECT_EQ(g, 1);
  node1_.off("e");
  EXPECT_EQ(router1_.subscriptions("task.e"), 0u);
}

TEST_F(TaskRemoteTest, OffOfTheLastListenerTellsPeersToSendNoMore) {
  const auto running = node1_.start();
  const ListenerId first = node1_.on("e", [] {});
  const ListenerId second = node1_.on("e", [] {});
  const ListenerId other = node1_.on("e2", [] {});
  node1_.off("e", first);
  EXPECT_EQ(router1_.subscriptions("task.e"), 1u);
  node1_.off("e", second);
  EXPECT_EQ(router1_.subscriptions("task.e"), 0u);
  EXPECT_EQ(router1_.subscriptions("task.e2"), 1u);
  node1_.off("e*", other);
  EXPECT_EQ(router1_.subscriptions("task.e2"), 0u);
}

TEST_F(TaskRemoteTest, A044KeywordArgumentsTravel) {
  int seen = 0;
  const auto running0 = node0_.start();
  const auto running1 = node1_.start();
  node1_.on("e", [&](int one, Kwargs kwargs) { seen = 10 * one + kwargs.at("x").as<int>(); });
  node0_.emit("e", 1, kw("x", 2));
  settle(node1_);
  EXPECT_EQ(seen, 12);
}

TEST_F(TaskRemoteTest, A046D05ARaisingListenerDoesNotStopLaterEventsAndRunRaisesIt) {
  std::vector<int> seen;
  auto running0 = node0_.start();
  const auto running1 = node1_.start();
  node1_.on("e", [&](int value) {
    seen.push_back(value);
    if (value == 1) throw std::runtime_error("on a remote event");
  });
  node1_.use([&](Context& ctx) {
    if (ctx.total_step != 0) return;
    for (int i = 0; i < 4; ++i) node0_.emit("e", i);
    wait_for_error(node1_);
  });
  EXPECT_THAT([&] { node1_.run(5); },
              ThrowsMessage<std::runtime_error>(HasSubstr("on a remote event")));
  EXPECT_EQ(node1_.ctx().total_step, 0);
  node0_.emit("e", 4);
  running0.stop();
  // Stopping drains: all five were delivered although the second failed.
  try {
    node1_.stop();
  } catch (const std::runtime_error&) {
  }
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(TaskRemoteTest, AWrongTypeFromAPeerIsReportedLikeACallbackError) {
  auto running0 = node0_.start();
  auto running1 = node1_.start();
  node1_.on("typed", [](int) {});
  node0_.emit("typed", "text");
  wait_for_error(node1_);
  EXPECT_THAT([&] { node1_.emit("x"); },
              ThrowsMessage<UsageError>(::testing::AllOf(HasSubstr("typed"), HasSubstr("int32"))));
}

TEST_F(TaskRemoteTest, StopTellsThePeersToFinishAndTheyEndTheirIteration) {
  std::vector<std::string> trace;
  const auto running1 = node1_.start();
  node1_.use([&](Context& ctx) {
    if (ctx.total_step == 2) {
      node0_.with({}, [] {});
      wait_until("node 1 is told to finish", [&] { return node1_.finish(); });
    }
    trace.push_back("first " + std::to_string(ctx.total_step));
  });
  node1_.use([&](Context& ctx) { trace.push_back("second " + std::to_string(ctx.total_step)); });
  node1_.run();
  EXPECT_EQ(trace.back(), "second 2");
  EXPECT_EQ(node1_.ctx().total_step, 2);
}

TEST_F(TaskRemoteTest, FinishSpreadsHopByHop) {
  FakeRouter router2(2);
  FakeRouter::link(router1_, router2);
  Task node2(router2);
  const auto run_for_ever = [](Task& other, std::promise<void>& started) {
    const auto running = other.start();
    started.set_value();
    other.use([](Context&) { std::this_thread::yield(); });
    other.run();
  };
  std::promise<void> started1;
  std::promise<void> started2;
  std::thread thread1([&] { run_for_ever(node1_, started1); });
  std::thread thread2([&] { run_for_ever(node2, started2); });
  started1.get_future().wait();
  started2.get_future().wait();
  node0_.with({}, [] {});  // linked to node 1 only
  thread1.join();
  thread2.join();
  EXPECT_EQ(router1_.sent("task.finish").size(), 1u);
}

TEST_F(TaskRemoteTest, SettingFinishIsLocalUntilStop) {
  auto running0 = node0_.start();
  const auto running1 = node1_.start();
  node0_.set_finish();
  EXPECT_TRUE(router0_.sent("task.finish").empty());
  EXPECT_FALSE(node1_.finish());
  running0.stop();
  settle(node1_);
  EXPECT_TRUE(node1_.finish());
}

TEST_F(TaskRemoteTest, D17AnExceptionThatWillBeRetriedTellsNobody) {
  router0_.retries_left = true;
  EXPECT_THROW(node0_.with({}, [] { throw std::runtime_error("retry me"); }), std::runtime_error);
  EXPECT_TRUE(router0_.sent("task.finish").empty());
  EXPECT_EQ(router0_.subscriptions(), 0u) << "listeners of the failed attempt are removed";
}

TEST_F(TaskRemoteTest, D17TheLastFailureTellsFinishWithItsFlag) {
  const auto running1 = node1_.start();
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(node0_.with({}, [] { throw std::runtime_error("the end"); }), std::runtime_error);
  settle(node1_);
  const std::string log = ::testing::internal::GetCapturedStderr();
  const auto sent = router0_.sent("task.finish");
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(sent[0].args[0].as<bool>());
  EXPECT_TRUE(sent[0].args.kwarg("failed").as<bool>());
  EXPECT_TRUE(node1_.finish());
  EXPECT_THAT(log, HasSubstr("ended by a failure"));
}

TEST_F(TaskRemoteTest, AnEndWithoutExceptionTellsFinishEvenIfRetriesAreLeft) {
  router0_.retries_left = true;
  node0_.with({}, [] {});
  const auto sent = router0_.sent("task.finish");
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(sent[0].args.kwargs.empty());
}

TEST_F(TaskRemoteTest, D20WaitForLeavesNoListenerAndOneSubscription) {
  const auto running0 = node0_.start();
  const auto running1 = node1_.start();
  for (int i = 0; i < 5; ++i) {
    std::thread sender([&] {
      wait_until("node 1 waits for the answer", [&] { return node1_.listened("answer"); });
      node0_.emit("answer", i);
    });
    const auto args = node1_.wait_for("answer", {.timeout = 30s});
    sender.join();
    ASSERT_TRUE(args.has_value());
    EXPECT_EQ(args->get<int>(0), i);
    EXPECT_FALSE(node1_.listened("answer"));
  }
  EXPECT_EQ(router1_.subscriptions("task.answer"), 1u);
}

TEST_F(TaskRemoteTest, NamesMadeUpAsOneGoesDoNotAddUp) {
  constexpr int kNames = 4'000;
  constexpr std::size_t kMost = 2'000;
  const auto running0 = node0_.start();
  const auto running1 = node1_.start();
  std::atomic<int> heard{0};
  node0_.on("stays", [&] { ++heard; });
  node0_.once("once", [&] { ++heard; });
  std::thread waiting([&] { EXPECT_TRUE(node0_.wait_for("goes on", {.timeout = 10min})); });
  while (router0_.subscriptions("task.goes on") == 0) std::this_thread::yield();
  std::size_t most = 0;
  for (int i = 0; i < kNames; ++i) {
    const std::string name = "reply_" + std::to_string(i);
    if (i % 2 == 0) {
      EXPECT_FALSE(node0_.wait_for(name, {.timeout = 0s}));
    } else {
      node0_.once(name, [] {});
      node0_.emit(name, only_local);
    }
    most = std::max(most, router0_.subscriptions());
  }
  EXPECT_LT(most, kMost);
  node1_.emit("stays");
  node1_.emit("once");
  node1_.emit("goes on");
  waiting.join();
  settle(node0_);
  EXPECT_EQ(heard, 2);
}

TEST_F(TaskRemoteTest, WhatAListenerTookWithItMayCallTheTaskWhenItIsFreed) {
  const auto running0 = node0_.start();
  node0_.wait_for("waited for", {.timeout = 0s});
  bool freed = false;
  // As if the last reader of a listener left just now: whoever reads next frees it.
  event::retire(std::shared_ptr<const void>(&freed, [this](bool* flag) {
    node0_.off("other");
    *flag = true;
  }));
  node0_.off("waited for");
  EXPECT_EQ(router0_.subscriptions("task.waited for"), 0u);
  event::reclaim();
  EXPECT_TRUE(freed);
}

TEST_F(TaskRemoteTest, AWaitWhileManyOthersEndIsSubscribed) {
  const auto running0 = node0_.start();
  std::atomic<bool> done{false};
  std::thread others([&] {
    for (int i = 0; !done; ++i) {
      node0_.wait_for("reply_" + std::to_string(i), {.timeout = 0s});
    }
  });
  for (int round = 0; round < 2'000; ++round) {
    const std::string name = "mine_" + std::to_string(round % 1'500);
    const ListenerId id = node0_.on(name, [] {});
    EXPECT_EQ(router0_.subscriptions("task." + name), 1u) << round;
    node0_.off(name, id);
  }
  done = true;
  others.join();
}

TEST_F(TaskRemoteTest, D46EmitsDoNotNeedAFreeThreadOfThePool) {
  const auto running0 = node0_.start();
  const auto running1 = node1_.start({.async_mode = true, .n_async_workers = 1});
  std::atomic<bool> asked{false};
  node0_.on("question", [&] { asked = true; });
  // The only thread of the pool waits for an answer to the question it sent itself.
  node1_.use([&](Context&) {
    node1_.emit("question");
    EXPECT_FALSE(node1_.wait_for("answer", {.timeout = 10ms}).has_value());
    wait_until("node 0 is asked", [&] { return asked.load(); });
  });
  node1_.run(1);
  EXPECT_TRUE(asked);
}

TEST_F(TaskRemoteTest, RunAndWaitForTellTheRouterThatTheListenersAreMade) {
  const auto running0 = node0_.start();
  EXPECT_EQ(router0_.ready_calls, 0);
  node0_.wait_for("never", {.timeout = 1ms});
  EXPECT_EQ(router0_.ready_calls, 1);
  node0_.run(1);
  EXPECT_EQ(router0_.ready_calls, 2) << "also with an empty pipeline";
}

TEST_F(TaskRemoteTest, StopFlushesAndRemovesEverySubscription) {
  auto running0 = node0_.start();
  node0_.on("a", [] {});
  node0_.once("b", [] {});
  node0_.wait_for("c", {.timeout = 1ms});
  EXPECT_EQ(router0_.subscriptions(), 4u) << "a, b, c and finish";
  running0.stop();
  EXPECT_EQ(router0_.subscriptions(), 0u);
  EXPECT_EQ(router0_.flushes, 1);
}

TEST_F(TaskRemoteTest, OffOfEverythingKeepsTheTasksOwnEar) {
  int mine = 0;
  const auto running0 = node0_.start();
  node0_.on("finish", [&](bool) { ++mine; });
  node0_.on("other", [] {});
  node0_.off("*");
  node1_.with({}, [] {});
  settle(node0_);
  EXPECT_TRUE(node0_.finish());
  EXPECT_EQ(mine, 0);
  EXPECT_EQ(router0_.subscriptions("task.other"), 0u);
}

TEST_F(TaskRemoteTest, TargetAndPolicyReachTheRouter) {
  int local = 0;
  {
    const auto running0 = node0_.start();
    node0_.on("e", [&](int) { ++local; });
    node0_.emit("e", Target::to_node(1), 1);
    node0_.emit("e", Target::to_node(0), 1);
    node0_.emit("e", EmitOptions{.to = Target::one_of_label("gpu*"), .policy = Policy::kLatestOnly},
                1);
  }
  const auto sent = router0_.sent("task.e");
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].options.to.kind, Target::Kind::kNode);
  EXPECT_EQ(sent[0].options.to.node, 1);
  EXPECT_EQ(sent[2].options.to.pattern, "gpu*");
  EXPECT_TRUE(sent[2].options.to.one_of);
  EXPECT_EQ(sent[2].options.policy, Policy::kLatestOnly);
  EXPECT_EQ(local, 1) << "only the emit that meant node 0";
}

TEST_F(TaskRemoteTest, ALabelOfTheTaskMeansThisNode) {
  std::vector<std::string> heard;
  {
    const auto running0 = node0_.start({.async_mode = true, .labels = {"own"}});
    node0_.on("e", [&](std::string label) { heard.push_back(std::move(label)); });
    for (const std::string label : {"own", "async", "node.1", "node.0", "distributed"}) {
      node0_.emit("e", Target::to_label(label), label);
    }
  }
  EXPECT_EQ(router0_.sent("task.e").size(), 5u);
  EXPECT_THAT(heard, ::testing::ElementsAre("own", "async", "node.0", "distributed"));
}

TEST_F(TaskRemoteTest, WhoListensWhileAnotherStopsIsSubscribed) {
  const auto running0 = node0_.start();
  ListenerId last = node0_.on("e", [] {});
  for (int round = 0; round < 2'000; ++round) {
    std::thread other([&] { node0_.off("e", last); });
    const ListenerId next = node0_.on("e", [] {});
    other.join();
    ASSERT_EQ(router0_.subscriptions("task.e"), 1u) << round;
    last = next;
  }
}

TEST_F(TaskRemoteTest, LabelsAreAnnouncedForTheLifeOfTheTask) {
  using ::testing::ElementsAre;
  using ::testing::IsEmpty;
  {
    const auto running0 = node0_.start({.async_mode = true, .labels = {"own"}});
    EXPECT_THAT(router0_.announced_labels, ElementsAre("async", "own"));
  }
  EXPECT_THAT(router0_.announced_labels, IsEmpty());
}

TEST_F(TaskRemoteTest, LabelsAndRolesThatCannotTravelAreRefused) {
  const std::string longest(255, 'x');
  EXPECT_THAT([&] { static_cast<void>(node0_.start({.labels = {longest + "x"}})); },
              ThrowsMessage<Error>(HasSubstr("1 to 255 bytes, not 256")));
  EXPECT_THAT([&] { static_cast<void>(node0_.start({.labels = {""}})); },
              ThrowsMessage<Error>(HasSubstr("1 to 255 bytes, not 0")));
  const auto running0 = node0_.start({.labels = {longest}});
  EXPECT_THAT([&] { node0_.add_role(longest + "x"); },
              ThrowsMessage<UsageError>(HasSubstr("1 to 255 bytes, not 256")));
  node0_.add_role(longest);
}

TEST_F(TaskRemoteTest, AnErrorOfTheRouterLeavesTheEmit) {
  const auto running0 = node0_.start();
  router0_.on_send = [](std::string_view topic) {
    if (topic == "task.full") throw Error(Code::kWouldBlock, "peer 1 is full");
  };
  EXPECT_THAT([&] { node0_.emit("full", 1); }, ThrowsMessage<Error>(HasSubstr("peer 1 is full")));
}

TEST_F(TaskRemoteTest, AnArgumentThatCannotTravelIsRefusedWithTheEventsName) {
  struct Opaque {};
  const auto running0 = node0_.start();
  EXPECT_THAT([&] { node0_.emit("opaque", Opaque{}); },
              ThrowsMessage<UsageError>(HasSubstr("opaque")));
  EXPECT_NO_THROW(node0_.emit("opaque", only_local, Opaque{}));
}

TEST_F(TaskRemoteTest, RolesAreAnnounced) {
  const auto running0 = node0_.start();
  node0_.add_role(Role::kEvaluator);
  EXPECT_EQ(router0_.announced_role, "evaluator");
}

TEST_F(TaskRemoteTest, ABadEventNameIsAUsageError) {
  const auto running0 = node0_.start();
  EXPECT_THROW(node0_.emit("", 1), UsageError);
  EXPECT_THROW(node0_.emit(std::string(256, 'x'), only_remote, 1), UsageError);
}

TEST_F(TaskRemoteTest, AContextTravelsAsItself) {
  OnlineRLContext received;
  {
    const auto running0 = node0_.start();
    const auto running1 = node1_.start();
    node1_.on("ctx", [&](OnlineRLContext ctx) { received = std::move(ctx); });
    OnlineRLContext ctx;
    ctx.env_step = 7;
    ctx.total_step = 3;
    node0_.emit("ctx", ctx);
    settle(node1_);
  }
  EXPECT_EQ(received.env_step, 7);
  EXPECT_EQ(received.total_step, 3);
}

TEST_F(TaskRemoteTest, ManyEventsOfOneSenderArriveCompleteAndInOrder) {
  std::vector<int> seen;
  const auto running0 = node0_.start();
  const auto running1 = node1_.start();
  node1_.on("e", [&](int value) { seen.push_back(value); });
  for (int i = 0; i < 10'000; ++i) node0_.emit("e", i);
  settle(node1_);
  ASSERT_EQ(seen.size(), 10'000u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

}  // namespace
}  // namespace divisi
