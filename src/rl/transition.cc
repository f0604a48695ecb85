#include "rl/transition.h"

#include "divisi/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace divisi::rl {

void TransitionBatch::clear() noexcept {
  size = 0;
  observations.clear();
  actions.clear();
  rewards.clear();
  next_observations.clear();
  not_done.clear();
  discounts.clear();
  weights.clear();
}

NStepBuilder::NStepBuilder(int envs, int observation_size, int nstep, double discount)
    : envs_(envs),
      observation_size_(static_cast<std::size_t>(observation_size)),
      nstep_(nstep),
      discount_(discount) {
  if (envs < 1 || observation_size < 1 || nstep < 1) {
    throw UsageError(
        fmt::format("n-step transitions: {} environments, observations of {}, nstep {}: each is at "
                    "least 1",
                    envs, observation_size, nstep));
  }
  const auto slots = static_cast<std::size_t>(envs) * static_cast<std::size_t>(nstep);
  pending_.resize(static_cast<std::size_t>(envs));
  observations_.resize(slots * observation_size_);
  actions_.resize(slots);
  rewards_.resize(slots);
}

void NStepBuilder::clear() noexcept {
  for (auto& pending : pending_) pending = {};
}

std::size_t NStepBuilder::slot(int env, int position) const noexcept {
  const int first = pending_[static_cast<std::size_t>(env)].first;
  const auto steps = static_cast<std::size_t>(nstep_);
  return static_cast<std::size_t>(env) * steps + static_cast<std::size_t>(first + position) % steps;
}

void NStepBuilder::add(std::span<const float> observations, std::span<const int> actions,
                       const EnvStep& step, TransitionBatch& out) {
  const auto envs = static_cast<std::size_t>(envs_);
  const std::size_t numbers = envs * observation_size_;
  if (actions.size() != envs || step.rewards.size() != envs || observations.size() != numbers ||
      step.next_observations.size() != numbers) {
    throw UsageError(
        fmt::format("n-step transitions: {} actions and {} observations for {} "
                    "environments with observations of {}",
                    actions.size(), observations.size(), envs_, observation_size_));
  }
  for (int env = 0; env < envs_; ++env) {
    const auto i = static_cast<std::size_t>(env);
    Pending& pending = pending_[i];
    const std::size_t to = slot(env, pending.count++);
    const auto row = observations.subspan(i * observation_size_, observation_size_);
    std::ranges::copy(row,
                      observations_.begin() + static_cast<std::ptrdiff_t>(to * observation_size_));
    actions_[to] = actions[i];
    rewards_[to] = step.rewards[i];

    const bool terminated = step.terminated[i] != 0;
    const bool ended = terminated || step.truncated[i] != 0;
    const auto next =
        std::span(step.next_observations).subspan(i * observation_size_, observation_size_);
    while (pending.count == nstep_ || (ended && pending.count > 0)) {
      emit_oldest(env, next, terminated, out);
    }
  }
}

void NStepBuilder::emit_oldest(int env, std::span<const float> next, bool terminated,
                               TransitionBatch& out) {
  Pending& pending = pending_[static_cast<std::size_t>(env)];
  double reward = 0.0;
  double discount = 1.0;
  for (int position = 0; position < pending.count; ++position) {
    reward += discount * static_cast<double>(rewards_[slot(env, position)]);
    discount *= discount_;
  }
  const std::size_t oldest = slot(env, 0);
  const auto from = observations_.begin() + static_cast<std::ptrdiff_t>(oldest * observation_size_);
  out.observations.insert(out.observations.end(), from,
                          from + static_cast<std::ptrdiff_t>(observation_size_));
  out.actions.push_back(actions_[oldest]);
  out.rewards.push_back(static_cast<float>(reward));
  out.next_observations.insert(out.next_observations.end(), next.begin(), next.end());
  out.not_done.push_back(terminated ? 0.0F : 1.0F);
  out.discounts.push_back(static_cast<float>(discount));
  ++out.size;
  pending.first = (pending.first + 1) % nstep_;
  --pending.count;
}

}  // namespace divisi::rl
