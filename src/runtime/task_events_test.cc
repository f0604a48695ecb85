// The events of a task on one node: acceptance at the level of Task, and the rules
// of section 2.2 that need no peer.
#include "base/testing/wait_until.h"
#include "divisi/task.h"
#include "runtime/task_fake_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace divisi {
namespace {

using namespace std::chrono_literals;
using runtime::testing::FakeRouter;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using testing::wait_until;

class TaskEventsTest : public ::testing::Test {
 protected:
  // Waits until everything emitted before has been handled.
  void settle() {
    auto done = std::make_shared<std::promise<void>>();
    const ListenerId id = task_.on("settle", [done] { done->set_value(); });
    task_.emit("settle", only_local);
    ASSERT_EQ(done->get_future().wait_for(30s), std::future_status::ready);
    task_.off("settle", id);
  }

  // A wait is a listener, too.
  void wait_for_listener(const std::string& event) {
    wait_until("'" + event + "' has a listener", [&] { return task_.listened(event); });
  }
  void wait_for_error() {
    wait_until("an error is stored", [&] { return task_.stored_error() != nullptr; });
  }

  FakeRouter router_;
  Task task_{router_};
};

TEST_F(TaskEventsTest, A030AListenerGetsEveryArgument) {
  int sum = 0;
  task_.with({}, [&] {
    task_.on("count", [&](int value) { sum += value; });
    for (int i = 0; i < 5; ++i) task_.emit("count", i);
  });
  EXPECT_EQ(sum, 10);
}

TEST_F(TaskEventsTest, A031AfterOffNothingIsCalled) {
  int sum = 0;
  task_.with({}, [&] {
    task_.on("count", [&](int value) { sum += value; });
    task_.emit("count", 1);
    settle();
    task_.off("count");
    task_.emit("count", 10);
  });
  EXPECT_EQ(sum, 1);
}

TEST_F(TaskEventsTest, A032OnceListenersRunOnceEach) {
  int sum = 0;
  task_.with({}, [&] {
    task_.once("count", [&](int value) { sum += value; });
    task_.once("count", [&](int value) { sum += value; });
    task_.emit("count", 10);
    task_.emit("count", 10);
  });
  EXPECT_EQ(sum, 20);
}

TEST_F(TaskEventsTest, A033AStoredErrorIsRaisedByTheNextEmitOfAnyScope) {
  for (const EmitOptions& scope : {EmitOptions{}, only_local, only_remote}) {
    auto running = task_.start();
    task_.on("bad", [] { throw std::runtime_error("listener"); });
    task_.emit("bad");
    wait_for_error();
    EXPECT_THAT([&] { task_.emit("other", scope, 1); },
                ThrowsMessage<std::runtime_error>(HasSubstr("listener")));
    running.stop();
  }
}

TEST_F(TaskEventsTest, A034TheOtherListenersOfATriggerStillRun) {
  int second = 0;
  auto running = task_.start();
  task_.on("bad", [] { throw std::runtime_error("first"); });
  task_.on("bad", [&] { ++second; });
  task_.emit("bad");
  EXPECT_THROW(running.stop(), std::runtime_error);
  EXPECT_EQ(second, 1);
}

TEST_F(TaskEventsTest, A035EventsOfAllStepsHaveRunAfterTheBlock) {
  std::vector<std::string> greetings;
  task_.with({}, [&] {
    task_.on("Greeting", [&](std::string text) { greetings.push_back(std::move(text)); });
    task_.use([&](Context&) { task_.emit("Greeting", "Hi"); });
    task_.run(10);
  });
  EXPECT_EQ(greetings, std::vector<std::string>(10, "Hi"));
}

TEST_F(TaskEventsTest, A036WaitForGetsTheArgumentsFromAnotherMiddleware) {
  std::vector<std::string> results;
  task_.with({.async_mode = true, .n_async_workers = 2}, [&] {
    task_.use([&](Context&) {
      const std::optional<Args> args = task_.wait_for("Greeting");
      ASSERT_TRUE(args.has_value());
      results.push_back((*args)[0].as<std::string>());
    });
    task_.use([&](Context&) { task_.emit("Greeting", "Hi"); });
    task_.run(10);
  });
  EXPECT_EQ(results, std::vector<std::string>(10, "Hi"));
}

TEST_F(TaskEventsTest, A036AWaitTakesWhatALaterMiddlewareEmittedBeforeIt) {
  std::vector<int> heard;
  std::vector<int> waited;
  task_.with({.async_mode = true, .n_async_workers = 2}, [&] {
    task_.on("number", [&](int number) { heard.push_back(number); });
    std::atomic<int> emitted{0};
    task_.use([&](Context& ctx) {
      wait_until("the event has come", [&] { return emitted == ctx.total_step + 1; });
      for (int i = 0; i < 2; ++i) {
        const std::optional<Args> args = task_.wait_for("number", {.timeout = 30s});
        ASSERT_TRUE(args.has_value());
        waited.push_back((*args)[0].as<int>());
      }
      suspend();
      EXPECT_TRUE(task_.wait_for("back", {.timeout = 30s}).has_value());
    });
    task_.use([&](Context& ctx) {
      task_.emit("number", static_cast<int>(2 * ctx.total_step));
      task_.emit("number", static_cast<int>(2 * ctx.total_step + 1));
      settle();
      ++emitted;
      suspend();
      task_.emit("back");
      settle();
    });
    task_.run(3);
  });
  EXPECT_EQ(waited, (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(heard, waited);
}

TEST_F(TaskEventsTest, AWaitDoesNotSeeEarlierIterationsOrEarlierMiddleware) {
  task_.with({.async_mode = true, .n_async_workers = 3}, [&] {
    std::promise<void> emitted;
    task_.use([&](Context& ctx) {
      if (ctx.total_step > 0) return;
      task_.emit("first");
      settle();
      emitted.set_value();
    });
    task_.use([&](Context& ctx) {
      if (ctx.total_step == 0) {
        emitted.get_future().wait();
        EXPECT_FALSE(task_.wait_for("first", {.timeout = 20ms}).has_value());
      } else {
        EXPECT_FALSE(task_.wait_for("last", {.timeout = 20ms}).has_value());
      }
    });
    task_.use([&](Context& ctx) {
      if (ctx.total_step == 0) task_.emit("last");
    });
    task_.run(2);
  });
}

TEST_F(TaskEventsTest, AnArgumentWithoutACopyReachesItsListenerInAsyncModeToo) {
  int seen = 0;
  task_.with({.async_mode = true}, [&] {
    task_.on("owned", [&](std::unique_ptr<int> owned) { seen = *owned; });
    task_.use([&](Context&) { task_.emit("owned", std::make_unique<int>(4)); });
    task_.run(1);
  });
  EXPECT_EQ(seen, 4);
}

TEST_F(TaskEventsTest, A037ATimeoutThatIsNotIgnoredLeavesRun) {
  const auto running = task_.start();
  task_.use(
      [&](Context&) { task_.wait_for("never", {.timeout = 300ms, .ignore_timeout = false}); });
  EXPECT_THAT([&] { task_.run(1); }, ThrowsMessage<TimeoutError>(HasSubstr("never")));
}

TEST_F(TaskEventsTest, A038ATimeoutThatIsIgnoredReturnsNothingAndLeavesNoListener) {
  const auto running = task_.start();
  const auto began = std::chrono::steady_clock::now();
  EXPECT_FALSE(task_.wait_for("never", {.timeout = 200ms}).has_value());
  EXPECT_GE(std::chrono::steady_clock::now() - began, 200ms);
  EXPECT_FALSE(task_.listened("never"));
}

TEST_F(TaskEventsTest, A039TheGuidesFirstExamplePrintsOneLine) {
  std::vector<std::string> lines;
  task_.with({}, [&] {
    task_.on("greeting", [&](std::string msg) { lines.push_back("Get msg: " + msg); });
    task_.emit("greeting", "Hi");
  });
  EXPECT_EQ(lines, (std::vector<std::string>{"Get msg: Hi"}));
}

TEST_F(TaskEventsTest, A040MessagesArriveInTheOrderOfTheirEmits) {
  std::vector<std::string> lines;
  task_.with({}, [&] {
    task_.on("greeting", [&](std::string msg) { lines.push_back(std::move(msg)); });
    task_.use([&](Context& ctx) { task_.emit("greeting", std::to_string(ctx.total_step)); });
    task_.run(10);
  });
  std::vector<std::string> expected;
  for (int i = 0; i < 10; ++i) expected.push_back(std::to_string(i));
  EXPECT_EQ(lines, expected);
}

TEST_F(TaskEventsTest, A041D09EventsQueuedAtStopRun) {
  int ran = 0;
  {
    const auto running = task_.start();
    task_.on("slow", [&] {
      std::this_thread::sleep_for(5ms);  // a slow callback, by the specification
      ++ran;
    });
    for (int i = 0; i < 20; ++i) task_.emit("slow");
  }
  EXPECT_EQ(ran, 20);
}

TEST_F(TaskEventsTest, D06AStoredErrorIsRaisedByStopAfterTheCleanup) {
  auto running = task_.start();
  task_.on("bad", [] { throw std::runtime_error("listener"); });
  task_.use([](Context&) {});
  task_.emit("bad");
  EXPECT_THROW(running.stop(), std::runtime_error);
  EXPECT_FALSE(task_.running());
  EXPECT_EQ(task_.middleware_count(), 0u);
}

TEST_F(TaskEventsTest, D06LeavingTheScopeRaisesAStoredError) {
  EXPECT_THROW(
      {
        const auto running = task_.start();
        task_.on("bad", [] { throw std::runtime_error("listener"); });
        task_.emit("bad");
      },
      std::runtime_error);
  EXPECT_FALSE(task_.running());
}

TEST_F(TaskEventsTest, TheExceptionThatEndsTheScopeWinsOverAStoredError) {
  EXPECT_THROW(
      {
        const auto running = task_.start();
        task_.on("bad", [] { throw std::runtime_error("listener"); });
        task_.emit("bad");
        throw std::logic_error("scope");
      },
      std::logic_error);
  EXPECT_FALSE(task_.running());
}

TEST_F(TaskEventsTest, AStoredErrorIsRaisedAtTheEndOfTheIteration) {
  const auto running = task_.start();
  std::vector<std::int64_t> steps;
  task_.on("bad", [] { throw std::runtime_error("listener"); });
  task_.use([&](Context& ctx) {
    steps.push_back(ctx.total_step);
    if (ctx.total_step != 2) return;
    task_.emit("bad");
    wait_for_error();
  });
  EXPECT_THROW(task_.run(10), std::runtime_error);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{0, 1, 2}));
}

TEST_F(TaskEventsTest, SyncRaisesAStoredErrorInSyncModeToo) {
  const auto running = task_.start();
  task_.on("bad", [] { throw std::runtime_error("listener"); });
  task_.emit("bad");
  wait_for_error();
  EXPECT_THROW(task_.sync(), std::runtime_error);
}

TEST_F(TaskEventsTest, WithThePolicyLogAnErrorIsNotRaised) {
  auto running = task_.start({.on_error = OnError::kLog});
  task_.on("bad", [] { throw std::runtime_error("logged only"); });
  task_.emit("bad");
  settle();
  task_.emit("other");
  EXPECT_NO_THROW(running.stop());
}

TEST_F(TaskEventsTest, AListenersErrorEndsAWaitThatIsUnderWay) {
  auto running = task_.start();
  task_.on("bad", [] { throw std::runtime_error("listener"); });
  std::thread emitter([&] {
    wait_for_listener("never");
    task_.emit("bad");
  });
  EXPECT_THROW(task_.wait_for("never"), std::runtime_error);
  emitter.join();
  EXPECT_NO_THROW(running.stop()) << "thrown once";
}

TEST_F(TaskEventsTest, AListenersErrorIsThrownOnceToTheOwnerOfTheTask) {
  auto running = task_.start();
  std::atomic<int> nested = 0;
  task_.on("bad", [] { throw std::runtime_error("listener"); });
  task_.on("good", [&] {
    task_.emit("nothing");
    ++nested;
  });
  task_.emit("bad");
  wait_for_error();
  std::thread([&] {
    for (int i = 0; i < 10; ++i) EXPECT_NO_THROW(task_.emit("good"));
  }).join();
  wait_until("the other listener has run", [&] { return nested == 10; });
  EXPECT_THROW(task_.emit("nothing"), std::runtime_error);
  EXPECT_NO_THROW(task_.emit("nothing"));
  EXPECT_EQ(task_.wait_for("never", {.timeout = 1ms}), std::nullopt);
  EXPECT_NO_THROW(running.stop());
}

TEST_F(TaskEventsTest, TheThreadThatRunsTheTaskIsThrownTheError) {
  auto running = task_.start();
  task_.on("bad", [] { throw std::runtime_error("listener"); });
  task_.use([&](Context&) {
    task_.emit("bad");
    wait_for_error();
  });
  std::thread([&] { EXPECT_THROW(task_.run(3), std::runtime_error); }).join();
  EXPECT_NO_THROW(running.stop());
}

TEST_F(TaskEventsTest, FinishEndsAWaitThatAskedForIt) {
  const auto running = task_.start();
  std::thread other([&] {
    wait_for_listener("never");
    task_.set_finish();
  });
  EXPECT_FALSE(task_.wait_for("never", {.wake_on_finish = true}).has_value());
  other.join();
  EXPECT_FALSE(task_.wait_for("never", {.wake_on_finish = true}).has_value());
  EXPECT_FALSE(task_.wait_for("never", {.timeout = 20ms}).has_value());
}

TEST_F(TaskEventsTest, AStopTokenEndsAWait) {
  const auto running = task_.start();
  std::stop_source source;
  std::thread other([&] {
    wait_for_listener("never");
    source.request_stop();
  });
  EXPECT_FALSE(task_.wait_for("never", {.stop = source.get_token()}).has_value());
  other.join();
}

TEST_F(TaskEventsTest, StoppingTheTaskEndsAWait) {
  auto running = task_.start();
  std::thread waiter([&] { EXPECT_FALSE(task_.wait_for("never").has_value()); });
  wait_for_listener("never");
  running.stop();
  waiter.join();
}

TEST_F(TaskEventsTest, OnlyRemoteWithoutARouterDoesNothing) {
  int calls = 0;
  task_.with({}, [&] {
    task_.on("e", [&](int) { ++calls; });
    task_.emit("e", only_remote, 1);
    task_.emit_remote("e", 1);
    task_.emit("e", EmitOptions{.only_local = true, .only_remote = true}, 1);
  });
  EXPECT_EQ(calls, 1) << "local only wins when both are asked for";
}

TEST_F(TaskEventsTest, ArgumentsThatCannotTravelAreDeliveredLocally) {
  struct Opaque {
    int value;
  };
  int seen = 0;
  task_.with({}, [&] {
    task_.on("opaque", [&](const Opaque& opaque) { seen = opaque.value; });
    task_.emit("opaque", Opaque{5});
  });
  EXPECT_EQ(seen, 5);
}

TEST_F(TaskEventsTest, ArgumentsMoveToTheListener) {
  int seen = 0;
  task_.with({}, [&] {
    task_.on("owned", [&](std::unique_ptr<int> owned) { seen = *owned; });
    task_.emit("owned", std::make_unique<int>(4));
  });
  EXPECT_EQ(seen, 4);
}

TEST_F(TaskEventsTest, AListenerOfAnotherTypeIsAnErrorThatNamesEventAndTypes) {
  auto running = task_.start();
  task_.on("typed", [](int) {});
  task_.emit("typed", "text");
  EXPECT_THAT([&] { running.stop(); },
              ThrowsMessage<UsageError>(
                  ::testing::AllOf(HasSubstr("typed"), HasSubstr("int32"), HasSubstr("string"))));
}

TEST_F(TaskEventsTest, KeywordArgumentsReachTheListener) {
  int x = 0;
  task_.with({}, [&] {
    task_.on("e", [&](int one, Kwargs kwargs) { x = one + kwargs.at("x").as<int>(); });
    task_.emit("e", 1, kw("x", 2));
  });
  EXPECT_EQ(x, 3);
}

TEST_F(TaskEventsTest, ADirectedEmitReachesThisNodeOnlyIfItIsMeant) {
  int calls = 0;
  task_.with({.labels = {"gpu"}}, [&] {
    task_.on("e", [&] { ++calls; });
    task_.emit("e", Target::to_node(3));
    task_.emit("e", Target::to_label("cpu"));
    task_.emit("e", Target::to_role("learner"));
    task_.emit("e", Target::one_of_label("gpu"));
    settle();
    EXPECT_EQ(calls, 0);
    task_.emit("e", Target::to_label("g*"));
    task_.add_role(Role::kLearner);
    task_.emit("e", Target::to_role("learner"));
  });
  EXPECT_EQ(calls, 2);
}

TEST_F(TaskEventsTest, EmitsOfManyThreadsAreAllDelivered) {
  constexpr int kThreads = 4;
  constexpr int kEmits = 500;
  int sum = 0;
  task_.with({}, [&] {
    task_.on("e", [&](int value) { sum += value; });
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < kEmits; ++i) task_.emit("e", 1);
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(sum, kThreads * kEmits);
}

// A smoke test: nothing hangs or crashes, and the sanitizers look on.
TEST_F(TaskEventsTest, EmitsMayRaceWithStopAndStart) {
  std::atomic<bool> done{false};
  std::thread emitter([&] {
    while (!done) {
      try {
        task_.emit("e", 1);
      } catch (const UsageError&) {  // the task is not running
      }
    }
  });
  for (int life = 0; life < 50; ++life) {
    task_.with({}, [&] {
      task_.on("e", [](int) {});
      task_.emit("e", 2);
    });
  }
  done = true;
  emitter.join();
}

TEST_F(TaskEventsTest, EmitsOfAListenerWhileTheTaskStopsAreIgnoredAndNoError) {
  constexpr int kEmits = 5000;
  std::promise<void> stopping;
  int echoes = 0;
  auto running = task_.start();
  task_.on("echo", [&] { ++echoes; });
  task_.on("first", [&] {
    stopping.get_future().wait();
    for (int i = 0; i < kEmits; ++i) task_.emit("echo");
  });
  task_.on_finish([&](Context&) { stopping.set_value(); });
  task_.emit("first");
  EXPECT_NO_THROW(running.stop());
  EXPECT_LE(echoes, kEmits);
}

}  // namespace
}  // namespace divisi
