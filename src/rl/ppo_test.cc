#include "rl/ppo.h"

#include "base/sanitizer.h"
#include "divisi/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace divisi::rl {
namespace {

constexpr std::uint64_t kSeeds = kSanitizer ? 1 : 3;  // much slower there

PpoTrainer trainer_for(const std::string& name, std::uint64_t seed) {
  auto env = make_env(name, 8, seed);
  const PpoOptions options = PpoOptions::suited_to(*env);
  return {options, std::move(env), seed};
}

TEST(PpoTest, Solves_CartPole) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    PpoTrainer trainer = trainer_for("CartPole-v1", seed);
    PpoStatistics statistics;
    do {
      statistics = trainer.step();
    } while (statistics.mean_return < 475.0 && statistics.env_steps < 500'000);
    EXPECT_GE(statistics.mean_return, 475.0) << "seed " << seed;
    EXPECT_GE(trainer.evaluate(20, 77), 475.0) << "seed " << seed;
  }
}

TEST(PpoTest, Swings_the_pendulum_up) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    PpoTrainer trainer = trainer_for("Pendulum-v1", seed);
    EXPECT_LT(trainer.evaluate(20, 77), -800.0);
    PpoStatistics statistics;
    do {
      statistics = trainer.step();
    } while (statistics.mean_return < -350.0 && statistics.env_steps < 500'000);
    EXPECT_GE(trainer.evaluate(20, 77), -350.0) << "seed " << seed;
  }
}

TEST(PpoTest, A_seed_decides_everything) {
  PpoTrainer first = trainer_for("CartPole-v1", 3);
  PpoTrainer second = trainer_for("CartPole-v1", 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(first.step().policy_loss, second.step().policy_loss);
  }
  EXPECT_TRUE(first.policy().state() == second.policy().state());
}

// Two environments, three steps each. The first terminates in its second step, the second is
// truncated there; what is expected was calculated by hand.
TEST(PpoTest, Advantages_end_with_their_episode) {
  const std::vector<float> rewards{1, 1, 2, 2, 4, 4};
  const std::vector<float> values{0, 0, 1, 1, 2, 2};
  const std::vector<float> next_values{1, 1, 8, 8, 3, 3};
  const std::vector<std::uint8_t> terminated{0, 0, 1, 0, 0, 0};
  const std::vector<std::uint8_t> ended{0, 0, 1, 1, 0, 0};
  std::vector<float> advantages(6);
  estimate_advantages({.envs = 2,
                       .rewards = rewards,
                       .values = values,
                       .next_values = next_values,
                       .terminated = terminated,
                       .ended = ended},
                      0.5, 0.5, advantages);
  // The last step is worth 4 + 0.5 * 3 - 2; of the second nothing follows, but a truncated episode
  // would have gone on; the first carries a quarter of the second.
  const std::vector<float> expected{1.5F + 0.25F * 1.0F, 1.5F + 0.25F * 5.0F, 1, 5, 3.5F, 3.5F};
  EXPECT_EQ(advantages, expected);
}

TEST(PpoTest, Refuses_options_out_of_range) {
  const auto with = [](auto change) {
    PpoOptions options;
    change(options);
    PpoTrainer(options, make_env("CartPole-v1", 1, 0), 0);
  };
  EXPECT_THROW(with([](PpoOptions& o) { o.epochs = 0; }), UsageError);
  EXPECT_THROW(with([](PpoOptions& o) { o.discount = 0.0; }), UsageError);
  EXPECT_THROW(with([](PpoOptions& o) { o.clip = -0.1; }), UsageError);
  EXPECT_THROW(with([](PpoOptions& o) { o.hidden = {0}; }), UsageError);
}

// d (sum of c_i log p_i + e * entropy) / d parameter, against central differences.
void check_actor_gradient(const PolicyShape& shape, std::vector<float> actions) {
  Policy policy(shape, 3);
  const auto rows = static_cast<int>(actions.size()) / shape.action_size;
  const auto count = static_cast<std::size_t>(rows);
  Random random(4);
  // Away from the first, nearly uniform policy.
  for (float& parameter : policy.parameters())
    parameter += static_cast<float>(random.uniform(-0.3, 0.3));
  std::vector<float> observations(count * static_cast<std::size_t>(shape.observation_size));
  for (float& value : observations) value = static_cast<float>(random.normal());
  std::vector<float> factors(count);
  for (float& factor : factors) factor = static_cast<float>(random.normal());
  constexpr double kEntropy = 0.7;

  std::vector<float> log_probabilities(count);
  const auto loss = [&] {
    double sum = kEntropy * policy.evaluate(observations, rows, actions, log_probabilities);
    for (std::size_t i = 0; i < count; ++i) {
      sum += static_cast<double>(factors[i]) * static_cast<double>(log_probabilities[i]);
    }
    return sum;
  };
  loss();
  std::vector<float> gradient(policy.parameters().size());
  policy.backward_actor(observations, rows, actions, factors, static_cast<float>(kEntropy),
                        gradient);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    constexpr float kDelta = 3e-3F;  // single precision: neither too small nor too large
    float& parameter = policy.parameters()[i];
    const float kept = parameter;
    parameter = kept + kDelta;
    const double above = loss();
    parameter = kept - kDelta;
    const double below = loss();
    parameter = kept;
    EXPECT_NEAR(static_cast<double>(gradient[i]), (above - below) / static_cast<double>(2 * kDelta),
                5e-3)
        << i;
  }
}

TEST(PolicyTest, Gradients_of_choices_are_those_of_finite_differences) {
  check_actor_gradient({.observation_size = 3, .action_count = 3, .action_size = 1, .hidden = {5}},
                       {0.0F, 1.0F, 2.0F, 1.0F});
}

TEST(PolicyTest, Gradients_of_continuous_actions_are_those_of_finite_differences) {
  check_actor_gradient({.observation_size = 3, .action_count = 0, .action_size = 2, .hidden = {5}},
                       {0.5F, -0.5F, 1.0F, 0.2F, -0.3F, 0.1F});
}

TEST(PolicyTest, Draws_choices_as_often_as_it_says) {
  Policy policy({.observation_size = 1, .action_count = 3, .action_size = 1, .hidden = {2}}, 1);
  std::ranges::fill(policy.parameters(), 0.0F);
  const std::size_t bias = policy.layout().layer(1).bias;
  policy.parameters()[bias] = std::log(0.2F);
  policy.parameters()[bias + 1] = std::log(0.5F);
  policy.parameters()[bias + 2] = std::log(0.3F);
  constexpr int kDraws = 20000;
  std::vector<float> actions(kDraws);
  std::vector<float> log_probabilities(kDraws);
  Random random(1);
  policy.act(std::vector<float>(kDraws), kDraws, random, actions, log_probabilities);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(actions, 1.0F)), 0.5 * kDraws, 300);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(actions, 2.0F)), 0.3 * kDraws, 300);
  for (std::size_t i = 0; i < 100; ++i) {
    const float expected = actions[i] == 0.0F ? 0.2F : actions[i] == 1.0F ? 0.5F : 0.3F;
    EXPECT_NEAR(std::exp(log_probabilities[i]), expected, 1e-5F);
  }
}

TEST(PolicyTest, A_state_makes_another_policy_the_same) {
  const PolicyShape shape{
      .observation_size = 3, .action_count = 0, .action_size = 1, .hidden = {8}};
  Policy first(shape, 1);
  Policy second(shape, 2);
  second.load(first.state());
  EXPECT_TRUE(first.state() == second.state());
  StateDict state = first.state();
  EXPECT_TRUE(state.contains("log_std"));
  state.erase("actor.0.bias");
  EXPECT_THROW(second.load(state), UsageError);
}

}  // namespace
}  // namespace divisi::rl
