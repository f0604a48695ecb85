#include "runtime/fiber.h"

#include "divisi/error.h"
#include "runtime/fiber_stack.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace divisi::runtime {
namespace {

using Trace = std::vector<std::string>;

// Writes its name when it goes, as a scope guard of a middleware would.
struct Mark {
  Trace& trace;
  std::string name;
  ~Mark() { trace.push_back(name); }
};

TEST(FiberTest, RunsToTheSuspensionAndThenToTheEnd) {
  Trace trace;
  Fiber fiber([&] {
    trace.push_back("forward");
    Fiber::suspend();
    trace.push_back("backward");
  });
  EXPECT_TRUE(fiber.resume());
  EXPECT_EQ(trace, (Trace{"forward"}));
  EXPECT_TRUE(fiber.suspended());
  EXPECT_FALSE(fiber.resume());
  EXPECT_EQ(trace, (Trace{"forward", "backward"}));
  EXPECT_TRUE(fiber.done());
}

TEST(FiberTest, ABodyThatNeverSuspendsIsDoneAfterOneResume) {
  Fiber fiber([] {});
  EXPECT_FALSE(fiber.resume());
  EXPECT_TRUE(fiber.done());
}

TEST(FiberTest, AFiberThatWasNeverResumedIsDestroyedWithoutRunning) {
  bool ran = false;
  {
    Fiber fiber([&] { ran = true; });
  }
  EXPECT_FALSE(ran);
}

TEST(FiberTest, WhatTheBodyThrowsLeavesResumeBeforeAndAfterTheSuspension) {
  Fiber first([] { throw std::runtime_error("before"); });
  EXPECT_THROW(first.resume(), std::runtime_error);
  EXPECT_TRUE(first.done());

  Fiber second([] {
    Fiber::suspend();
    throw std::runtime_error("after");
  });
  EXPECT_TRUE(second.resume());
  try {
    second.resume();
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "after");
  }
}

TEST(FiberTest, ExceptionsCaughtInsideTheBodyStayInside) {
  int caught = 0;
  Fiber fiber([&] {
    for (int i = 0; i < 3; ++i) {
      try {
        throw std::runtime_error("inside");
      } catch (const std::runtime_error&) {
        ++caught;
      }
      Fiber::suspend();
    }
  });
  while (fiber.resume()) {
  }
  EXPECT_EQ(caught, 3);
}

TEST(FiberTest, AFiberMaySuspendInsideACatchBlockAndFindsItsOwnExceptionAgain) {
  std::string seen;
  Fiber fiber([&] {
    try {
      throw std::runtime_error("mine");
    } catch (...) {
      Fiber::suspend();
      try {
        throw;
      } catch (const std::runtime_error& error) {
        seen = error.what();
      }
    }
  });
  fiber.resume();
  try {
    throw std::logic_error("the host's");
  } catch (...) {
    fiber.resume();
    EXPECT_THROW(throw, std::logic_error);
  }
  EXPECT_EQ(seen, "mine");
  EXPECT_EQ(std::uncaught_exceptions(), 0);
}

TEST(FiberTest, DestroyingASuspendedFiberUnwindsItsLocalsInnermostFirst) {
  Trace trace;
  {
    Fiber fiber([&] {
      const Mark outer{trace, "outer"};
      const Mark inner{trace, "inner"};
      Fiber::suspend();
      trace.push_back("never");
    });
    fiber.resume();
    EXPECT_TRUE(trace.empty());
  }
  EXPECT_EQ(trace, (Trace{"inner", "outer"}));
}

TEST(FiberTest, ABodyThatSwallowsTheUnwindingExceptionDoesNotHarmUs) {
  Trace trace;
  {
    Fiber fiber([&] {
      const Mark mark{trace, "unwound"};
      try {
        Fiber::suspend();
      } catch (...) {
        trace.push_back("swallowed");
      }
      trace.push_back("went on");
    });
    fiber.resume();
  }
  EXPECT_EQ(trace, (Trace{"swallowed", "went on", "unwound"}));
}

TEST(FiberTest, ABodyThatSuspendsAgainWhileItIsUnwoundIsUnwoundAgain) {
  Trace trace;
  {
    Fiber fiber([&] {
      const Mark mark{trace, "unwound"};
      try {
        Fiber::suspend();
      } catch (...) {
      }
      Fiber::suspend();
      trace.push_back("never");
    });
    fiber.resume();
  }
  EXPECT_EQ(trace, (Trace{"unwound"}));
}

TEST(FiberTest, ABodyThatNeverLetsGoIsGivenUp) {
  auto attempts = std::make_shared<int>(0);
  {
    Fiber fiber([attempts] {
      for (;;) {
        try {
          Fiber::suspend();
        } catch (...) {
          ++*attempts;
        }
      }
    });
    fiber.resume();
  }
  EXPECT_GT(*attempts, 1);
}

TEST(FiberTest, ADestructorThatSuspendsWhileItIsUnwoundJustGoesOn) {
  Trace trace;
  struct Suspends {
    Trace& trace;
    ~Suspends() {
      Fiber::suspend();
      trace.push_back("destroyed");
    }
  };
  {
    Fiber fiber([&] {
      const Suspends last{trace};
      Fiber::suspend();
    });
    fiber.resume();
  }
  EXPECT_EQ(trace, (Trace{"destroyed"}));
}

TEST(FiberTest, AFiberDestroyedByTheUnwindingOfAnotherIsUnwoundToo) {
  Trace trace;
  {
    Fiber outer([&] {
      Fiber inner([&] {
        const Mark mark{trace, "inner"};
        Fiber::suspend();
      });
      const Mark mark{trace, "outer"};
      inner.resume();
      Fiber::suspend();
    });
    outer.resume();
  }
  EXPECT_EQ(trace, (Trace{"outer", "inner"}));
}

TEST(FiberTest, AnExceptionInFlightDestroysASuspendedFiberCleanly) {
  Trace trace;
  EXPECT_THROW(
      {
        Fiber fiber([&] {
          const Mark mark{trace, "unwound"};
          Fiber::suspend();
        });
        fiber.resume();
        throw std::runtime_error("host");
      },
      std::runtime_error);
  EXPECT_EQ(trace, (Trace{"unwound"}));
}

TEST(FiberTest, SuspendStopsTheInnermostFiberOnly) {
  Trace trace;
  Fiber outer([&] {
    Fiber inner([&] {
      trace.push_back("inner+");
      Fiber::suspend();
      trace.push_back("inner-");
    });
    inner.resume();
    trace.push_back("outer+");
    Fiber::suspend();
    trace.push_back("outer-");
    inner.resume();
  });
  outer.resume();
  outer.resume();
  EXPECT_EQ(trace, (Trace{"inner+", "outer+", "outer-", "inner-"}));
}

// Not std::this_thread::get_id(): glibc promises the compiler that it never changes within a
// function, so it may be asked once, before the suspension.
int thread_number() {
  return ::gettid();
}

TEST(FiberTest, AFiberGoesOnOnAnotherThread) {
  std::vector<int> threads;
  int other_number = 0;
  Fiber fiber([&] {
    threads.push_back(thread_number());
    Fiber::suspend();
    threads.push_back(thread_number());
    try {
      throw std::runtime_error("here too");
    } catch (const std::exception&) {
      threads.push_back(thread_number());
    }
    Fiber::suspend();
  });
  fiber.resume();
  std::thread other([&] {
    other_number = thread_number();
    EXPECT_TRUE(fiber.resume());
    EXPECT_FALSE(Fiber::inside());
  });
  other.join();
  EXPECT_FALSE(fiber.resume());
  EXPECT_EQ(threads, (std::vector{thread_number(), other_number, other_number}));
}

TEST(FiberTest, ManyFibersOnManyThreadsKeepTheirOwnState) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int round = 0; round < kRounds; ++round) {
        int value = t;
        Fiber fiber([&] {
          value += 1;
          Fiber::suspend();
          value += 10;
        });
        ASSERT_TRUE(fiber.resume());
        ASSERT_EQ(value, t + 1);
        if (round % 3 == 0) continue;  // discarded while suspended
        ASSERT_FALSE(fiber.resume());
        ASSERT_EQ(value, t + 11);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(FiberTest, MoreFibersThanThePoolKeepsMayBeSuspendedAtOnce) {
  std::vector<std::unique_ptr<Fiber>> fibers;
  int ended = 0;
  for (int i = 0; i < 200; ++i) {
    fibers.push_back(std::make_unique<Fiber>([&] {
      Fiber::suspend();
      ++ended;
    }));
    ASSERT_TRUE(fibers.back()->resume());
  }
  for (auto& fiber : fibers) ASSERT_FALSE(fiber->resume());
  EXPECT_EQ(ended, 200);
}

TEST(FiberTest, MostOfTheStackIsUsable) {
  Fiber fiber([] {
    volatile char bytes[kFiberStackBytes / 2];
    for (std::size_t i = 0; i < sizeof bytes; i += 512) bytes[i] = 1;
    Fiber::suspend();
    EXPECT_EQ(bytes[512], 1);
  });
  EXPECT_TRUE(fiber.resume());
  EXPECT_FALSE(fiber.resume());
}

TEST(FiberTest, SuspendOutsideAFiberIsAUsageError) {
  EXPECT_THROW(Fiber::suspend(), UsageError);
}

TEST(FiberStackTest, ItsSizeIsANumberOfKib) {
  EXPECT_EQ(parse_fiber_stack_kib(nullptr).value(), kFiberStackBytes);
  EXPECT_EQ(parse_fiber_stack_kib("2048").value(), std::size_t{2} << 20);
  EXPECT_EQ(parse_fiber_stack_kib("65").value(), std::size_t{128} << 10) << "whole pages";
  for (const char* wrong : {"", "0", "63", "-1", "1 MiB", "1048577", "99999999999999999999"}) {
    const auto parsed = parse_fiber_stack_kib(wrong);
    ASSERT_FALSE(parsed.has_value()) << wrong;
    EXPECT_NE(parsed.error().message().find("DIVISI_FIBER_STACK_KIB"), std::string::npos);
  }
}

TEST(FiberDeathTest, AnOverflowHitsTheGuardPage) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Fiber fiber([] {
          volatile char bytes[kFiberStackBytes + 64];
          bytes[0] = 1;
          EXPECT_EQ(bytes[0], 1);
        });
        fiber.resume();
      },
      "");
}

}  // namespace
}  // namespace divisi::runtime
