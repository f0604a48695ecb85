#include "rl/transition.h"

#include "divisi/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::rl {
namespace {

using ::testing::ElementsAre;

// Environments with observations of one number.
EnvStep step(std::vector<float> next, std::vector<float> rewards,
             std::vector<std::uint8_t> terminated, std::vector<std::uint8_t> truncated) {
  return {std::move(next), std::move(rewards), std::move(terminated), std::move(truncated)};
}

TEST(NStepBuilderTest, One_step_passes_through) {
  NStepBuilder builder(2, 1, 1, 0.5);
  TransitionBatch out;
  builder.add(std::vector<float>{1, 10}, std::vector<int>{0, 1},
              step({2, 20}, {3, 4}, {0, 1}, {0, 0}), out);
  EXPECT_EQ(out.size, 2);
  EXPECT_THAT(out.observations, ElementsAre(1, 10));
  EXPECT_THAT(out.actions, ElementsAre(0, 1));
  EXPECT_THAT(out.rewards, ElementsAre(3, 4));
  EXPECT_THAT(out.next_observations, ElementsAre(2, 20));
  EXPECT_THAT(out.not_done, ElementsAre(1, 0));
  EXPECT_THAT(out.discounts, ElementsAre(0.5F, 0.5F));
}

TEST(NStepBuilderTest, Rewards_of_n_steps_are_discounted_and_summed) {
  NStepBuilder builder(1, 1, 3, 0.5);
  TransitionBatch out;
  for (int t = 0; t < 5; ++t) {
    const auto now = static_cast<float>(t);
    builder.add(std::vector<float>{now}, std::vector<int>{t}, step({now + 1}, {now + 1}, {0}, {0}),
                out);
    EXPECT_EQ(out.size, std::max(0, t - 1));
  }
  EXPECT_THAT(out.observations, ElementsAre(0, 1, 2));
  EXPECT_THAT(out.actions, ElementsAre(0, 1, 2));
  EXPECT_THAT(out.rewards, ElementsAre(1 + 1 + 0.75F, 2 + 1.5F + 1, 3 + 2 + 1.25F));
  EXPECT_THAT(out.next_observations, ElementsAre(3, 4, 5));
  EXPECT_THAT(out.not_done, ElementsAre(1, 1, 1));
  EXPECT_THAT(out.discounts, ElementsAre(0.125F, 0.125F, 0.125F));
}

TEST(NStepBuilderTest, A_termination_completes_what_is_open_and_expects_nothing) {
  NStepBuilder builder(1, 1, 3, 0.5);
  TransitionBatch out;
  builder.add(std::vector<float>{0}, std::vector<int>{0}, step({1}, {1}, {0}, {0}), out);
  builder.add(std::vector<float>{1}, std::vector<int>{1}, step({2}, {1}, {1}, {0}), out);
  EXPECT_THAT(out.observations, ElementsAre(0, 1));
  EXPECT_THAT(out.rewards, ElementsAre(1.5F, 1));
  EXPECT_THAT(out.next_observations, ElementsAre(2, 2));
  EXPECT_THAT(out.not_done, ElementsAre(0, 0));
  // The next episode begins with nothing of this one.
  out.clear();
  for (int t = 0; t < 3; ++t) {
    builder.add(std::vector<float>{7}, std::vector<int>{0}, step({8}, {2}, {0}, {0}), out);
  }
  EXPECT_EQ(out.size, 1);
  EXPECT_THAT(out.rewards, ElementsAre(3.5F));
}

TEST(NStepBuilderTest, A_truncation_completes_with_the_value_of_the_last_observation) {
  NStepBuilder builder(1, 1, 3, 0.5);
  TransitionBatch out;
  builder.add(std::vector<float>{0}, std::vector<int>{0}, step({1}, {1}, {0}, {0}), out);
  builder.add(std::vector<float>{1}, std::vector<int>{1}, step({2}, {1}, {0}, {1}), out);
  EXPECT_THAT(out.not_done, ElementsAre(1, 1));
  EXPECT_THAT(out.discounts, ElementsAre(0.25F, 0.5F));
  EXPECT_THAT(out.next_observations, ElementsAre(2, 2));
}

TEST(NStepBuilderTest, Both_at_once_is_a_termination) {
  NStepBuilder builder(1, 1, 1, 0.5);
  TransitionBatch out;
  builder.add(std::vector<float>{0}, std::vector<int>{0}, step({1}, {1}, {1}, {1}), out);
  EXPECT_THAT(out.not_done, ElementsAre(0));
}

TEST(NStepBuilderTest, Environments_end_each_for_itself) {
  NStepBuilder builder(2, 1, 2, 1.0);
  TransitionBatch out;
  builder.add(std::vector<float>{0, 10}, std::vector<int>{0, 0},
              step({1, 11}, {1, 1}, {1, 0}, {0, 0}), out);
  EXPECT_THAT(out.observations, ElementsAre(0));
  builder.add(std::vector<float>{5, 11}, std::vector<int>{0, 0},
              step({6, 12}, {1, 1}, {0, 0}, {0, 0}), out);
  EXPECT_THAT(out.observations, ElementsAre(0, 10));
  EXPECT_THAT(out.rewards, ElementsAre(1, 2));
}

TEST(NStepBuilderTest, Clear_forgets_what_is_open) {
  NStepBuilder builder(1, 1, 2, 1.0);
  TransitionBatch out;
  builder.add(std::vector<float>{0}, std::vector<int>{0}, step({1}, {1}, {0}, {0}), out);
  builder.clear();
  builder.add(std::vector<float>{1}, std::vector<int>{0}, step({2}, {1}, {0}, {0}), out);
  EXPECT_EQ(out.size, 0);
}

TEST(NStepBuilderTest, Refuses_what_does_not_fit) {
  EXPECT_THROW(NStepBuilder(1, 1, 0, 0.9), UsageError);
  NStepBuilder builder(2, 1, 1, 0.9);
  TransitionBatch out;
  EXPECT_THROW(
      builder.add(std::vector<float>{0}, std::vector<int>{0}, step({1}, {1}, {0}, {0}), out),
      UsageError);
}

}  // namespace
}  // namespace divisi::rl
