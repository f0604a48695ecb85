#include "rl/collector.h"

#include <gtest/gtest.h>

#include <numeric>

namespace divisi::rl {
namespace {

QNetwork small_network(std::uint64_t seed = 1) {
  return {{.observation_size = 4, .action_count = 2, .hidden = {8}, .dueling = false}, seed};
}

TEST(CollectorTest, Gives_at_least_the_rows_that_were_asked_for) {
  auto network = small_network();
  Collector collector(make_env("CartPole-v1", 3, 1), {.nstep = 1, .discount = 0.9, .seed = 1});
  std::int64_t steps = 0;
  for (const int rows : {1, 3, 10, 64}) {
    const auto& batch = collector.collect(network, 1.0, rows);
    EXPECT_GE(batch.size, rows);
    EXPECT_LT(batch.size, rows + 3);
    EXPECT_EQ(batch.observations.size(), 4U * static_cast<std::size_t>(batch.size));
    EXPECT_EQ(batch.next_observations.size(), batch.observations.size());
    EXPECT_EQ(collector.collected().env_steps, batch.size);  // one row a step
    steps += batch.size;
  }
  EXPECT_GT(steps, 0);
}

TEST(CollectorTest, Every_row_begins_where_the_one_before_ended) {
  auto network = small_network();
  Collector collector(make_env("CartPole-v1", 1, 1), {.nstep = 1, .discount = 0.9, .seed = 1});
  const auto& batch = collector.collect(network, 1.0, 300);
  int ends = 0;
  for (std::size_t i = 0; i + 1 < static_cast<std::size_t>(batch.size); ++i) {
    if (batch.not_done[i] == 0) {
      ++ends;
      continue;
    }
    for (std::size_t k = 0; k < 4; ++k) {
      EXPECT_EQ(batch.next_observations[4 * i + k], batch.observations[4 * (i + 1) + k]);
    }
  }
  if (batch.not_done.back() == 0) ++ends;
  // CartPole pays 1 for each step, so the returns of whole episodes are their lengths.
  const auto& collected = collector.collected();
  EXPECT_GT(ends, 5);
  EXPECT_EQ(collected.episodes, ends);
  EXPECT_LE(collected.return_sum, batch.size);
  EXPECT_GT(collected.return_sum, 0.5 * batch.size);
}

TEST(CollectorTest, Returns_of_episodes_that_span_collects_are_whole) {
  auto network = small_network();
  Collector collector(make_env("CartPole-v1", 2, 1), {.nstep = 1, .discount = 0.9, .seed = 1});
  double returns = 0;
  std::int64_t steps = 0;
  for (int i = 0; i < 400; ++i) {
    collector.collect(network, 1.0, 2);
    returns += collector.collected().return_sum;
    steps += collector.collected().env_steps;
  }
  EXPECT_EQ(steps, 800);
  EXPECT_LE(returns, 800);
  EXPECT_GT(returns, 800 - 2 * 200);  // all but the episodes under way
}

TEST(CollectorTest, Without_exploration_a_seed_gives_the_same_rows) {
  const auto rows = [](std::uint64_t seed) {
    auto network = small_network();
    Collector collector(make_env("CartPole-v1", 2, seed), {.nstep = 3, .discount = 0.9, .seed = 1});
    return collector.collect(network, 0.0, 50).observations;
  };
  EXPECT_EQ(rows(1), rows(1));
  EXPECT_NE(rows(1), rows(2));
}

TEST(EvaluateTest, Counts_the_episodes_that_begin_first) {
  auto network = small_network();
  // However many play at a time: environment i of a seed begins the same episodes.
  auto env = make_env("CartPole-v1", 5, 1);
  const auto returns = evaluate(*env, network, 5, 3);
  EXPECT_EQ(returns.size(), 5U);
  for (const double value : returns) {
    EXPECT_GE(value, 1);
    EXPECT_LE(value, 500);
  }
  EXPECT_EQ(evaluate(*env, network, 5, 3), returns);
  EXPECT_EQ(evaluate(*env, network, 12, 3).size(), 12U);
}

TEST(EvaluateTest, Ends_early_when_it_is_told_to) {
  auto network = small_network();
  auto env = make_env("CartPole-v1", 2, 1);
  int asked = 0;
  EXPECT_TRUE(evaluate(*env, network, 5, 3, [&] { return ++asked == 2; }).empty());
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace divisi::rl
