#include "rl/replay_server.h"

#include "divisi/error.h"
#include "rl/replay_client.h"
#include "rl/replay_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <unistd.h>

namespace divisi::rl {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

ReplayServerOptions options(const std::string& checkpoint = {}) {
  return {.buffer = {.capacity = 100, .observation_size = 2, .action_count = 2},
          .limit = {.samples_per_insert = 2, .min_size = 10, .tolerance = 20},
          .seed = 1,
          .checkpoint = checkpoint};
}

bool at_once() {
  return true;
}

class ReplayServerTest : public ::testing::Test {
 protected:
  ReplayServerTest() {
    std::string name = (fs::temp_directory_path() / "replay_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~ReplayServerTest() override { fs::remove_all(folder_); }
  std::string path() const { return (folder_ / "replay.ckpt").string(); }

 private:
  fs::path folder_;
};

TEST_F(ReplayServerTest, Counts_what_comes_and_goes) {
  ReplayServer server(options());
  EXPECT_FALSE(server.sample(4, at_once));  // too few rows: it gives up instead of waiting
  EXPECT_TRUE(server.insert(numbered_rows(0, 12), {24, 2, 30.5}, at_once));
  const auto samples = server.sample(4, at_once);
  ASSERT_TRUE(samples);
  const auto index = samples->index.view<std::int64_t>();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(is_row(*samples, i, index[i]));
  const auto totals = server.totals();
  EXPECT_EQ(totals.env_step, 24);
  EXPECT_EQ(totals.env_episode, 2);
  EXPECT_EQ(totals.return_sum, 30.5);
  EXPECT_EQ(totals.inserted, 12);
  EXPECT_EQ(totals.sampled, 4);
  EXPECT_EQ(totals.size, 12);
}

TEST_F(ReplayServerTest, Holds_back_a_collector_that_is_ahead_and_a_learner_that_is) {
  ReplayServer server(options());
  EXPECT_TRUE(server.insert(numbered_rows(0, 21), {21}, at_once));  // 22 rows owed
  EXPECT_FALSE(server.insert(numbered_rows(21, 1), {1}, at_once));
  EXPECT_EQ(server.totals().inserted, 21);
  EXPECT_EQ(server.totals().env_step, 21);
  EXPECT_TRUE(server.sample(42, at_once));  // a debt of 20 rows is the tolerance, 42 widen it
  EXPECT_TRUE(server.sample(20, at_once));
  EXPECT_FALSE(server.sample(42, at_once));
}

TEST_F(ReplayServerTest, Who_waits_goes_on_when_the_other_side_has_caught_up) {
  ReplayServer server(options());
  std::atomic<bool> waits = false;
  const auto never = [&] {
    waits = true;
    waits.notify_all();
    return false;
  };
  auto sampled = std::async(std::launch::async, [&] { return server.sample(4, never); });
  waits.wait(false);
  EXPECT_TRUE(server.insert(numbered_rows(0, 21), {21}, never));
  EXPECT_TRUE(sampled.get());  // 18 rows owed
  EXPECT_TRUE(server.insert(numbered_rows(21, 2), {2}, never));
  waits = false;
  auto inserted = std::async(std::launch::async,
                             [&] { return server.insert(numbered_rows(23, 1), {1}, never); });
  waits.wait(false);
  EXPECT_TRUE(server.sample(4, never));
  EXPECT_TRUE(inserted.get());
}

TEST_F(ReplayServerTest, A_wait_ends_when_it_is_told_to) {
  ReplayServer server(options());
  std::atomic<int> asked = 0;
  EXPECT_FALSE(server.sample(4, [&] { return ++asked == 3; }));
  EXPECT_EQ(asked, 3);
}

TEST_F(ReplayServerTest, Goes_on_from_its_checkpoint) {
  {
    ReplayServer server(options(path()));
    server.insert(numbered_rows(0, 21), {40, 3, 99.0}, at_once);
    server.sample(2, at_once);
    server.save();
    server.insert(numbered_rows(21, 1), {1}, at_once);  // is lost
  }
  ReplayServer server(options(path()));
  const auto totals = server.totals();
  EXPECT_EQ(totals.env_step, 40);
  EXPECT_EQ(totals.env_episode, 3);
  EXPECT_EQ(totals.return_sum, 99.0);
  EXPECT_EQ(totals.inserted, 21);
  EXPECT_EQ(totals.sampled, 2);
  EXPECT_EQ(totals.size, 21);
  // The limits, too: the collector is exactly at its bound.
  EXPECT_TRUE(server.insert(numbered_rows(21, 1), {1}, at_once));
  EXPECT_FALSE(server.insert(numbered_rows(22, 1), {1}, at_once));
  const auto samples = server.sample(20, at_once);
  ASSERT_TRUE(samples);
  const auto index = samples->index.view<std::int64_t>();
  for (std::size_t i = 0; i < 20; ++i) EXPECT_TRUE(is_row(*samples, i, index[i]));
}

TEST_F(ReplayServerTest, A_checkpoint_that_does_not_fit_is_refused_by_its_path) {
  ReplayServer(options(path())).save();
  auto other = options(path());
  other.buffer.capacity = 50;
  EXPECT_THAT([&] { ReplayServer server(other); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr(path()), HasSubstr("100 rows"), HasSubstr("this run 50"))));
  fs::resize_file(path(), fs::file_size(path()) - 3);
  EXPECT_THAT([&] { ReplayServer server(options(path())); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr(path()), HasSubstr("damaged"))));
}

TEST_F(ReplayServerTest, Without_a_path_nothing_is_saved) {
  ReplayServer server(options());
  server.save();
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(ReplayServerTest, Rows_of_another_environment_are_refused_and_not_counted) {
  ReplayServer server(options());
  EXPECT_THROW(server.insert(numbered_rows(0, 3, 4), {3}, at_once), UsageError);
  EXPECT_EQ(server.totals().env_step, 0);
  EXPECT_EQ(server.totals().inserted, 0);
}

TEST_F(ReplayServerTest, A_local_replay_is_both_ends) {
  ReplayServer server(options());
  LocalReplay replay(server, 6, at_once);
  EXPECT_FALSE(replay.next());
  EXPECT_TRUE(replay.push(numbered_rows(0, 10), {17, 1, 5}));
  EXPECT_EQ(replay.env_step(), 17);
  const auto samples = replay.next();
  ASSERT_TRUE(samples);
  EXPECT_EQ(checked_rows(*samples, 2, 2), 6);
  TransitionBatch batch;
  to_batch(*samples, 2, 3, batch);
  EXPECT_EQ(batch.size, 3);
  EXPECT_EQ(batch.observations.size(), 6U);
  EXPECT_EQ(batch.rewards[0], samples->reward.view<float>()[2]);
  EXPECT_EQ(batch.weights, (std::vector<float>{1, 1, 1}));
}

}  // namespace
}  // namespace divisi::rl
