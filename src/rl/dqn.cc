#include "rl/dqn.h"

#include "divisi/error.h"
#include "rl/counter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace divisi::rl {

namespace {

DqnOptions checked(DqnOptions options) {
  if (!(options.discount > 0.0 && options.discount <= 1.0)) {
    throw UsageError(fmt::format("dqn: discount {} is not in (0, 1]", options.discount));
  }
  if (options.nstep < 1) throw UsageError(fmt::format("dqn: nstep {} is below 1", options.nstep));
  if (!(options.learning_rate > 0.0) || !std::isfinite(options.learning_rate)) {
    throw UsageError(fmt::format("dqn: learning rate {} is not above 0", options.learning_rate));
  }
  if (options.target_update_freq < 1) {
    throw UsageError(
        fmt::format("dqn: target_update_freq {} is below 1", options.target_update_freq));
  }
  return options;
}

void check_vector(const char* name, std::size_t size, std::size_t wanted, bool optional) {
  if (size == wanted || (optional && size == 0)) return;
  throw UsageError(fmt::format("batch: '{}' has {} numbers, {} are needed{}", name, size, wanted,
                               optional ? " (or none)" : ""));
}

}  // namespace

DqnLearner::DqnLearner(DqnOptions options, std::uint64_t seed)
    : options_(checked(std::move(options))),
      online_(options_.shape, seed),
      target_(online_),
      adam_({.learning_rate = options_.learning_rate}, online_.parameters().size()),
      gradient_(online_.parameters().size()) {}

void DqnLearner::check(const TransitionBatch& batch) const {
  if (batch.size < 1) throw UsageError(fmt::format("batch: {} rows, at least 1", batch.size));
  const auto rows = static_cast<std::size_t>(batch.size);
  const std::size_t numbers = rows * static_cast<std::size_t>(options_.shape.observation_size);
  check_vector("observations", batch.observations.size(), numbers, false);
  check_vector("actions", batch.actions.size(), rows, false);
  check_vector("rewards", batch.rewards.size(), rows, false);
  check_vector("next_observations", batch.next_observations.size(), numbers, false);
  check_vector("not_done", batch.not_done.size(), rows, false);
  check_vector("discounts", batch.discounts.size(), rows, true);
  check_vector("weights", batch.weights.size(), rows, true);
  for (const std::int32_t action : batch.actions) {
    if (action >= 0 && action < options_.shape.action_count) continue;
    throw UsageError(
        fmt::format("batch: action {} is not in 0 to {}", action, options_.shape.action_count - 1));
  }
}

void DqnLearner::make_room(std::size_t rows) {
  const std::size_t numbers = rows * static_cast<std::size_t>(options_.shape.action_count);
  q_.resize(options_.double_q ? 2 * numbers : numbers);
  next_q_.resize(numbers);
  targets_.resize(rows);
  td_errors_.resize(rows);
}

void DqnLearner::evaluate(const TransitionBatch& batch) {
  target_.forward(batch.next_observations, batch.size, next_q_);
  // Last, because backward() goes with it. What is chosen next comes from the same pass: the
  // weights are read once for both.
  if (options_.double_q) {
    both_.assign(batch.observations.begin(), batch.observations.end());
    both_.insert(both_.end(), batch.next_observations.begin(), batch.next_observations.end());
    online_.forward(both_, 2 * batch.size, q_);
  } else {
    online_.forward(batch.observations, batch.size, q_);
  }
  const std::span<const float> chooser =
      options_.double_q ? std::span<const float>(q_).subspan(next_q_.size()) : next_q_;
  const auto actions = static_cast<std::size_t>(options_.shape.action_count);
  const auto discount = static_cast<float>(std::pow(options_.discount, options_.nstep));
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const auto row = chooser.subspan(i * actions, actions);
    const auto best = static_cast<std::size_t>(std::ranges::max_element(row) - row.begin());
    const float gamma = batch.discounts.empty() ? discount : batch.discounts[i];
    targets_[i] = batch.rewards[i] + gamma * batch.not_done[i] * next_q_[i * actions + best];
  }
}

DqnLearner::Result DqnLearner::update(const TransitionBatch& batch) {
  check(batch);
  const auto rows = static_cast<std::size_t>(batch.size);
  const auto actions = static_cast<std::size_t>(options_.shape.action_count);
  make_room(rows);
  evaluate(batch);

  double loss = 0.0;
  double sum_q = 0.0;
  const float scale = 2.0F / static_cast<float>(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    const auto taken = static_cast<std::size_t>(batch.actions[i]);
    const float weight = batch.weights.empty() ? 1.0F : batch.weights[i];
    const float error = q_[i * actions + taken] - targets_[i];
    sum_q += static_cast<double>(q_[i * actions + taken]);
    loss += static_cast<double>(weight) * static_cast<double>(error) * static_cast<double>(error);
    td_errors_[i] = error;
    // From here on q_ is the gradient with respect to it.
    for (std::size_t a = 0; a < actions; ++a) {
      q_[i * actions + a] = a == taken ? scale * weight * error : 0.0F;
    }
  }
  loss /= static_cast<double>(rows);
  if (!std::isfinite(loss)) {
    throw Error(Code::kInternal, fmt::format("loss is {} at train_iter {}",
                                             std::isnan(loss) ? "nan" : "inf", train_iter_));
  }

  online_.backward(batch.observations, batch.size, std::span(q_).first(rows * actions), gradient_);
  const float squares = kernels().sum_of_squares(gradient_.size(), gradient_.data());
  if (!std::isfinite(squares)) {
    throw Error(Code::kInternal,
                fmt::format("loss is {} and its gradient is not finite at train_iter {}", loss,
                            train_iter_));
  }
  adam_.step(online_.parameters(), gradient_);
  ++train_iter_;
  if (train_iter_ % options_.target_update_freq == 0) {
    std::ranges::copy(online_.parameters(), target_.parameters().begin());
  }
  return {loss, sum_q / static_cast<double>(rows), std::sqrt(static_cast<double>(squares)),
          td_errors_};
}

StateDict DqnLearner::full_state() const {
  StateDict state;
  const ParameterLayout& layout = online_.layout();
  layout.write(online_.parameters(), "online.", state);
  layout.write(target_.parameters(), "target.", state);
  adam_.write(layout, "optimizer.", state);
  write_counter(train_iter_, "train_iter", state);
  return state;
}

void DqnLearner::load_full(const StateDict& state) {
  const ParameterLayout& layout = online_.layout();
  // Whatever is wrong shows before the first assignment.
  std::vector<float> online(layout.size());
  std::vector<float> target(layout.size());
  Adam adam = adam_;
  layout.read(state, "online.", online);
  layout.read(state, "target.", target);
  adam.read(layout, "optimizer.", state);
  const std::int64_t train_iter = read_counter(state, "train_iter");
  const StateDict ours = full_state();
  for (const auto& [name, tensor] : state) {
    if (ours.contains(name)) continue;
    throw UsageError(
        fmt::format("'{}' {} is no entry of the learner", name, shape_text(tensor.shape)));
  }
  std::ranges::copy(online, online_.parameters().begin());
  std::ranges::copy(target, target_.parameters().begin());
  adam_ = std::move(adam);
  train_iter_ = train_iter;
}

}  // namespace divisi::rl
