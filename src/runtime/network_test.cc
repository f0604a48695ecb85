// What a process keeps of the jobs that it was part of.
#include "runtime/network.h"

#include "divisi/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

namespace divisi::runtime {
namespace {

void run_once(const std::function<void()>& main) {
  Parallel::runner({.n_parallel_workers = 1, .log_level = "error"})(main);
}

TEST(NetworkTest, AJobThatHasEndedTakesNoMemory) {
  Network& network = Network::instance();
  for (int run = 0; run < 5; ++run) {
    run_once([&] { EXPECT_EQ(network.kept(), 1u); });
    EXPECT_EQ(network.kept(), 0u);
  }
}

TEST(NetworkTest, AJobThatAThreadIsInsideOfStaysUntilTheThreadHasLeft) {
  Network& network = Network::instance();
  std::stop_source wait;
  std::atomic<bool> inside{false};
  std::optional<std::jthread> left_behind;
  run_once([&] {
    left_behind.emplace([&inside, &network, token = wait.get_token()] {
      const auto job = network.membership();
      inside.store(true);
      inside.notify_one();
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any asked;
      asked.wait(lock, token, [] { return false; });
      EXPECT_EQ(job->config.n_workers, 1);
    });
    inside.wait(false);
  });
  EXPECT_EQ(network.kept(), 1u) << "a thread is inside of it";
  EXPECT_FALSE(network.is_active());
  wait.request_stop();
  left_behind.reset();
  run_once([&] { EXPECT_EQ(network.kept(), 1u) << "the one of this run"; });
  EXPECT_EQ(network.kept(), 0u);
}

}  // namespace
}  // namespace divisi::runtime
