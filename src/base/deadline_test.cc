#include "base/deadline.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

namespace divisi {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr Clock::time_point kNow{1h};

TEST(DeadlineTest, IsNowAndTheTimeout) {
  EXPECT_EQ(deadline_after(1500ms, kNow), kNow + 1500ms);
  EXPECT_EQ(deadline_after(2s, kNow), kNow + 2s);
  EXPECT_EQ(deadline_after(7ns, kNow), kNow + 7ns);
}

TEST(DeadlineTest, OfTheLongestTimeoutIsTheEndOfTime) {
  EXPECT_EQ(deadline_after(std::chrono::nanoseconds::max(), kNow), Clock::time_point::max());
  EXPECT_EQ(deadline_after(std::chrono::milliseconds::max(), kNow), Clock::time_point::max());
  EXPECT_EQ(deadline_after(std::chrono::seconds::max(), kNow), Clock::time_point::max());
  EXPECT_EQ(deadline_after(std::chrono::hours(5'000'000), kNow), Clock::time_point::max());
}

TEST(DeadlineTest, OfANegativeTimeoutIsNow) {
  EXPECT_EQ(deadline_after(-1ms, kNow), kNow);
  EXPECT_EQ(deadline_after(std::chrono::milliseconds::min(), kNow), kNow);
}

TEST(DeadlineTest, TheEndOfTimeCanBeWaitedFor) {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  int looked = 0;
  EXPECT_TRUE(never.wait_until(lock, deadline_after(std::chrono::milliseconds::max()),
                               [&] { return ++looked > 0; }));
}

TEST(DeadlineTest, ALongTimeoutStaysLongInNanoseconds) {
  EXPECT_EQ(to_nanoseconds(std::chrono::milliseconds::max()), std::chrono::nanoseconds::max());
  EXPECT_EQ(to_nanoseconds(std::chrono::milliseconds::min()), -std::chrono::nanoseconds::max());
  EXPECT_EQ(to_nanoseconds(3ms), 3'000'000ns);
  EXPECT_EQ(to_nanoseconds(-3ms), -3'000'000ns);
}

}  // namespace
}  // namespace divisi
