#include "io/lookup_threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <latch>
#include <mutex>
#include <thread>

namespace divisi::io {
namespace {

TEST(LookupThreadsTest, ManyLookupsShareFewThreadsAndAllRun) {
  constexpr int kLookups = 200;
  std::latch all(kLookups);
  std::mutex mutex;
  int running = 0;
  int most = 0;
  for (int i = 0; i < kLookups; ++i) {
    ASSERT_TRUE(LookupThreads::instance()
                    .run([&] {
                      {
                        const std::lock_guard lock(mutex);
                        most = std::max(most, ++running);
                      }
                      std::this_thread::yield();
                      {
                        const std::lock_guard lock(mutex);
                        --running;
                      }
                      all.count_down();
                    })
                    .ok());
  }
  all.wait();
  EXPECT_LE(most, 8);
}

TEST(LookupThreadsTest, ALookupDoesNotWaitForASlowOne) {
  std::promise<void> release;
  auto released = release.get_future().share();
  std::promise<void> second_ran;
  ASSERT_TRUE(LookupThreads::instance().run([released] { released.wait(); }).ok());
  ASSERT_TRUE(LookupThreads::instance().run([&] { second_ran.set_value(); }).ok());
  second_ran.get_future().wait();
  release.set_value();
}

}  // namespace
}  // namespace divisi::io
