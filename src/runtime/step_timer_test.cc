#include "divisi/step_timer.h"

#include "divisi/task.h"
#include "runtime/task_fake_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace divisi {
namespace {

using namespace std::chrono_literals;
using runtime::testing::FakeRouter;

Middleware step(std::string name) {
  return named(std::move(name), [](Context&) {});
}

TEST(StepTimerTest, A021AWrapperMeasuresEveryMiddlewareInAsyncMode) {
  FakeRouter router;
  Task local(router);
  const StepTimer timer;
  local.with({.async_mode = true}, [&] {
    local.use_wrapper(timer);
    local.use(step("one")).use(step("two")).use(local.serial(step("one"), step("two")));
    local.run(3);
    EXPECT_EQ(local.middleware_count(), 3u);
  });
  const auto records = timer.records();
  ASSERT_EQ(records.size(), 3u);
  for (const auto& [name, samples] : records) EXPECT_EQ(samples.size(), 3u) << name;
  EXPECT_TRUE(records.contains("serial<one,two>"));
}

TEST(StepTimerTest, A022NestedTimersEachHoldAllSamples) {
  FakeRouter router;
  Task local(router);
  const StepTimer inner;
  const StepTimer outer(2, 20);
  local.with({}, [&] {
    local.use_wrapper(inner).use_wrapper(outer);
    local.use(step("one"));
    local.use(named("two", [](Context&) { suspend(); }));
    local.run(3);
  });
  for (const StepTimer& timer : {inner, outer}) {
    const auto records = timer.records();
    ASSERT_EQ(records.size(), 2u);
    for (const auto& [name, samples] : records) EXPECT_EQ(samples.size(), 3u) << name;
  }
}

TEST(StepTimerTest, BothPartsCountAndTheTimeBetweenThemDoesNot) {
  FakeRouter router;
  Task local(router);
  const StepTimer timer;
  const auto start = std::chrono::steady_clock::now();
  local.with({}, [&] {
    local.use_wrapper(timer);
    local.use(named("both", [](Context&) {
      std::this_thread::sleep_for(20ms);
      suspend();
      std::this_thread::sleep_for(20ms);
    }));
    local.use(named("between", [](Context&) { std::this_thread::sleep_for(100ms); }));
    local.run(1);
  });
  const double total =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  const auto records = timer.records();
  EXPECT_GE(records.at("both")[0], 40.0);
  // Holds under any load, unless the time between the parts was counted twice.
  EXPECT_LE(records.at("both")[0] + records.at("between")[0], total);
}

TEST(StepTimerTest, TheRingForgetsTheOldestSamples) {
  FakeRouter router;
  Task local(router);
  const StepTimer timer(2, 3);
  local.with({}, [&] {
    local.use_wrapper(timer);
    local.use(step("one"));
    local.run(20);
  });
  EXPECT_EQ(timer.records().at("one").size(), 6u);
}

TEST(StepTimerTest, LinesComeOncePerPrintPerStepWithNodeCostAndMean) {
  FakeRouter router;
  Task local(router);
  ::testing::internal::CaptureStderr();
  local.with({}, [&] {
    local.use_wrapper(StepTimer(2));
    local.use(epoch_timer(2));
    local.use(step("one"));
    local.run(4);
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  const auto count = [&](const std::string& text) {
    int found = 0;
    for (std::size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_EQ(count("[Step Timer][Node: 0] one: Cost: "), 2) << log;
  EXPECT_EQ(count("[Epoch Timer][Node: 0]: Cost: "), 2) << log;
  EXPECT_EQ(count("ms, Mean: "), 6) << log;
}

TEST(StepTimerTest, ATimerWithoutAWindowIsRefused) {
  EXPECT_THROW(StepTimer(0), UsageError);
  EXPECT_THROW(epoch_timer(1, 0), UsageError);
}

}  // namespace
}  // namespace divisi
