// Policy: an actor, which says how likely each action is, and a critic, which says what to expect.
//
// Actions are rows of floats: one choice (0, 1, ...) or the numbers of a continuous action, drawn
// from a normal distribution with the actor's mean and a deviation of its own. One object belongs
// to one thread.
#pragma once

#include "rl/mlp.h"
#include "rl/random.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace divisi::rl {

struct PolicyShape {
  int observation_size = 4;
  int action_count = 2;  // 0: continuous
  int action_size = 1;
  std::vector<int> hidden = {64, 64};  // of the actor, and again of the critic
};

class Policy {
 public:
  Policy(PolicyShape shape, std::uint64_t seed);

  // Draws an action for each row, and how likely it was (a logarithm).
  void act(std::span<const float> observations, int rows, Random& random, std::span<float> actions,
           std::span<float> log_probabilities);
  // The most likely action of each row.
  void act_greedily(std::span<const float> observations, int rows, std::span<float> actions);

  std::span<const float> values(std::span<const float> observations, int rows);

  // For training: how likely the actions are now, and the mean entropy.
  double evaluate(std::span<const float> observations, int rows, std::span<const float> actions,
                  std::span<float> log_probabilities);
  // Gradients for d loss / d log probability of each row, and of the mean entropy; the actor's
  // part of `gradient`. Goes with the last evaluate().
  void backward_actor(std::span<const float> observations, int rows, std::span<const float> actions,
                      std::span<const float> log_gradient, float entropy_gradient,
                      std::span<float> gradient);
  // Likewise the critic's part, for d loss / d value; goes with the last values().
  void backward_critic(std::span<const float> observations, int rows,
                       std::span<const float> value_gradient, std::span<float> gradient);

  std::span<float> parameters() noexcept { return parameters_; }
  const ParameterLayout& layout() const noexcept { return layout_; }
  StateDict state() const;
  void load(const StateDict& state);

 private:
  bool discrete() const noexcept { return shape_.action_count > 0; }
  std::size_t outputs() const noexcept {
    return static_cast<std::size_t>(discrete() ? shape_.action_count : shape_.action_size);
  }
  // Logarithms of probabilities in place of the actor's scores, row by row.
  void normalise(std::span<const float> scores);
  float log_density(std::span<const float> mean, std::span<const float> action) const;

  const PolicyShape shape_;
  ParameterLayout layout_;
  Mlp actor_;
  Mlp critic_;
  std::size_t log_deviation_ = 0;  // offset of action_size numbers
  std::vector<float> parameters_;
  std::vector<float> outputs_;          // log probabilities, or means
  std::vector<float> output_gradient_;  // with respect to the actor's results
};

}  // namespace divisi::rl
