#include "rl/exploration.h"

#include "divisi/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace divisi::rl {
namespace {

TEST(EpsilonScheduleTest, Falls_exponentially) {
  const EpsilonSchedule schedule;
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.95);
  EXPECT_DOUBLE_EQ(schedule.at(10000), 0.1 + 0.85 * std::exp(-1.0));
  EXPECT_NEAR(schedule.at(10'000'000), 0.1, 1e-12);
}

TEST(EpsilonScheduleTest, Falls_in_a_straight_line) {
  const EpsilonSchedule schedule("linear", 1.0, 0.2, 100);
  EXPECT_DOUBLE_EQ(schedule.at(0), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(50), 0.6);
  EXPECT_DOUBLE_EQ(schedule.at(100), 0.2);
  EXPECT_DOUBLE_EQ(schedule.at(1000), 0.2);
}

TEST(EpsilonScheduleTest, Refuses_what_cannot_be_meant) {
  EXPECT_THROW(EpsilonSchedule("exponential", 1, 0, 1), UsageError);
  EXPECT_THROW(EpsilonSchedule("exp", 1.5, 0, 1), UsageError);
  EXPECT_THROW(EpsilonSchedule("exp", 1, NAN, 1), UsageError);
  EXPECT_THROW(EpsilonSchedule("exp", 1, 0, 0), UsageError);
}

TEST(ActTest, Takes_the_best_action_or_a_random_one) {
  QNetwork network({.observation_size = 1, .action_count = 3, .hidden = {4}, .dueling = false}, 1);
  // Whatever is observed, action 1 is the best.
  std::ranges::fill(network.parameters(), 0.0F);
  network.parameters()[network.layout().layer(1).bias + 1] = 1.0F;
  const std::vector<float> observations(3000);
  std::vector<int> actions(3000);
  Random random(1);
  Random untouched(1);

  act_epsilon_greedy(network, observations, 3000, 0.0, random, actions);
  EXPECT_EQ(std::ranges::count(actions, 1), 3000);
  EXPECT_EQ(random(), untouched());

  act_epsilon_greedy(network, observations, 3000, 0.3, random, actions);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(actions, 1)), 0.8 * 3000, 120.0);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(actions, 2)), 0.1 * 3000, 80.0);
  EXPECT_THROW(act_epsilon_greedy(network, observations, 2, 0.0, random, actions), UsageError);
}

}  // namespace
}  // namespace divisi::rl
