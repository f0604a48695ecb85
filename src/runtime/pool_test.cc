#include "runtime/pool.h"

#include "divisi/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <pthread.h>
#include <stdexcept>

namespace divisi::runtime {
namespace {

using namespace std::chrono_literals;

TEST(PoolTest, JobsStartInTheOrderOfTheirSubmission) {
  Pool pool(1);
  std::vector<int> order;
  for (int i = 0; i < 10; ++i) pool.submit([&order, i] { order.push_back(i); });
  pool.close();
  EXPECT_TRUE(pool.join(10s));
  EXPECT_EQ(order, (std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(PoolTest, NothingIsAcceptedAfterCloseButWhatIsQueuedRuns) {
  Pool pool(2);
  std::atomic<int> ran{0};
  for (int i = 0; i < 20; ++i) pool.submit([&] { ++ran; });
  pool.close();
  EXPECT_FALSE(pool.submit([&] { ++ran; }));
  EXPECT_TRUE(pool.join(10s));
  EXPECT_EQ(ran, 20);
}

TEST(PoolTest, JoinGivesUpAtItsDeadlineAndLeavesTheThreadAlone) {
  auto release = std::make_shared<std::promise<void>>();
  auto ended = std::make_shared<std::promise<void>>();
  std::promise<void> started;
  {
    Pool pool(1);
    pool.submit([&started, release, ended] {
      started.set_value();
      release->get_future().wait();
      ended->set_value();
    });
    started.get_future().wait();
    pool.close();
    EXPECT_FALSE(pool.join(1ms));
  }
  release->set_value();
  EXPECT_EQ(ended->get_future().wait_for(10s), std::future_status::ready);
}

TEST(PoolTest, AGroupHandsOutItsFirstFailureWhileOthersStillRun) {
  Pool pool(2);
  const auto group = std::make_shared<JobGroup>();
  std::promise<void> release;
  group->submit(pool, [&] { release.get_future().wait(); });
  group->submit(pool, [] { throw std::runtime_error("failed"); });
  const std::exception_ptr failure = group->wait_for_all_or_failure();
  EXPECT_THROW(std::rethrow_exception(failure), std::runtime_error);
  release.set_value();
  EXPECT_EQ(group->wait_for_all_or_failure(), nullptr);
  pool.close();
  EXPECT_TRUE(pool.join(10s));
}

TEST(PoolTest, ThreadsThatTheSystemDoesNotGiveAreAnError) {
  pthread_attr_t usual;
  pthread_attr_t impossible;
  ASSERT_EQ(::pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(::pthread_getattr_default_np(&impossible), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&impossible, std::size_t{1} << 47), 0);
  ASSERT_EQ(::pthread_setattr_default_np(&impossible), 0);
  EXPECT_THAT([] { const Pool pool(3); }, ::testing::ThrowsMessage<Error>(::testing::HasSubstr(
                                              "n_async_workers=3: the system gives only 0")));
  ASSERT_EQ(::pthread_setattr_default_np(&usual), 0);
  ::pthread_attr_destroy(&usual);
  ::pthread_attr_destroy(&impossible);
}

TEST(PoolTest, AfterAGroupIsSettledWhatElseOfItFailsIsNotHandedOut) {
  Pool pool(2);
  const auto group = std::make_shared<JobGroup>();
  std::promise<void> release;
  group->submit(pool, [&] {
    release.get_future().wait();
    throw std::runtime_error("later");
  });
  group->submit(pool, [] { throw std::runtime_error("failed"); });
  EXPECT_NE(group->wait_for_all_or_failure(), nullptr);
  group->settle();
  release.set_value();
  EXPECT_EQ(group->wait_for_all(pool), nullptr);
  group->submit(pool, [] { throw std::runtime_error("of the next"); });
  EXPECT_NE(group->wait_for_all(pool), nullptr);
  pool.close();
  EXPECT_TRUE(pool.join(10s));
}

TEST(PoolTest, GroupsNestHoweverSmallThePoolIs) {
  Pool pool(1);
  const auto outer = std::make_shared<JobGroup>();
  std::atomic<int> ran{0};
  for (int i = 0; i < 3; ++i) {
    outer->submit(pool, [&] {
      const auto inner = std::make_shared<JobGroup>();
      for (int j = 0; j < 3; ++j) inner->submit(pool, [&] { ++ran; });
      EXPECT_EQ(inner->wait_for_all(pool), nullptr);
    });
  }
  EXPECT_EQ(outer->wait_for_all(pool), nullptr);
  EXPECT_EQ(ran, 9);
  pool.close();
  EXPECT_TRUE(pool.join(10s));
}

TEST(PoolTest, AGroupOnAClosedPoolIsRefusedAndHasNothingToWaitFor) {
  Pool pool(1);
  pool.close();
  const auto group = std::make_shared<JobGroup>();
  EXPECT_FALSE(group->submit(pool, [] {}));
  EXPECT_EQ(group->wait_for_all(pool), nullptr);
  EXPECT_TRUE(pool.join(10s));
}

}  // namespace
}  // namespace divisi::runtime
