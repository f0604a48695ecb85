#include "base/testing/wait_until.h"
#include "divisi/event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

namespace divisi {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::wait_until;

// Far beyond what anything here takes: reached only when something is broken.
constexpr auto kDeadline = 30s;

// Everything emitted before has run when this returns.
void settle(EventLoop& loop) {
  std::promise<void> reached;
  loop.once("test.settle", [&] { reached.set_value(); });
  loop.emit("test.settle");
  ASSERT_EQ(reached.get_future().wait_for(kDeadline), std::future_status::ready);
}

// Waits until the loop has stored an error: a settle would throw it.
void wait_for_error(const EventLoop& loop) {
  wait_until("the loop has stored an error", [&] { return loop.has_error(); });
}

std::string stored_text(const EventLoop& loop) {
  wait_for_error(loop);
  try {
    std::rethrow_exception(loop.error());
  } catch (const std::exception& error) {
    return error.what();
  }
}

struct Pair {
  int a = 0;
  std::string b;
};
DIVISI_FIELDS(Pair, a, b)

struct Private {  // no fields told: cannot leave the process
  int value = 0;
};

int plain_calls = 0;
void plain(int value) {
  plain_calls += value;
}
void other_plain(int) {}

TEST(EventLoopTest, A030_AListenerSeesWhatIsEmitted) {
  EventLoop loop;
  int sum = 0;
  loop.on("count", [&](int value) { sum += value; });
  for (int i = 0; i < 5; ++i) loop.emit("count", i);
  settle(loop);
  EXPECT_EQ(sum, 10);
}

TEST(EventLoopTest, A031_AfterOffNothingChanges) {
  EventLoop loop;
  int sum = 0;
  loop.on("count", [&](int value) { sum += value; });
  loop.emit("count", 10);
  settle(loop);
  loop.off("count");
  loop.emit("count", 10);
  settle(loop);
  EXPECT_EQ(sum, 10);
  EXPECT_FALSE(loop.listened("count"));
}

TEST(EventLoopTest, A032_OnceListenersRunOnceEach) {
  EventLoop loop;
  int sum = 0;
  const auto add = [&](int value) { sum += value; };
  loop.once("count", add);
  loop.once("count", add);
  loop.emit("count", 10);
  loop.emit("count", 10);
  settle(loop);
  EXPECT_EQ(sum, 20);
  EXPECT_FALSE(loop.listened("count"));
}

TEST(EventLoopTest, A033_AnErrorIsStoredAndTheNextEmitRaisesIt) {
  EventLoop loop;
  loop.on("bad", [] { throw std::runtime_error("broken"); });
  loop.emit("bad");
  EXPECT_EQ(stored_text(loop), "broken");
  EXPECT_THROW(loop.emit("anything"), std::runtime_error);
  EXPECT_NO_THROW(loop.emit("anything")) << "thrown once";
  EXPECT_NO_THROW(loop.raise_stored());
  EXPECT_EQ(loop.wait_for("anything", 0s), std::nullopt);
  loop.emit("bad");
  wait_for_error(loop);
  EXPECT_THROW(loop.wait_for("anything", 0s), std::runtime_error) << "the next one as well";
  loop.stop();
}

TEST(EventLoopTest, TheErrorOfAListenerIsNotThrownToAnotherThatEmits) {
  for (const bool runs_inline : {false, true}) {
    EventLoop loop;
    std::atomic<int> emitted = 0;
    loop.on("bad", [] { throw std::runtime_error("broken"); });
    loop.on("good",
            [&] {
              loop.emit("anything");
              ++emitted;
            },
            {.inline_ = runs_inline});
    loop.emit("bad");
    wait_for_error(loop);
    // From a listener's side: what comes from outside would throw.
    loop.take_error();
    loop.on("both", [] { throw std::runtime_error("broken"); });
    loop.on("both", [&] { loop.emit("good"); });
    for (int i = 0; i < 5; ++i) {
      loop.emit("both");
      wait_until("it has emitted", [&] { return emitted == i + 1; });
      EXPECT_EQ(stored_text(loop), "broken");
      loop.take_error();
    }
    EXPECT_NO_THROW(loop.stop());
  }
}

void greet() {}

TEST(EventLoopTest, OneFunctionOfSeveralEventsIsTakenFromAllOfThem) {
  EventLoop loop;
  for (const char* event : {"a", "b", "other"}) loop.on(event, &greet);
  loop.off("*", &greet);
  EXPECT_TRUE(loop.events().empty());
  loop.stop();
}

TEST(EventLoopTest, AStopThatMayTakeAnHourTakesNoLongerThanItsListeners) {
  EventLoop loop("patient", {.stop_timeout = 1h});
  std::atomic<int> ran = 0;
  loop.on("e", [&] { ++ran; });
  for (int i = 0; i < 100; ++i) loop.emit("e");
  loop.stop();
  EXPECT_EQ(ran, 100);
}

TEST(EventLoopTest, AnErrorThatAnotherLoopHandsOnNamesItsEventOnce) {
  EventLoop inner("inner");
  inner.on("bad", [](int) {});
  inner.emit("bad", "no number");
  const std::string text = stored_text(inner);
  EXPECT_THAT(text, StartsWith("event \"bad\": "));
  EventLoop outer("outer");
  outer.on("event", [&] { inner.emit("anything"); });
  outer.emit("event");
  EXPECT_EQ(stored_text(outer), text);  // the inner loop has thrown it, once
  EXPECT_THROW(outer.stop(), PayloadError);
}

TEST(EventLoopTest, A034_OtherListenersStillRun) {
  EventLoop loop;
  std::promise<int> second;
  loop.on("event", [](int) { throw std::runtime_error("first"); });
  loop.on("event", [&](int value) { second.set_value(value); });
  loop.emit("event", 7);
  EXPECT_EQ(second.get_future().get(), 7);
  EXPECT_THROW(loop.stop(), std::runtime_error);
}

TEST(EventLoopTest, A041_StopRunsWhatIsQueued) {
  EventLoop loop;
  std::binary_semaphore go(0);
  int ran = 0;
  loop.on("slow", [&] {
    if (ran == 0) go.acquire();
    ++ran;
  });
  for (int i = 0; i < 20; ++i) loop.emit("slow");
  go.release();
  loop.stop();
  EXPECT_EQ(ran, 20);
  loop.emit("slow");
  loop.stop();
  EXPECT_EQ(ran, 20) << "a stopped loop ignores what is emitted";
}

TEST(EventLoopTest, TheFirstErrorStaysAndCanBeTaken) {
  EventLoop loop;
  loop.on("bad", [](const std::string& text) { throw std::runtime_error(text); });
  std::binary_semaphore go(0);
  loop.on("gate", [&] { go.acquire(); });
  loop.emit("gate");
  loop.emit("bad", "one");
  loop.emit("bad", "two");
  std::promise<void> after;
  loop.on("after", [&] { after.set_value(); });
  loop.emit("after");
  go.release();
  after.get_future().get();
  EXPECT_EQ(stored_text(loop), "one");
  EXPECT_NE(loop.take_error(), nullptr);
  EXPECT_EQ(loop.error(), nullptr);
  loop.stop();
}

TEST(EventLoopTest, StopRaisesAnErrorThatNobodySawAfterItsWork) {
  EventLoop loop;
  int later = 0;
  loop.on("bad", [] { throw std::runtime_error("unseen"); });
  loop.on("good", [&] { ++later; });
  std::binary_semaphore go(0);
  loop.on("gate", [&] { go.acquire(); });
  loop.emit("gate");
  loop.emit("bad");
  loop.emit("good");
  go.release();
  EXPECT_THROW(loop.stop(), std::runtime_error);
  EXPECT_EQ(later, 1);
  EXPECT_TRUE(loop.events().empty());
  loop.stop();
}

TEST(EventLoopTest, WithTheLogPolicyErrorsAreNotStored) {
  EventLoop loop("logging", {.on_error = OnError::kLog});
  loop.on("bad", [] { throw std::runtime_error("logged"); });
  loop.emit("bad");
  settle(loop);
  EXPECT_FALSE(loop.has_error());
}

TEST(EventLoopTest, ManyTriggersRunInTheirOrder) {
  EventLoop loop;
  int next = 0;
  int inversions = 0;
  loop.on("number", [&](int value) { inversions += value != next++; });
  loop.on("text", [&](const std::string& value) { inversions += std::stoi(value) != next++; });
  for (int i = 0; i < 100'000; ++i) {
    if (i % 3 == 0) {
      loop.emit("text", std::to_string(i));
    } else {
      loop.emit("number", i);
    }
  }
  loop.stop();
  EXPECT_EQ(next, 100'000);
  EXPECT_EQ(inversions, 0);
}

TEST(EventLoopTest, TriggersOfEachOfSeveralEmittersRunInTheirOrder) {
  EventLoop loop;
  constexpr int kEmitters = 4;
  constexpr int kEach = 10'000;
  std::vector<int> next(kEmitters, 0);
  int inversions = 0;
  loop.on("e", [&](std::size_t from, int value) { inversions += value != next[from]++; });
  {
    std::vector<std::jthread> emitters;
    for (std::size_t from = 0; from < kEmitters; ++from) {
      emitters.emplace_back([&loop, from] {
        for (int i = 0; i < kEach; ++i) loop.emit("e", from, i);
      });
    }
  }
  loop.stop();
  EXPECT_THAT(next, ElementsAre(kEach, kEach, kEach, kEach));
  EXPECT_EQ(inversions, 0);
}

TEST(EventLoopTest, WithSeveralThreadsEachNameKeepsItsOrder) {
  EventLoop loop("wide", {.threads = 4});
  constexpr int kNames = 8;
  struct PerName {
    int next = 0;
    int inversions = 0;
  };
  std::vector<PerName> seen(kNames);
  for (int i = 0; i < kNames; ++i) {
    loop.on("name" + std::to_string(i), [state = &seen[static_cast<std::size_t>(i)]](int value) {
      state->inversions += value != state->next++;
    });
  }
  for (int i = 0; i < 5'000; ++i) {
    for (int name = 0; name < kNames; ++name) loop.emit("name" + std::to_string(name), i);
  }
  loop.stop();
  for (const PerName& name : seen) {
    EXPECT_EQ(name.next, 5'000);
    EXPECT_EQ(name.inversions, 0);
  }
}

TEST(EventLoopTest, WithSeveralThreadsNamesRunAtTheSameTime) {
  EventLoop loop("wide", {.threads = 16});
  // Waits for each other: only possible if some two names are on different threads.
  std::latch both(2);
  std::atomic<int> met = 0;
  for (int i = 0; i < 16; ++i) {
    loop.on("name" + std::to_string(i), [&, first = std::make_shared<std::atomic<bool>>(true)] {
      if (met.fetch_add(1) < 2) both.arrive_and_wait();
    });
    loop.emit("name" + std::to_string(i));
  }
  loop.stop();
  EXPECT_EQ(met, 16);
}

TEST(EventLoopTest, OnceRunsOnceUnderConcurrentTriggers) {
  for (int round = 0; round < 40; ++round) {
    const bool runs_inline = round % 2 == 0;
    EventLoop loop("once", {.threads = 2});
    std::atomic<int> calls = 0;
    constexpr int kListeners = 200;
    for (int i = 0; i < kListeners; ++i) {
      loop.once("e", [&] { calls.fetch_add(1); }, {.inline_ = runs_inline});
    }
    {
      std::vector<std::jthread> emitters;
      for (int i = 0; i < 4; ++i) {
        emitters.emplace_back([&] {
          for (int j = 0; j < 200; ++j) loop.emit("e");
        });
      }
    }
    loop.stop();
    EXPECT_EQ(calls, kListeners);
  }
}

TEST(EventLoopTest, OnceIsNotRunAgainByAnEmitThatSawItBefore) {
  EventLoop loop;
  std::atomic<int> entered = 0;
  std::atomic<int> calls = 0;
  std::promise<void> first_is_in;
  std::binary_semaphore go(0);
  const auto hold_the_first = [&] {
    if (entered.fetch_add(1) != 0) return;
    first_is_in.set_value();
    go.acquire();
  };
  loop.on("e", hold_the_first, {.inline_ = true});
  loop.once("e", [&] { ++calls; }, {.inline_ = true});
  std::jthread slow([&] { loop.emit("e"); });
  first_is_in.get_future().get();
  loop.emit("e");
  EXPECT_EQ(calls, 1);
  go.release();
  slow.join();
  EXPECT_EQ(calls, 1);
}

TEST(EventLoopTest, ListenersRunInTheOrderOfRegistrationAndTwiceIfAddedTwice) {
  EventLoop loop;
  std::vector<int> order;
  const auto second = [&] { order.push_back(2); };
  loop.on("e", [&] { order.push_back(1); });
  loop.on("e", second);
  loop.on("e", second);
  loop.emit("e");
  settle(loop);
  EXPECT_THAT(order, ElementsAre(1, 2, 2));
}

TEST(EventLoopTest, OffTakesAGlobAnIdOrAFunction) {
  EventLoop loop;
  std::vector<std::string> ran;
  const auto note = [&](const std::string& name) { return [&ran, name] { ran.push_back(name); }; };
  loop.on("a1", note("a1"));
  loop.on("a2", note("a2"));
  loop.on("b", note("b-first"));
  const ListenerId id = loop.on("b", note("b-second"));
  loop.off("a*");
  loop.off("b", id);
  loop.off("never*");
  EXPECT_THAT(loop.events(), ElementsAre("b"));
  for (const char* name : {"a1", "a2", "b"}) loop.emit(name);
  settle(loop);
  EXPECT_THAT(ran, ElementsAre("b-first"));

  plain_calls = 0;
  loop.on("f", plain);
  loop.on("f", &plain);
  loop.off("f", plain);
  loop.off("f", &other_plain);
  loop.emit("f", 3);
  settle(loop);
  EXPECT_EQ(plain_calls, 3) << "only the first registration went";
}

TEST(EventLoopTest, NamesMatchExactlyOnEmit) {
  EventLoop loop;
  int calls = 0;
  loop.on("a*", [&] { ++calls; });
  loop.emit("ab");
  loop.emit("a*");
  settle(loop);
  EXPECT_EQ(calls, 1);
  EXPECT_THROW(loop.on("", [] {}), UsageError);
  EXPECT_THROW(loop.on(std::string(256, 'x'), [] {}), UsageError);
  EXPECT_THROW(loop.emit(""), UsageError);
  loop.on(std::string(255, 'x'), [] {});
  loop.on("with::colons and \xc3\xa9", [] {});
}

TEST(EventLoopTest, ArgumentsMoveWithoutACopyToTheLastListener) {
  struct Counted {
    int copies = 0;
    int moves = 0;
    Counted() = default;
    Counted(const Counted& other) : copies(other.copies + 1), moves(other.moves) {}
    Counted(Counted&& other) noexcept : copies(other.copies), moves(other.moves + 1) {}
    Counted& operator=(const Counted&) = default;
    Counted& operator=(Counted&&) = default;
    ~Counted() = default;
  };
  EventLoop loop;
  std::vector<int> copies;
  loop.on("e", [&](const Counted& seen) { copies.push_back(seen.copies); });
  loop.on("e", [&](Counted seen) { copies.push_back(seen.copies); });
  loop.on("e", [&](Counted&& seen) { copies.push_back(seen.copies); });
  loop.emit("e", Counted());
  const Counted kept;
  loop.emit("e", kept);
  settle(loop);
  EXPECT_THAT(copies, ElementsAre(0, 1, 0, 1, 2, 1));
}

TEST(EventLoopTest, MoveOnlyArgumentsReachASingleListener) {
  EventLoop loop;
  int seen = 0;
  loop.on("e", [&](std::unique_ptr<int> value) { seen += *value; });
  loop.emit("e", std::make_unique<int>(5));
  settle(loop);
  EXPECT_EQ(seen, 5);
  loop.on("e", [&](const std::unique_ptr<int>& value) { seen += *value; });
  loop.emit("e", std::make_unique<int>(5));
  EXPECT_THAT(stored_text(loop), HasSubstr("cannot be copied"));
  loop.take_error();
}

TEST(EventLoopTest, LargeAndThrowingArgumentsAreStoredApart) {
  EventLoop loop;
  struct Large {
    std::array<int, 1000> values{};
  };
  struct ThrowingMove {
    ThrowingMove() = default;
    ThrowingMove(const ThrowingMove&) = default;
    ThrowingMove(ThrowingMove&&) noexcept(false) {}
  };
  int seen = 0;
  loop.on("large", [&](const Large& large) { seen += large.values[999]; });
  loop.on("throwing", [&](const ThrowingMove&) { ++seen; });
  Large large;
  large.values[999] = 41;
  loop.emit("large", large);
  loop.emit("throwing", ThrowingMove());
  settle(loop);
  EXPECT_EQ(seen, 42);
}

TEST(EventLoopTest, ArgumentsConvertWhereTheirValueIsKept) {
  EventLoop loop;
  std::vector<std::string> seen;
  loop.on("text", [&](std::string_view text) { seen.emplace_back(text); });
  loop.on("real", [&](double value) { seen.push_back(std::to_string(value)); });
  loop.on("small", [&](std::uint8_t value) { seen.push_back(std::to_string(value)); });
  loop.on("bytes",
          [&](std::span<const std::byte> bytes) { seen.push_back(std::to_string(bytes.size())); });
  loop.on("pair", [&](const Pair& pair) { seen.push_back(std::to_string(pair.a) + pair.b); });
  loop.on("value", [&](const Value& value) { seen.push_back(value.describe()); });
  loop.on("optional", [&](std::optional<int> value) { seen.push_back(std::to_string(*value)); });
  loop.emit("text", "literal");
  loop.emit("text", std::string("string"));
  loop.emit("text", std::string_view("view"));
  loop.emit("real", 2);
  loop.emit("small", std::int64_t{255});
  loop.emit("small", 2.0);
  loop.emit("bytes", std::vector<std::byte>(3));
  loop.emit("bytes", Buffer(4));
  loop.emit("pair", std::map<std::string, Value>{{"a", 1}, {"b", "x"}});
  loop.emit("value", 5);
  loop.emit("optional", 6);
  settle(loop);
  EXPECT_THAT(seen, ElementsAre("literal", "string", "view", "2.000000", "255", "2", "3", "4", "1x",
                                "integer 5", "6"));
}

TEST(EventLoopTest, AMismatchNamesTheEventTheExpectedAndTheReceivedType) {
  const auto error = [](auto listener, auto&&... args) {
    EventLoop loop;
    loop.on("e", listener);
    loop.emit("e", std::forward<decltype(args)>(args)...);
    const std::string text = stored_text(loop);
    loop.take_error();
    return text;
  };
  EXPECT_EQ(error([](const std::string&) {}, 5),
            "event \"e\": argument 1: expected string, received int32");
  EXPECT_EQ(error([](int, std::uint8_t) {}, 1, 300),
            "event \"e\": argument 2: expected uint8, received 300, which does not fit");
  EXPECT_EQ(error([](int, double) {}, 1),
            "event \"e\": expected 2 arguments (int32, float64), received 1 (int32)");
  EXPECT_EQ(error([] {}, "a", 1),
            "event \"e\": expected 0 arguments (), received 2 (string, int32)");
  EXPECT_THAT(error([](int) {}, Private{1}),
              HasSubstr("event \"e\": argument 1: expected int32, received divisi::"));
  EXPECT_THAT(error([](const Private&) {}, 1), HasSubstr("Private, received int32"));
  EXPECT_EQ(error([](const Pair&) {}, std::map<std::string, int>{{"a", 1}}),
            "event \"e\": argument 1: the field \"b\" of Pair is missing");
  EXPECT_EQ(error([](int) {}, 1, kw("x", 2)),
            "event \"e\": keyword arguments (x) for a listener that takes none");
  EXPECT_THAT(error([](const Args&) {}, Private{1}), HasSubstr("DIVISI_FIELDS"));
}

TEST(EventLoopTest, KeywordArgumentsReachListenersThatTakeThem) {
  EventLoop loop;
  std::vector<std::string> seen;
  loop.on("e", [&](int value, const Kwargs& kwargs) {
    seen.push_back(std::to_string(value) + ":" + std::to_string(kwargs.size()));
  });
  loop.on("e", [&](const Args& args) {
    seen.push_back(std::to_string(args.size()) + "/" + std::to_string(args.kwargs.size()));
  });
  loop.emit("e", 1, kw("x", 2), kw("text", "t"));
  loop.emit("e", 1);
  settle(loop);
  EXPECT_THAT(seen, ElementsAre("1:2", "1/2", "1:0", "1/0"));
}

TEST(EventLoopTest, InlineListenersRunAtOnceInTheEmittingThread) {
  EventLoop loop;
  std::thread::id inline_thread;
  std::promise<std::thread::id> queued_thread;
  int moved = 0;
  loop.on("e", [&](const std::string&) { inline_thread = std::this_thread::get_id(); },
          {.inline_ = true});
  loop.emit("e", "x");
  EXPECT_EQ(inline_thread, std::this_thread::get_id());
  loop.on("e", [&](const std::string&) { queued_thread.set_value(std::this_thread::get_id()); });
  loop.emit("e", "x");
  EXPECT_NE(queued_thread.get_future().get(), std::this_thread::get_id());
  loop.on("m", [&](std::unique_ptr<int> value) { moved = *value; }, {.inline_ = true});
  loop.emit("m", std::make_unique<int>(3));
  EXPECT_EQ(moved, 3);
}

TEST(EventLoopTest, AnInlineListenersErrorIsRaisedByTheNextEmit) {
  EventLoop loop;
  loop.on("e", [] { throw std::runtime_error("inline"); }, {.inline_ = true});
  loop.emit("e");
  EXPECT_THROW(loop.emit("other"), std::runtime_error);
}

TEST(EventLoopTest, EmitsInsideAListenerKeepTheirOrderAndDoNotDeadlock) {
  EventLoop loop;
  std::vector<int> order;
  loop.on("chain", [&](int value) {
    order.push_back(value);
    if (value < 100) {
      loop.emit("chain", value + 1);
    } else {
      loop.emit("end");
    }
  });
  std::promise<void> end;
  loop.on("end", [&] { end.set_value(); });
  loop.emit("chain", 0);
  ASSERT_EQ(end.get_future().wait_for(kDeadline), std::future_status::ready);
  EXPECT_EQ(order.size(), 101u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(EventLoopTest, AnEventFollowsTheListenerThatAnEarlierOneRegisters) {
  EventLoop loop;
  std::binary_semaphore go(0);
  std::promise<void> reached;
  loop.on("first", [&] {
    go.acquire();
    loop.on("second", [&] { reached.set_value(); });
  });
  loop.emit("first");
  loop.emit("second");
  go.release();
  EXPECT_EQ(reached.get_future().wait_for(kDeadline), std::future_status::ready);
}

TEST(EventLoopTest, AListenerMayRemoveItself) {
  EventLoop loop;
  int calls = 0;
  ListenerId id{};
  id = loop.on("e", [&, alive = std::make_shared<int>(1)] {
    loop.off("e", id);
    calls += *alive;
  });
  loop.emit("e");
  loop.emit("e");
  settle(loop);
  EXPECT_EQ(calls, 1);
}

TEST(EventLoopTest, OffDestroysTheListenerUnlessItRuns) {
  EventLoop loop;
  const auto alive = std::make_shared<int>(0);
  loop.on("idle", [alive] {});
  loop.emit("idle");
  settle(loop);
  EXPECT_EQ(alive.use_count(), 2);
  loop.off("idle");
  EXPECT_EQ(alive.use_count(), 1);

  std::promise<void> entered;
  std::binary_semaphore go(0);
  loop.on("busy", [&, alive] {
    entered.set_value();
    go.acquire();
    EXPECT_GE(alive.use_count(), 2);
  });
  loop.emit("busy");
  entered.get_future().get();
  loop.off("busy");
  EXPECT_EQ(alive.use_count(), 2) << "still running";
  go.release();
  settle(loop);
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(EventLoopTest, WaitForReturnsTheArguments) {
  EventLoop loop;
  std::jthread emitter([&] {
    wait_until("somebody waits", [&] { return loop.listened("e"); });
    loop.emit("e", 1, "two", kw("x", 3));
  });
  const std::optional<Args> args = loop.wait_for("e", kDeadline);
  ASSERT_TRUE(args.has_value());
  EXPECT_EQ(args->get<int>(0), 1);
  EXPECT_EQ(args->get<std::string>(1), "two");
  EXPECT_EQ(args->kwarg("x"), Value(3));
  EXPECT_FALSE(loop.listened("e"));
}

TEST(EventLoopTest, WaitForLeavesNoListenerInAnyCase) {
  EventLoop loop;
  EXPECT_FALSE(loop.wait_for("e", 1ms).has_value());
  EXPECT_FALSE(loop.listened("e"));
  EXPECT_THROW(loop.wait_for("e", 1ms, {.ignore_timeout = false}), TimeoutError);
  EXPECT_FALSE(loop.listened("e"));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(loop.wait_for("e", kForever, {.stop = stop.get_token()}).has_value());
  EXPECT_FALSE(loop.listened("e"));
  std::jthread emitter([&] {
    wait_until("somebody waits", [&] { return loop.listened("e"); });
    loop.emit("e", Private{});
  });
  EXPECT_THROW(loop.wait_for("e", kDeadline), PayloadError) << "has no MessagePack form";
  EXPECT_FALSE(loop.listened("e"));
  EXPECT_FALSE(loop.has_error());
}

TEST(EventLoopTest, WaitForEndsWhenAListenerFailsOrTheLoopStops) {
  EventLoop loop;
  loop.on("bad", [] { throw std::runtime_error("while waiting"); });
  {
    std::jthread emitter([&] {
      wait_until("somebody waits", [&] { return loop.listened("e"); });
      loop.emit("bad");
    });
    EXPECT_THROW(loop.wait_for("e"), std::runtime_error);
  }
  loop.take_error();
  std::jthread stopper([&] {
    wait_until("somebody waits", [&] { return loop.listened("e"); });
    loop.stop();
  });
  EXPECT_FALSE(loop.wait_for("e").has_value());
  EXPECT_FALSE(loop.wait_for("e").has_value()) << "at once on a stopped loop";
}

TEST(EventLoopTest, WaitForInsideAListenerOfTheSameLoopIsRefused) {
  EventLoop loop;
  loop.on("e", [&] { loop.wait_for("other"); });
  loop.emit("e");
  EXPECT_THAT(stored_text(loop), HasSubstr("inside a listener of event loop default"));
}

TEST(EventLoopTest, StopFromInsideAListenerEndsTheLoopAfterTheQueue) {
  for (const int threads : {1, 3}) {
    std::promise<void> destroyed;
    std::atomic<int> after = 0;
    std::binary_semaphore go(0);
    {
      EventLoop loop("inside", {.threads = threads});
      const std::shared_ptr<int> until_cleared(new int, [&](int* value) {
        delete value;
        destroyed.set_value();
      });
      loop.on("e", [&, until_cleared] {
        go.acquire();
        loop.stop();
      });
      loop.on("later", [&] { ++after; });
      loop.emit("e");
      loop.emit("later");
      go.release();
    }
    EXPECT_EQ(destroyed.get_future().wait_for(kDeadline), std::future_status::ready);
    EXPECT_EQ(after, 1);
  }
}

TEST(EventLoopTest, TheDestructorWaitsForAListenerThatHasStoppedTheLoop) {
  std::promise<void> stopped;
  std::binary_semaphore go(0);
  std::atomic<bool> left = false;
  std::jthread releaser;
  {
    EventLoop loop;
    loop.on("e", [&] {
      loop.stop();
      stopped.set_value();
      go.acquire();
      left = true;
    });
    loop.emit("e");
    stopped.get_future().get();
    releaser = std::jthread([&] { go.release(); });
  }
  EXPECT_TRUE(left);
}

TEST(EventLoopTest, AListenerMayDropTheLastHandleOfItsLoop) {
  auto loop = std::make_shared<EventLoop>();
  EventLoop& raw = *loop;
  std::promise<void> dropped;
  raw.on("e", [&, own = std::move(loop)]() mutable {
    own.reset();
    dropped.set_value();
  });
  raw.emit("e");
  EXPECT_EQ(dropped.get_future().wait_for(kDeadline), std::future_status::ready);
}

TEST(EventLoopTest, StopGivesUpOnAListenerThatDoesNotReturn) {
  std::binary_semaphore go(0);
  std::binary_semaphore left(0);
  std::promise<void> entered;
  bool second_ran = false;
  {
    EventLoop loop("stuck", {.stop_timeout = 10ms});
    const std::shared_ptr<void> leaving(nullptr, [&](void*) { left.release(); });
    loop.on("stuck", [&, leaving] {
      entered.set_value();
      go.acquire();
    });
    loop.on("second", [&] { second_ran = true; });
    loop.emit("stuck");
    loop.emit("second");
    entered.get_future().get();
    try {
      loop.stop();
      ADD_FAILURE() << "should have given up";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), HasSubstr("event loop stuck"));
    }
  }
  go.release();
  EXPECT_TRUE(left.try_acquire_for(kDeadline)) << "the listener goes when it returns";
  EXPECT_FALSE(second_ran);
}

TEST(EventLoopTest, TheRegistryHandsOutOneLoopAName) {
  const auto loop = EventLoop::get_event_loop("registry-test");
  EXPECT_EQ(EventLoop::get_event_loop("registry-test"), loop);
  EXPECT_NE(EventLoop::get_event_loop("registry-other"), loop);
  EventLoop unregistered("registry-test");
  unregistered.stop();
  EXPECT_EQ(EventLoop::get_event_loop("registry-test"), loop);
  loop->stop();
  EXPECT_NE(EventLoop::get_event_loop("registry-test"), loop);
  EventLoop::get_event_loop("registry-test")->stop();
  EventLoop::get_event_loop("registry-other")->stop();
}

TEST(EventLoopTest, BadOptionsAreRefused) {
  EXPECT_THROW(EventLoop("none", {.threads = 0}), UsageError);
  EXPECT_THROW(EventLoop("many", {.threads = 65}), UsageError);
}

TEST(EventLoopTest, ListenersCanComeAndGoWhileOthersEmit) {
  EventLoop loop;
  std::atomic<bool> done = false;
  std::atomic<int> calls = 0;
  loop.on("e", [&](int) { calls.fetch_add(1); });
  {
    std::jthread churn([&] {
      for (int i = 0; i < 3'000; ++i) {
        const auto alive = std::make_shared<int>(i);
        const ListenerId id = loop.on("e", [alive](int) { ASSERT_GE(alive.use_count(), 1); },
                                      {.inline_ = i % 2 == 0});
        loop.on("name" + std::to_string(i), [] {});
        loop.off("e", id);
        loop.off("name" + std::to_string(i));
      }
      done = true;
    });
    do {
      for (int i = 0; i < 10; ++i) loop.emit("e", i);
      loop.emit("name17");
    } while (!done);
  }
  loop.stop();
  EXPECT_GT(calls, 0);
}

}  // namespace
}  // namespace divisi
