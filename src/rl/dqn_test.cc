#include "rl/dqn.h"

#include "divisi/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace divisi::rl {
namespace {

// One observation x >= 0, hidden unit h = x, q = (a x, b x): everything can be computed by hand.
StateDict linear_state(float a, float b) {
  const auto tensor = [](std::vector<std::int64_t> shape, std::vector<float> values) {
    return Tensor::copy_of<float>(std::move(shape), std::span<const float>(values));
  };
  return {{"encoder.0.weight", tensor({1, 1}, {1.0F})},
          {"encoder.0.bias", tensor({1}, {0.0F})},
          {"head.weight", tensor({2, 1}, {a, b})},
          {"head.bias", tensor({2}, {0.0F, 0.0F})}};
}

DqnOptions tiny_options() {
  return {.shape = {.observation_size = 1, .action_count = 2, .hidden = {1}, .dueling = false},
          .discount = 0.5,
          .target_update_freq = 2};
}

// Online q(x) = (x, 2x), target q(x) = (3x, x).
DqnLearner tiny_learner(DqnOptions options) {
  DqnLearner learner(std::move(options), 1);
  learner.network().load(linear_state(1.0F, 2.0F));
  learner.target_network().load(linear_state(3.0F, 1.0F));
  return learner;
}

TransitionBatch tiny_batch() {
  return {.size = 2,
          .observations = {1.0F, 2.0F},
          .actions = {0, 1},
          .rewards = {1.0F, 1.0F},
          .next_observations = {4.0F, 4.0F},
          .not_done = {1.0F, 0.0F},
          .discounts = {},
          .weights = {}};
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

// Next action of the first row: the online network prefers 1 (8 to 4), worth 4 to the target:
// target 1 + 0.5 * 4 = 3 against q = 1. The second row is final: 1 against q = 4.
TEST(DqnTest, A_double_target_is_the_one_computed_by_hand) {
  DqnLearner learner = tiny_learner(tiny_options());
  const auto result = learner.update(tiny_batch());
  EXPECT_THAT(result.td_errors, ::testing::ElementsAre(1.0F - 3.0F, 4.0F - 1.0F));
  EXPECT_DOUBLE_EQ(result.loss, (4.0 + 9.0) / 2);
  EXPECT_DOUBLE_EQ(result.mean_q, 2.5);
  EXPECT_GT(result.grad_norm, 0.0);
}

// The target network prefers 0, worth 12: 1 + 0.5 * 12.
TEST(DqnTest, A_plain_target_takes_the_largest) {
  auto options = tiny_options();
  options.double_q = false;
  DqnLearner learner = tiny_learner(options);
  EXPECT_THAT(learner.update(tiny_batch()).td_errors, ::testing::ElementsAre(-6.0F, 3.0F));
}

TEST(DqnTest, Discounts_of_n_steps_and_of_rows_count) {
  auto options = tiny_options();
  options.nstep = 2;
  DqnLearner learner = tiny_learner(options);
  EXPECT_THAT(learner.update(tiny_batch()).td_errors, ::testing::ElementsAre(1.0F - 2.0F, 3.0F));

  DqnLearner other = tiny_learner(options);
  auto batch = tiny_batch();
  batch.discounts = {1.0F, 1.0F};
  EXPECT_THAT(other.update(batch).td_errors, ::testing::ElementsAre(1.0F - 5.0F, 3.0F));
}

TEST(DqnTest, Weights_scale_the_loss_and_not_the_errors) {
  DqnLearner learner = tiny_learner(tiny_options());
  auto batch = tiny_batch();
  batch.weights = {0.5F, 0.0F};
  const auto result = learner.update(batch);
  EXPECT_DOUBLE_EQ(result.loss, 1.0);
  EXPECT_THAT(result.td_errors, ::testing::ElementsAre(-2.0F, 3.0F));
}

TEST(DqnTest, The_target_network_follows_at_its_time) {
  DqnLearner learner = tiny_learner(tiny_options());
  learner.update(tiny_batch());
  EXPECT_FALSE(learner.network().state() == learner.target_network().state());
  learner.update(tiny_batch());
  EXPECT_TRUE(learner.network().state() == learner.target_network().state());
  EXPECT_EQ(learner.train_iter(), 2);
}

TEST(DqnTest, A_loss_that_is_no_number_stops_with_its_iteration) {
  DqnLearner learner = tiny_learner(tiny_options());
  learner.update(tiny_batch());
  const StateDict before = learner.full_state();
  auto batch = tiny_batch();
  batch.rewards[0] = NAN;
  EXPECT_EQ(refusal([&] { learner.update(batch); }), "loss is nan at train_iter 1");
  batch.rewards[0] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(refusal([&] { learner.update(batch); }), "loss is inf at train_iter 1");
  EXPECT_TRUE(learner.full_state() == before);
}

TEST(DqnTest, A_saved_learner_goes_on_as_the_first_would) {
  auto options = tiny_options();
  options.shape.dueling = true;
  DqnLearner first(options, 1);
  for (int i = 0; i < 3; ++i) first.update(tiny_batch());
  DqnLearner second(options, 2);
  second.load_full(first.full_state());
  EXPECT_EQ(second.train_iter(), 3);
  first.update(tiny_batch());
  second.update(tiny_batch());
  EXPECT_TRUE(first.full_state() == second.full_state());
}

TEST(DqnTest, Refuses_a_full_state_that_does_not_fit_and_stays_as_it_was) {
  DqnLearner learner = tiny_learner(tiny_options());
  const StateDict before = learner.full_state();
  DqnLearner other(tiny_options(), 7);
  other.update(tiny_batch());
  const StateDict good = other.full_state();

  for (const auto& [name, tensor] : good) {
    StateDict state = good;
    state.erase(name);
    EXPECT_THAT(refusal([&] { learner.load_full(state); }),
                ::testing::StartsWith("state has no '" + name + "'"));
    state[name] = Tensor::copy_of<float>({2, 2}, std::vector<float>(4));
    EXPECT_THAT(refusal([&] { learner.load_full(state); }),
                ::testing::HasSubstr("'" + name + "' is float32 [2, 2]"));
  }
  StateDict state = good;
  state["extra"] = good.at("train_iter");
  EXPECT_EQ(refusal([&] { learner.load_full(state); }), "'extra' [] is no entry of the learner");
  EXPECT_TRUE(learner.full_state() == before);
  learner.load_full(good);
  EXPECT_TRUE(learner.full_state() == good);
}

TEST(DqnTest, Refuses_a_batch_that_does_not_fit) {
  DqnLearner learner = tiny_learner(tiny_options());
  auto batch = tiny_batch();
  batch.rewards.pop_back();
  EXPECT_EQ(refusal([&] { learner.update(batch); }),
            "batch: 'rewards' has 1 numbers, 2 are needed");
  batch = tiny_batch();
  batch.weights = {1.0F};
  EXPECT_EQ(refusal([&] { learner.update(batch); }),
            "batch: 'weights' has 1 numbers, 2 are needed (or none)");
  batch = tiny_batch();
  batch.actions[1] = 2;
  EXPECT_EQ(refusal([&] { learner.update(batch); }), "batch: action 2 is not in 0 to 1");
  EXPECT_EQ(refusal([&] { learner.update({}); }), "batch: 0 rows, at least 1");
}

TEST(DqnTest, Refuses_options_out_of_range) {
  const auto with = [](auto change) {
    return refusal([&] {
      DqnOptions options;
      change(options);
      DqnLearner(options, 1);
    });
  };
  EXPECT_EQ(with([](DqnOptions& o) { o.discount = 1.5; }), "dqn: discount 1.5 is not in (0, 1]");
  EXPECT_EQ(with([](DqnOptions& o) { o.nstep = 0; }), "dqn: nstep 0 is below 1");
  EXPECT_EQ(with([](DqnOptions& o) { o.learning_rate = -1; }),
            "dqn: learning rate -1 is not above 0");
  EXPECT_EQ(with([](DqnOptions& o) { o.target_update_freq = 0; }),
            "dqn: target_update_freq 0 is below 1");
}

}  // namespace
}  // namespace divisi::rl
