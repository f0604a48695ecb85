#include "rl/env.h"

#include "divisi/error.h"
#include "rl/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace divisi::rl {
namespace {

using ::testing::ElementsAre;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(EnvTest, Says_what_it_is) {
  const auto pole = make_env("CartPole-v1", 3, 0);
  EXPECT_EQ(pole->name(), "CartPole-v1");
  EXPECT_EQ(pole->size(), 3);
  EXPECT_EQ(pole->observation_size(), 4);
  EXPECT_EQ(pole->action_count(), 2);
  EXPECT_EQ(pole->action_size(), 1);
  EXPECT_EQ(pole->max_episode_steps(), 500);
  const auto pendulum = make_env("Pendulum-v1", 2, 0);
  EXPECT_EQ(pendulum->observation_size(), 3);
  EXPECT_EQ(pendulum->action_count(), 0);
  EXPECT_EQ(pendulum->action_size(), 1);
  EXPECT_EQ(pendulum->max_episode_steps(), 200);
}

TEST(EnvTest, Begins_where_Gymnasium_does) {
  const auto pole = make_env("CartPole-v1", 1000, 5);
  double largest = 0.0;
  for (int i = 0; i < 1000; ++i) {
    for (const double value : pole->state(i)) largest = std::max(largest, std::abs(value));
  }
  EXPECT_LE(largest, 0.05);
  EXPECT_GT(largest, 0.049);
  const auto pendulum = make_env("Pendulum-v1", 1000, 5);
  double angle = 0.0;
  double speed = 0.0;
  for (int i = 0; i < 1000; ++i) {
    angle = std::max(angle, std::abs(pendulum->state(i)[0]));
    speed = std::max(speed, std::abs(pendulum->state(i)[1]));
  }
  EXPECT_LE(angle, M_PI);
  EXPECT_GT(angle, 3.1);
  EXPECT_LE(speed, 1.0);
  EXPECT_GT(speed, 0.99);
}

// Observations of some steps with random actions, flat.
std::vector<float> trajectory(VectorEnv& env, int steps) {
  Random random(9);
  std::vector<float> seen;
  std::vector<int> actions(static_cast<std::size_t>(env.size()));
  for (int t = 0; t < steps; ++t) {
    for (int& action : actions) action = static_cast<int>(random.below(2));
    env.step(actions);
    seen.insert(seen.end(), env.observations().begin(), env.observations().end());
  }
  return seen;
}

TEST(EnvTest, A_seed_decides_everything) {
  const auto first = make_env("CartPole-v1", 9, 7);
  const auto again = make_env("CartPole-v1", 9, 7);
  const auto other = make_env("CartPole-v1", 9, 8);
  const auto seen = trajectory(*first, 300);
  EXPECT_EQ(seen, trajectory(*again, 300));
  EXPECT_NE(seen, trajectory(*other, 300));
  first->reset(7);
  EXPECT_EQ(seen, trajectory(*first, 300));
}

TEST(EnvTest, Environments_of_a_seed_do_not_depend_on_their_number) {
  const auto few = make_env("CartPole-v1", 2, 7);
  const auto many = make_env("CartPole-v1", 20, 7);
  EXPECT_EQ(few->state(0), many->state(0));
  EXPECT_EQ(few->state(1), many->state(1));
  EXPECT_NE(many->state(0), many->state(1));
}

TEST(EnvTest, An_ended_episode_shows_its_last_observation_and_the_next_one_begins) {
  const auto env = make_env("CartPole-v1", 2, 1);
  env->set_state(0, std::vector<double>{2.39, 5.0, 0.0, 0.0});
  const EnvStep& step = env->step(std::vector<int>{1, 1});
  EXPECT_THAT(step.terminated, ElementsAre(1, 0));
  EXPECT_THAT(step.truncated, ElementsAre(0, 0));
  EXPECT_THAT(step.rewards, ElementsAre(1.0F, 1.0F));
  EXPECT_NEAR(step.next_observations[0], 2.49, 1e-6);
  EXPECT_LE(std::abs(env->observations()[0]), 0.05F);
  EXPECT_EQ(step.next_observations[4], env->observations()[4]);
  EXPECT_EQ(static_cast<float>(env->state(0)[0]), env->observations()[0]);
}

TEST(EnvTest, Angles_end_an_episode_too) {
  const auto env = make_env("CartPole-v1", 2, 1);
  env->set_state(0, std::vector<double>{0.0, 0.0, -0.209, -1.0});
  env->set_state(1, std::vector<double>{0.0, 0.0, 0.209, -1.0});
  EXPECT_THAT(env->step(std::vector<int>{1, 0}).terminated, ElementsAre(1, 0));
}

TEST(EnvTest, An_angle_beyond_the_fast_path_is_right) {
  const auto env = make_env("CartPole-v1", 1, 1);
  env->set_state(0, std::vector<double>{0.0, 0.0, 2.5, 0.0});
  const double sin = std::sin(2.5);
  const double cos = std::cos(2.5);
  const double temp = 10.0 / 1.1;
  const double acceleration =
      (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1));
  EXPECT_NEAR(env->step(std::vector<int>{1}).next_observations[3], 0.02 * acceleration, 1e-6);
}

TEST(EnvTest, The_time_limit_truncates) {
  const auto env = make_env("Pendulum-v1", 2, 1);
  const std::vector<float> actions = {0.5F, -0.5F};
  for (int t = 1; t < 200; ++t) ASSERT_THAT(env->step(actions).truncated, ElementsAre(0, 0)) << t;
  const EnvStep& step = env->step(actions);
  EXPECT_THAT(step.truncated, ElementsAre(1, 1));
  EXPECT_THAT(step.terminated, ElementsAre(0, 0));
  EXPECT_NE(step.next_observations[2], env->observations()[2]);
  EXPECT_THAT(env->step(actions).truncated, ElementsAre(0, 0));
}

TEST(EnvTest, CartPole_is_truncated_after_500_steps) {
  const auto env = make_env("CartPole-v1", 1, 1);
  int steps = 0;
  for (; steps < 1000; ++steps) {
    // Pushes toward where the pole falls: holds it for ever.
    const auto state = env->state(0);
    const EnvStep& step = env->step(std::vector<int>{
        state[2] + 0.3 * state[3] + 0.02 * state[0] + 0.05 * state[1] > 0 ? 1 : 0});
    ASSERT_EQ(step.terminated[0], 0) << steps;
    if (step.truncated[0] != 0) break;
  }
  EXPECT_EQ(steps + 1, 500);
}

TEST(EnvTest, Torque_is_clipped) {
  const auto env = make_env("Pendulum-v1", 2, 1);
  env->set_state(0, std::vector<double>{0.5, 0.0});
  env->set_state(1, std::vector<double>{0.5, 0.0});
  env->step(std::vector<float>{2.0F, 50.0F});
  EXPECT_EQ(env->state(0), env->state(1));
}

TEST(EnvTest, Refuses_what_cannot_be_meant) {
  EXPECT_EQ(refusal([] { make_env("CartPole-v0", 1, 0); }),
            "unknown environment 'CartPole-v0', did you mean 'CartPole-v1'? (known: CartPole-v1, "
            "Pendulum-v1)");
  EXPECT_EQ(refusal([] { make_env("CartPole-v1", 0, 0); }),
            "CartPole-v1: 0 environments, at least 1 is needed");
  const auto pole = make_env("CartPole-v1", 2, 0);
  const auto before = pole->state(0);
  EXPECT_EQ(refusal([&] { pole->step(std::vector<int>{0}); }),
            "CartPole-v1: 1 actions for 2 environments, 2 are needed");
  EXPECT_EQ(refusal([&] { pole->step(std::vector<int>{0, 2}); }),
            "CartPole-v1: action 2 of environment 1 is not in 0 to 1");
  EXPECT_EQ(refusal([&] { pole->step(std::vector<int>{-1, 0}); }),
            "CartPole-v1: action -1 of environment 0 is not in 0 to 1");
  EXPECT_EQ(refusal([&] { pole->step(std::vector<float>{0.0F, 1.0F}); }),
            "CartPole-v1: actions are choices of 0 to 1, not real numbers");
  EXPECT_EQ(refusal([&] { pole->set_state(2, before); }),
            "CartPole-v1: no environment 2, there are 2");
  EXPECT_EQ(refusal([&] { pole->set_state(0, std::vector<double>{1.0}); }),
            "CartPole-v1: a state of 1 numbers, 4 are needed");
  EXPECT_EQ(pole->state(0), before);
  const auto pendulum = make_env("Pendulum-v1", 1, 0);
  EXPECT_EQ(refusal([&] { pendulum->step(std::vector<int>{0}); }),
            "Pendulum-v1: actions are real numbers, not choices");
  EXPECT_EQ(refusal([&] { pendulum->step(std::vector<float>{NAN}); }),
            "Pendulum-v1: action nan of environment 0 is no number");
}

}  // namespace
}  // namespace divisi::rl
