// The seam through which remote events enter a loop.
#include "event/loop_core.h"

#include "base/testing/wait_until.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

namespace divisi::event {
namespace {

using namespace std::chrono_literals;
using divisi::testing::wait_until;
using ::testing::ElementsAre;
using ::testing::Pair;

constexpr auto kDeadline = 30s;

// Some events with one integer each.
class Numbers final : public Batch {
 public:
  Numbers(std::string event, std::vector<int> values)
      : event_(std::move(event)), values_(std::move(values)) {}

  void deliver(Dispatcher& sink) noexcept override {
    for (const int value : values_) {
      PackScratch scratch;
      sink.dispatch({event_, pack_args(scratch, value), 3, 0});
    }
  }

 private:
  const std::string event_;
  const std::vector<int> values_;
};

std::unique_ptr<Batch> numbers(std::string event, std::vector<int> values) {
  return std::make_unique<Numbers>(std::move(event), std::move(values));
}

TEST(LoopCoreTest, AnIdleStrandAsksThePosterToRunOrWakeIt) {
  EventLoop loop;
  LoopCore& core = *loop.core();
  std::vector<int> seen;
  std::thread::id ran_on;
  loop.on("e", [&](int value) {
    seen.push_back(value);
    ran_on = std::this_thread::get_id();
    EXPECT_TRUE(LoopCore::on_loop_thread());
  });
  ASSERT_TRUE(core.post(numbers("e", {1, 2})));
  EXPECT_FALSE(core.post(numbers("e", {3}))) << "the first poster will run it";
  loop.emit("e", 4);
  EXPECT_FALSE(LoopCore::on_loop_thread());
  core.drain_here();
  EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4)) << "local and remote in the order they were posted";
  EXPECT_EQ(ran_on, std::this_thread::get_id());

  ASSERT_TRUE(core.post(numbers("e", {5})));
  core.wake();
  core.wake();
  loop.stop();
  EXPECT_EQ(seen.back(), 5);
  EXPECT_NE(ran_on, std::this_thread::get_id());
  EXPECT_FALSE(core.post(numbers("e", {6}))) << "dropped";
}

TEST(LoopCoreTest, ADrainThatSpentItsBudgetHandsOverInOrder) {
  constexpr auto kBudget = 1us;
  EventLoop loop;
  LoopCore& core = *loop.core();
  std::vector<int> seen;
  std::vector<std::thread::id> threads;
  std::binary_semaphore gone_over(0);
  loop.on("e", [&](int value) {
    const auto begin = std::chrono::steady_clock::now();
    while (value == 1 && std::chrono::steady_clock::now() - begin < kBudget) {
    }
    if (value == 2) gone_over.acquire();
    seen.push_back(value);
    threads.push_back(std::this_thread::get_id());
  });
  ASSERT_TRUE(core.post(numbers("e", {1})));
  core.post(numbers("e", {2}));
  core.post(numbers("e", {3}));
  core.drain_here(kBudget);
  gone_over.release();
  loop.stop();
  EXPECT_THAT(seen, ElementsAre(1, 2, 3));
  EXPECT_EQ(threads[0], std::this_thread::get_id());
  EXPECT_NE(threads[1], std::this_thread::get_id());
}

TEST(LoopCoreTest, ABatchPostedByAListenerRunsAfterIt) {
  EventLoop loop;
  LoopCore& core = *loop.core();
  std::vector<int> seen;
  loop.on("e", [&](int value) {
    seen.push_back(value);
    if (value == 1) {
      EXPECT_FALSE(core.post(numbers("e", {3})));
    }
  });
  ASSERT_TRUE(core.post(numbers("e", {1, 2})));
  core.drain_here();
  EXPECT_THAT(seen, ElementsAre(1, 2, 3));
}

// What a wait got, without waiting longer than it must.
std::optional<int> waited(EventLoop& loop, std::chrono::nanoseconds timeout) {
  const auto args = loop.wait_for("answer", timeout);
  return args ? std::optional(args->get<int>(0)) : std::nullopt;
}

TEST(LoopCoreTest, AnAnswerThatIsFasterThanTheWaitForItIsNotMissed) {
  EventLoop loop;
  LoopCore& core = *loop.core();
  EXPECT_EQ(waited(loop, 0ns), std::nullopt) << "from here on the name is known to be waited for";
  core.note_emit();
  for (const int value : {1, 2}) {
    ASSERT_TRUE(core.post(numbers("answer", {value})));
    core.drain_here();
  }
  EXPECT_EQ(waited(loop, kDeadline), 1);
  EXPECT_EQ(waited(loop, kDeadline), 2);
  EXPECT_EQ(waited(loop, 0ns), std::nullopt) << "each answers one wait";
}

TEST(LoopCoreTest, AnEmitOfALoopThatIsGoneIsNoQuestionToTheNextAtItsAddress) {
  {
    EventLoop gone;
    EXPECT_EQ(waited(gone, 0ns), std::nullopt);
    gone.core()->note_emit();
  }
  EventLoop loop;
  EXPECT_EQ(waited(loop, 0ns), std::nullopt);
  ASSERT_TRUE(loop.core()->post(numbers("answer", {1})));
  loop.core()->drain_here();
  EXPECT_EQ(waited(loop, 0ns), std::nullopt) << "this thread has not emitted";
}

TEST(LoopCoreTest, AWaitIsNotForWhatCameBeforeTheLastEmit) {
  EventLoop loop;
  LoopCore& core = *loop.core();
  EXPECT_EQ(waited(loop, 0ns), std::nullopt);
  ASSERT_TRUE(core.post(numbers("answer", {1})));
  core.drain_here();
  EXPECT_EQ(waited(loop, 0ns), std::nullopt) << "this thread has not emitted";
  ASSERT_TRUE(core.post(numbers("answer", {2})));
  core.drain_here();
  core.note_emit();
  EXPECT_EQ(waited(loop, 0ns), std::nullopt) << "older than the question";
  std::thread([&] { core.note_emit(); }).join();
  ASSERT_TRUE(core.post(numbers("answer", {3})));
  core.drain_here();
  std::thread([&] { EXPECT_EQ(waited(loop, 0ns), std::nullopt) << "another thread's"; }).join();
}

TEST(LoopCoreTest, ManyOtherNamesDoNotMakeAnEarlyAnswerUnheard) {
  EventLoop loop;
  LoopCore& core = *loop.core();
  EXPECT_EQ(waited(loop, 0ns), std::nullopt);
  for (int i = 0; i < 500; ++i) loop.wait_for("other_" + std::to_string(i), 0ns);
  core.note_emit();
  ASSERT_TRUE(core.post(numbers("answer", {1})));
  core.drain_here();
  EXPECT_EQ(waited(loop, 0ns), 1);
}

TEST(LoopCoreTest, OnlySoManyEarlyAnswersAreKept) {
  EventLoop loop;
  LoopCore& core = *loop.core();
  EXPECT_EQ(waited(loop, 0ns), std::nullopt);
  core.note_emit();
  std::vector<int> many(100);
  std::iota(many.begin(), many.end(), 0);
  ASSERT_TRUE(core.post(numbers("answer", many)));
  core.drain_here();
  EXPECT_EQ(waited(loop, kDeadline), 36) << "the newest 64";
}

TEST(LoopCoreTest, WhatNobodyGetsIsCountedOnce) {
  for (const int threads : {1, 3}) {
    const auto unheard = std::make_shared<std::atomic<std::uint64_t>>(0);
    EventLoop loop("counted", {.threads = threads});
    LoopCore& core = *loop.core();
    core.count_unheard_in(unheard);
    const auto post = [&](const char* event, std::vector<int> values) {
      if (core.post(numbers(event, std::move(values)))) core.wake();
    };
    EXPECT_EQ(waited(loop, 0ns), std::nullopt);
    core.note_emit();
    std::vector<int> many(70);
    std::iota(many.begin(), many.end(), 0);
    post("answer", many);  // 6 are thrown away, 64 kept
    loop.once("e", [](int) {});
    post("e", {1, 2, 3});  // one is heard
    post("unknown", {1});
    wait_until("nine were for nobody", [&] { return *unheard >= 9; });
    EXPECT_EQ(waited(loop, kDeadline), 6) << threads;
    loop.stop();  // and 63 were for nobody
    EXPECT_EQ(*unheard, 6u + 2u + 1u + 63u) << threads;
  }
}

TEST(LoopCoreTest, RemoteEventsReachEveryListenerOnce) {
  EventLoop loop;
  std::vector<int> seen;
  for (int i = 0; i < 3; ++i) loop.on("e", [&seen, i](int) { seen.push_back(i); });
  ASSERT_TRUE(loop.core()->post(numbers("e", {7})));
  loop.core()->drain_here();
  EXPECT_THAT(seen, ElementsAre(0, 1, 2));
}

TEST(LoopCoreTest, AMismatchOfARemoteEventIsStoredAndLaterOnesStillArrive) {
  EventLoop loop;
  int sum = 0;
  loop.on("text", [](const std::string&) {});
  loop.on("number", [&](int value) { sum += value; });
  loop.core()->post(numbers("text", {1}));
  loop.core()->post(numbers("number", {1, 2, 3}));
  loop.core()->drain_here();
  EXPECT_EQ(sum, 6);
  try {
    loop.raise_stored();
    ADD_FAILURE();
  } catch (const PayloadError& error) {
    EXPECT_STREQ(error.what(), "event \"text\": argument 1: expected string, received integer 1");
  }
}

TEST(LoopCoreTest, WithSeveralThreadsBatchesKeepTheOrderOfEachName) {
  EventLoop loop("wide", {.threads = 3});
  std::vector<std::vector<int>> seen(6);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    loop.on("name" + std::to_string(i), [&seen, i](int value) { seen[i].push_back(value); });
  }
  for (int value = 0; value < 500; ++value) {
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (loop.core()->post(numbers("name" + std::to_string(i), {value}))) loop.core()->wake();
    }
  }
  loop.stop();
  for (const auto& values : seen) {
    EXPECT_EQ(values.size(), 500u);
    EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
  }
}

TEST(LoopCoreTest, DispatchInlineRunsOnlyEventsWhoseListenersAllAskedForIt) {
  EventLoop loop;
  int calls = 0;
  PackScratch scratch;
  const RemoteEvent event{"e", pack_args(scratch, 1), 0, 0};
  EXPECT_FALSE(loop.core()->dispatch_inline(event)) << "no listeners";
  loop.on("e", [&](int value) { calls += value; }, {.inline_ = true});
  EXPECT_TRUE(loop.core()->dispatch_inline(event));
  EXPECT_EQ(calls, 1);
  loop.on("e", [&](int value) { calls += value; });
  EXPECT_FALSE(loop.core()->dispatch_inline(event));
  EXPECT_EQ(calls, 1);
  ASSERT_TRUE(loop.core()->post(numbers("e", {10})));
  loop.core()->drain_here();
  EXPECT_EQ(calls, 21) << "on the strand all of them run";
}

TEST(LoopCoreTest, TheInterestHookHearsOfFirstAndLastListeners) {
  EventLoop loop;
  std::vector<std::pair<std::string, bool>> heard;
  loop.on("before", [] {});
  loop.core()->set_interest_hook(
      [&](std::string_view event, bool listened) { heard.emplace_back(event, listened); });
  const ListenerId first = loop.on("e", [] {});
  const ListenerId second = loop.on("e", [] {});
  loop.off("e", first);
  loop.off("e", second);
  loop.once("once", [] {}, {.inline_ = true});
  loop.emit("once");
  loop.wait_for("waited", 0s);
  loop.stop();
  EXPECT_THAT(heard, ElementsAre(Pair("before", true), Pair("e", true), Pair("e", false),
                                 Pair("once", true), Pair("once", false), Pair("waited", true),
                                 Pair("waited", false), Pair("before", false)));
}

TEST(LoopCoreTest, WaitsCanBeWokenWithAReason) {
  EventLoop loop;
  LoopCore& core = *loop.core();
  WaitSpec patient;
  patient.timeout = kDeadline;
  WaitSpec impatient = patient;
  impatient.wake_on_finish = true;
  auto first = std::async(std::launch::async, [&] { return core.wait("first", patient).reason; });
  auto second =
      std::async(std::launch::async, [&] { return core.wait("second", impatient).reason; });
  wait_until("both wait", [&] { return core.listened("first") && core.listened("second"); });
  // Registration and the list of waits are two steps: ask until it takes.
  const auto woken = [&](const auto& wait, WakeReason reason) {
    core.wake_waiters(reason);
    return wait.wait_for(0s) == std::future_status::ready;
  };
  wait_until("the second is woken", [&] { return woken(second, WakeReason::kFinish); });
  EXPECT_EQ(second.get(), WakeReason::kFinish);
  EXPECT_EQ(first.wait_for(0s), std::future_status::timeout) << "did not ask to hear of finish";
  wait_until("the first is woken", [&] { return woken(first, WakeReason::kFailure); });
  EXPECT_EQ(first.get(), WakeReason::kFailure);
}

TEST(LoopCoreTest, AWakeJustBeforeTheWaitIsNotMissed) {
  EventLoop loop;
  WaitSpec spec;
  spec.already = [] { return WakeReason::kFinish; };
  EXPECT_EQ(loop.core()->wait("e", spec).reason, WakeReason::kFinish);
  EXPECT_FALSE(loop.listened("e"));
}

TEST(LoopCoreTest, AWaitReceivesARemoteEvent) {
  EventLoop loop;
  auto waiting = std::async(std::launch::async, [&] { return loop.wait_for("e", kDeadline); });
  wait_until("somebody waits", [&] { return loop.listened("e"); });
  ASSERT_TRUE(loop.core()->post(numbers("e", {9})));
  loop.core()->drain_here();
  const auto event = waiting.get();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->get<int>(0), 9);
}

// A wait removes its own listener only, also when another has taken that one's place in memory.
TEST(LoopCoreTest, AWaitDoesNotRemoveAListenerThatCameAfterIt) {
  EventLoop loop;
  std::atomic<int> heard{0};
  std::binary_semaphore came(0);
  loop.on("next", [&] {
    loop.once("x", [&] { ++heard; });
    came.release();
  });
  for (int round = 0; round < 2'000; ++round) {
    auto waiting = std::async(std::launch::async, [&] { return loop.wait_for("x", kDeadline); });
    while (!loop.listened("x")) std::this_thread::yield();
    loop.emit("x");
    loop.emit("next");
    ASSERT_TRUE(waiting.get().has_value());
    came.acquire();
    ASSERT_TRUE(loop.listened("x")) << round;
    loop.emit("x");
    while (heard <= round) std::this_thread::yield();
  }
}

TEST(LoopCoreTest, ManyShortLivedNamesDoNotPileUp) {
  EventLoop loop;
  int calls = 0;
  loop.on("kept", [&] { ++calls; });
  for (int i = 0; i < 10'000; ++i) {
    const std::string name = "reply_" + std::to_string(i);
    loop.on(name, [&] { ++calls; }, {.inline_ = true});
    loop.emit(name);
    loop.off(name);
    ASSERT_LE(loop.core()->known_names(), 100u);
  }
  EXPECT_EQ(calls, 10'000);
  EXPECT_THAT(loop.core()->events(), ElementsAre("kept"));
  loop.emit("kept");
  loop.stop();
  EXPECT_EQ(calls, 10'001);
}

}  // namespace
}  // namespace divisi::event
