#include "rl/policy.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace divisi::rl {

namespace {

std::vector<int> sizes(int inputs, const std::vector<int>& hidden, int outputs) {
  std::vector<int> all = {inputs};
  all.insert(all.end(), hidden.begin(), hidden.end());
  all.push_back(outputs);
  return all;
}

const float kHalfLog2Pi = static_cast<float>(0.5 * std::log(2.0 * std::numbers::pi));

// Early actions should say nothing about the first observations.
constexpr float kFirstActorScale = 0.01F;

}  // namespace

Policy::Policy(PolicyShape shape, std::uint64_t seed)
    : shape_(std::move(shape)),
      actor_(layout_, "actor",
             sizes(shape_.observation_size, shape_.hidden, static_cast<int>(outputs()))),
      critic_(layout_, "critic", sizes(shape_.observation_size, shape_.hidden, 1)) {
  if (!discrete()) log_deviation_ = layout_.add_vector("log_std", shape_.action_size);
  parameters_.resize(layout_.size());
  layout_.initialise(seed, parameters_);
  const Layer& last = actor_.last();
  const std::size_t end = last.bias + static_cast<std::size_t>(last.outputs);
  for (std::size_t i = last.weight; i < end; ++i) parameters_[i] *= kFirstActorScale;
}

void Policy::normalise(std::span<const float> scores) {
  outputs_.assign(scores.begin(), scores.end());
  for (std::size_t i = 0; i < outputs_.size(); i += outputs()) {
    const auto row = std::span(outputs_).subspan(i, outputs());
    const float most = *std::ranges::max_element(row);
    float sum = 0.0F;
    for (const float score : row) sum += std::exp(score - most);
    const float log_sum = most + std::log(sum);
    for (float& score : row) score -= log_sum;
  }
}

float Policy::log_density(std::span<const float> mean, std::span<const float> action) const {
  float sum = 0.0F;
  for (std::size_t a = 0; a < mean.size(); ++a) {
    const float log_deviation = parameters_[log_deviation_ + a];
    const float z = (action[a] - mean[a]) * std::exp(-log_deviation);
    sum -= 0.5F * z * z + log_deviation + kHalfLog2Pi;
  }
  return sum;
}

void Policy::act(std::span<const float> observations, int rows, Random& random,
                 std::span<float> actions, std::span<float> log_probabilities) {
  const auto result = actor_.forward(parameters_, rows, observations.data());
  if (discrete()) normalise(result);
  for (std::size_t i = 0; i < log_probabilities.size(); ++i) {
    if (discrete()) {
      const auto row = std::span(outputs_).subspan(i * outputs(), outputs());
      auto left = static_cast<float>(random.uniform());
      std::size_t chosen = 0;
      while (chosen + 1 < row.size() && (left -= std::exp(row[chosen])) >= 0.0F) ++chosen;
      actions[i] = static_cast<float>(chosen);
      log_probabilities[i] = row[chosen];
      continue;
    }
    const auto mean = result.subspan(i * outputs(), outputs());
    const auto action = actions.subspan(i * outputs(), outputs());
    for (std::size_t a = 0; a < mean.size(); ++a) {
      const float deviation = std::exp(parameters_[log_deviation_ + a]);
      action[a] = mean[a] + deviation * static_cast<float>(random.normal());
    }
    log_probabilities[i] = log_density(mean, action);
  }
}

void Policy::act_greedily(std::span<const float> observations, int rows, std::span<float> actions) {
  const auto result = actor_.forward(parameters_, rows, observations.data());
  if (!discrete()) {
    std::ranges::copy(result, actions.begin());
    return;
  }
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const auto row = result.subspan(i * outputs(), outputs());
    actions[i] = static_cast<float>(std::ranges::max_element(row) - row.begin());
  }
}

std::span<const float> Policy::values(std::span<const float> observations, int rows) {
  return critic_.forward(parameters_, rows, observations.data());
}

double Policy::evaluate(std::span<const float> observations, int rows,
                        std::span<const float> actions, std::span<float> log_probabilities) {
  const auto result = actor_.forward(parameters_, rows, observations.data());
  double entropy = 0.0;
  if (discrete()) {
    normalise(result);
    for (std::size_t i = 0; i < log_probabilities.size(); ++i) {
      log_probabilities[i] = outputs_[i * outputs() + static_cast<std::size_t>(actions[i])];
    }
    for (const float log_p : outputs_) entropy -= static_cast<double>(std::exp(log_p) * log_p);
    return entropy / rows;
  }
  outputs_.assign(result.begin(), result.end());
  for (std::size_t i = 0; i < log_probabilities.size(); ++i) {
    log_probabilities[i] = log_density(result.subspan(i * outputs(), outputs()),
                                       actions.subspan(i * outputs(), outputs()));
  }
  for (std::size_t a = 0; a < outputs(); ++a) {
    entropy += static_cast<double>(parameters_[log_deviation_ + a] + kHalfLog2Pi + 0.5F);
  }
  return entropy;
}

void Policy::backward_actor(std::span<const float> observations, int rows,
                            std::span<const float> actions, std::span<const float> log_gradient,
                            float entropy_gradient, std::span<float> gradient) {
  output_gradient_.resize(outputs_.size());
  const std::size_t width = outputs();
  if (!discrete()) {
    for (std::size_t a = 0; a < width; ++a) gradient[log_deviation_ + a] = entropy_gradient;
  }
  for (std::size_t i = 0; i < log_gradient.size(); ++i) {
    const auto row = std::span(outputs_).subspan(i * width, width);
    const auto to = std::span(output_gradient_).subspan(i * width, width);
    if (!discrete()) {
      for (std::size_t a = 0; a < width; ++a) {
        const float inverse = std::exp(-parameters_[log_deviation_ + a]);
        const float z = (actions[i * width + a] - row[a]) * inverse;
        to[a] = log_gradient[i] * z * inverse;
        gradient[log_deviation_ + a] += log_gradient[i] * (z * z - 1.0F);
      }
      continue;
    }
    float entropy = 0.0F;
    for (const float log_p : row) entropy -= std::exp(log_p) * log_p;
    const float share = entropy_gradient / static_cast<float>(rows);
    for (std::size_t a = 0; a < width; ++a) {
      const float p = std::exp(row[a]);
      const float taken = a == static_cast<std::size_t>(actions[i]) ? 1.0F : 0.0F;
      to[a] = log_gradient[i] * (taken - p) - share * p * (row[a] + entropy);
    }
  }
  actor_.backward(parameters_, rows, observations.data(), output_gradient_, gradient);
}

void Policy::backward_critic(std::span<const float> observations, int rows,
                             std::span<const float> value_gradient, std::span<float> gradient) {
  critic_.backward(parameters_, rows, observations.data(), value_gradient, gradient);
}

StateDict Policy::state() const {
  StateDict state;
  layout_.write(parameters_, "", state);
  return state;
}

void Policy::load(const StateDict& state) {
  layout_.refuse_others(state, "");
  layout_.read(state, "", parameters_);
}

}  // namespace divisi::rl
