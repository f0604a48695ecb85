#include "rl/adam.h"

#include "divisi/error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace divisi::rl {
namespace {

// By hand: after the first step m = 0.1 g and v = 0.001 g^2, corrected to g and g^2, so every
// parameter moves by the learning rate against its sign.
TEST(AdamTest, The_first_step_is_the_learning_rate) {
  Adam adam({.learning_rate = 0.1}, 3);
  std::vector<float> parameters = {1.0F, 1.0F, 1.0F};
  adam.step(parameters, std::vector<float>{0.5F, -200.0F, 0.0F});
  EXPECT_NEAR(parameters[0], 0.9F, 1e-6F);
  EXPECT_NEAR(parameters[1], 1.1F, 1e-6F);
  EXPECT_EQ(parameters[2], 1.0F);
}

// Gradients 1 and then -2: m = 0.9 * 0.1 - 0.1 * 2 = -0.11, v = 0.999 * 0.001 + 0.001 * 4 =
// 0.004999, corrected by 1 - 0.81 and 1 - 0.998001: -0.5789474 and 2.5007504.
TEST(AdamTest, The_second_step_is_the_one_computed_by_hand) {
  Adam adam({.learning_rate = 0.1}, 1);
  std::vector<float> parameters = {0.0F};
  adam.step(parameters, std::vector<float>{1.0F});
  adam.step(parameters, std::vector<float>{-2.0F});
  EXPECT_NEAR(parameters[0], -0.1 + 0.1 * 0.5789474 / std::sqrt(2.5007504), 1e-6);
  EXPECT_EQ(adam.steps(), 2);
}

TEST(AdamTest, Epsilon_counts_where_gradients_are_tiny) {
  Adam adam({.learning_rate = 0.1, .epsilon = 1e-3}, 1);
  std::vector<float> parameters = {0.0F};
  adam.step(parameters, std::vector<float>{1e-3F});
  EXPECT_NEAR(parameters[0], -0.05F, 1e-6F);
}

TEST(AdamTest, A_saved_optimiser_goes_on_as_the_first_would) {
  ParameterLayout layout;
  layout.add("layer", 2, 3);
  std::vector<float> gradient(layout.size());
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i) - 4.0F;
  Adam first({}, layout.size());
  std::vector<float> parameters(layout.size(), 1.0F);
  for (int i = 0; i < 3; ++i) first.step(parameters, gradient);

  StateDict state;
  first.write(layout, "optimizer.", state);
  EXPECT_TRUE(state.contains("optimizer.exp_avg_sq.layer.weight"));
  Adam second({}, layout.size());
  second.read(layout, "optimizer.", state);
  std::vector<float> copy = parameters;
  first.step(parameters, gradient);
  second.step(copy, gradient);
  EXPECT_EQ(parameters, copy);
  EXPECT_EQ(second.steps(), 4);

  state.erase("optimizer.step");
  EXPECT_THROW(second.read(layout, "optimizer.", state), UsageError);
}

TEST(AdamTest, Refuses_another_size) {
  Adam adam({}, 2);
  std::vector<float> three(3);
  EXPECT_THROW(adam.step(three, three), UsageError);
}

}  // namespace
}  // namespace divisi::rl
