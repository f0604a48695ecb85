#include "rl/replay_buffer.h"

#include "divisi/error.h"
#include "rl/replay_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace divisi::rl {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

ReplayOptions small(std::int64_t capacity, bool prioritised = false) {
  return {
      .capacity = capacity, .observation_size = 2, .action_count = 2, .prioritised = prioritised};
}

std::map<std::int64_t, int> draws(ReplayBuffer& buffer, int rows) {
  std::map<std::int64_t, int> counts;
  for (const std::int64_t index : buffer.sample(rows).index.view<std::int64_t>()) ++counts[index];
  return counts;
}

// Against the obvious model: a list of numbers of which only the newest `capacity` count.
RC_GTEST_PROP(ReplayBufferTest, Gives_the_newest_rows_whole, (bool prioritised)) {
  const auto capacity = *rc::gen::inRange<std::int64_t>(1, 40);
  const auto inserts =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 25)));
  ReplayBuffer buffer(small(capacity, prioritised), 7);
  std::int64_t inserted = 0;
  for (const int rows : inserts) {
    buffer.insert(numbered_rows(inserted, rows));
    inserted += rows;
    RC_ASSERT(buffer.inserted() == inserted);
    RC_ASSERT(buffer.size() == std::min(inserted, capacity));
    const Samples samples = buffer.sample(20);
    RC_ASSERT(checked_rows(samples, 2, 2) == 20);
    const auto indexes = samples.index.view<std::int64_t>();
    for (std::size_t i = 0; i < indexes.size(); ++i) {
      RC_ASSERT(indexes[i] >= inserted - buffer.size());
      RC_ASSERT(indexes[i] < inserted);
      RC_ASSERT(is_row(samples, i, indexes[i]));
    }
  }
}

RC_GTEST_PROP(ReplayBufferTest, What_was_saved_is_restored, (bool prioritised)) {
  const auto capacity = *rc::gen::inRange<std::int64_t>(1, 40);
  const auto rows = *rc::gen::inRange(1, 100);
  ReplayBuffer before(small(capacity, prioritised), 1);
  before.insert(numbered_rows(0, rows));
  const auto errors = *rc::gen::container<std::vector<float>>(
      static_cast<std::size_t>(rows),
      rc::gen::map(rc::gen::inRange(0, 9), [](int n) { return static_cast<float>(n); }));
  std::vector<std::int64_t> indexes;
  for (std::int64_t i = 0; i < rows; ++i) indexes.push_back(i);
  before.update_priorities(indexes, errors);

  ReplayBuffer after(small(capacity, prioritised), 1);
  after.restore(before.save());
  RC_ASSERT(after.inserted() == before.inserted());
  RC_ASSERT(after.size() == before.size());
  // The same seed and the same contents draw the same rows with the same weights.
  const Samples one = before.sample(50);
  const Samples other = after.sample(50);
  RC_ASSERT(one.index == other.index);
  RC_ASSERT(one.weight == other.weight);
  RC_ASSERT(one.observation == other.observation);
  RC_ASSERT(after.save() == before.save());
}

// No bytes do more than raise a UsageError.
RC_GTEST_PROP(ReplayBufferTest, Damaged_bytes_are_refused, (bool prioritised)) {
  ReplayBuffer buffer(small(8, prioritised));
  buffer.insert(numbered_rows(0, 5));
  auto bytes = buffer.save();
  if (*rc::gen::arbitrary<bool>()) {
    bytes.resize(*rc::gen::inRange<std::size_t>(0, bytes.size()));
  } else {
    bytes.resize(bytes.size() + *rc::gen::inRange<std::size_t>(1, 100));
  }
  ReplayBuffer other(small(8, prioritised));
  RC_ASSERT_THROWS_AS(other.restore(bytes), UsageError);
  RC_ASSERT(other.size() == 0);
}

TEST(ReplayBufferTest, Another_buffers_bytes_are_refused_by_name) {
  const auto bytes = ReplayBuffer(small(8)).save();
  ReplayBuffer larger(small(9));
  EXPECT_THAT([&] { larger.restore(bytes); },
              ThrowsMessage<UsageError>(HasSubstr("8 rows of 2 observations, this run 9 of 2")));
  ReplayBuffer prioritised(small(8, true));
  EXPECT_THAT([&] { prioritised.restore(bytes); },
              ThrowsMessage<UsageError>(HasSubstr("this run 8 of 2 with priorities")));
  auto foreign = bytes;
  foreign[0] ^= std::byte{1};
  ReplayBuffer same(small(8));
  EXPECT_THAT([&] { same.restore(foreign); },
              ThrowsMessage<UsageError>(HasSubstr("not a saved replay buffer")));
}

TEST(ReplayBufferTest, An_empty_one_gives_nothing) {
  ReplayBuffer buffer(small(8));
  EXPECT_THROW(buffer.sample(1), UsageError);
  EXPECT_THROW(ReplayBuffer(small(0)), UsageError);
}

TEST(ReplayBufferTest, Rows_that_do_not_fit_are_refused_and_nothing_is_inserted) {
  ReplayBuffer buffer(small(8));
  EXPECT_THAT([&] { buffer.insert(numbered_rows(0, 3, 4)); },
              ThrowsMessage<UsageError>(
                  HasSubstr("'observation' is float32 [3, 4], expected float32 [3, 2]")));
  auto rows = numbered_rows(0, 3);
  rows.action = Tensor::copy_of<std::int32_t>({3}, std::vector<std::int32_t>{0, 1, 2});
  EXPECT_THAT([&] { buffer.insert(rows); },
              ThrowsMessage<UsageError>(HasSubstr("action 2 is not one of 0 to 1")));
  rows = numbered_rows(0, 3);
  rows.discount = Tensor::copy_of<float>({2}, std::vector<float>{1, 1});
  EXPECT_THAT([&] { buffer.insert(rows); }, ThrowsMessage<UsageError>(HasSubstr("'discount'")));
  EXPECT_EQ(buffer.inserted(), 0);
}

TEST(ReplayBufferTest, Uniform_draws_are_uniform) {
  ReplayBuffer buffer(small(10), 3);
  buffer.insert(numbered_rows(0, 25));  // 15 to 24 are left
  const auto counts = draws(buffer, 50'000);
  ASSERT_EQ(counts.size(), 10U);
  EXPECT_EQ(counts.begin()->first, 15);
  // 5,000 each, deviation 67: five deviations.
  for (const auto& [index, count] : counts) EXPECT_NEAR(count, 5'000, 340) << index;
}

TEST(ReplayBufferTest, Draws_go_by_priority_and_weights_undo_it) {
  ReplayOptions options = small(4, true);
  options.alpha = 1;
  options.beta = 1;
  ReplayBuffer buffer(options, 3);
  buffer.insert(numbered_rows(0, 4));
  buffer.update_priorities(std::vector<std::int64_t>{0, 1, 2, 3},
                           std::vector<float>{-1, 2, 3, 4});  // the size counts, not the sign
  const Samples samples = buffer.sample(10'000);
  std::map<std::int64_t, int> counts;
  const auto indexes = samples.index.view<std::int64_t>();
  const auto weights = samples.weight.view<float>();
  for (std::size_t i = 0; i < indexes.size(); ++i) {
    ++counts[indexes[i]];
    // The rarest row weighs 1, one drawn k times as often 1/k.
    EXPECT_NEAR(weights[i], 1.0 / static_cast<double>(indexes[i] + 1), 1e-5);
  }
  // One from each of 10,000 equal parts: nearly exact.
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(counts[i], 1'000 * (i + 1), 2) << i;
}

TEST(ReplayBufferTest, New_rows_get_the_largest_priority_and_old_indexes_are_skipped) {
  ReplayOptions options = small(4, true);
  options.alpha = 1;
  ReplayBuffer buffer(options, 3);
  buffer.insert(numbered_rows(0, 4));
  buffer.update_priorities(std::vector<std::int64_t>{0, 1, 2, 3}, std::vector<float>{9, 1, 1, 1});
  buffer.insert(numbered_rows(4, 1));  // in the place of 0
  // 0 is gone, 5 is not there yet, and no number is none: all three change nothing.
  buffer.update_priorities(std::vector<std::int64_t>{0, 5, 1},
                           std::vector<float>{100, 100, std::numeric_limits<float>::quiet_NaN()});
  const auto counts = draws(buffer, 12'000);
  EXPECT_FALSE(counts.contains(0));
  EXPECT_NEAR(counts.at(4), 9'000, 2);
  EXPECT_NEAR(counts.at(1), 1'000, 2);
}

TEST(ReplayBufferTest, A_row_without_an_error_is_drawn_again_some_time) {
  ReplayBuffer buffer(small(2, true), 3);
  buffer.insert(numbered_rows(0, 2));
  buffer.update_priorities(std::vector<std::int64_t>{0, 1}, std::vector<float>{0, 1});
  EXPECT_GT(draws(buffer, 100'000)[0], 0);
}

}  // namespace
}  // namespace divisi::rl
