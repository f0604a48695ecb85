#include "rl/env.h"

#include "base/nearest_name.h"
#include "divisi/error.h"
#include "rl/cartpole.h"
#include "rl/kernels.h"
#include "rl/pendulum.h"
#include "rl/random.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

namespace divisi::rl {

VectorEnv::VectorEnv(Traits traits, int n) : traits_(std::move(traits)), size_(n) {
  if (n < 1) {
    throw UsageError(fmt::format("{}: {} environments, at least 1 is needed", traits_.name, n));
  }
  const auto rows = static_cast<std::size_t>(n);
  const auto columns = static_cast<std::size_t>(traits_.observation_size);
  states_.resize(rows * static_cast<std::size_t>(traits_.state_size));
  observations_.resize(rows * columns);
  steps_.resize(rows);
  streams_.resize(rows);
  step_.next_observations.resize(rows * columns);
  step_.rewards.resize(rows);
  step_.terminated.resize(rows);
  step_.truncated.resize(rows);
}

void VectorEnv::reset(std::uint64_t seed) {
  for (int i = 0; i < size_; ++i) {
    // Mixed twice, so that neighbouring seeds and environments do not share a stream.
    std::uint64_t mixed = seed;
    std::uint64_t stream = splitmix64(mixed) + static_cast<std::uint64_t>(i);
    streams_[static_cast<std::size_t>(i)] = splitmix64(stream);
    begin_episode(i);
  }
}

const EnvStep& VectorEnv::step(std::span<const int> actions) {
  if (traits_.action_count == 0) {
    throw UsageError(fmt::format("{}: actions are real numbers, not choices", traits_.name));
  }
  check_count(actions.size());
  const auto count = static_cast<unsigned>(traits_.action_count);
  if (kernels().largest_action(size_, actions.data()) >= count) {
    const auto wrong = std::ranges::find_if(
        actions, [count](int action) { return static_cast<unsigned>(action) >= count; });
    throw UsageError(fmt::format("{}: action {} of environment {} is not in 0 to {}", traits_.name,
                                 *wrong, wrong - actions.begin(), count - 1));
  }
  advance_discrete(actions);
  end_episodes();
  return step_;
}

const EnvStep& VectorEnv::step(std::span<const float> actions) {
  if (traits_.action_count != 0) {
    throw UsageError(fmt::format("{}: actions are choices of 0 to {}, not real numbers",
                                 traits_.name, traits_.action_count - 1));
  }
  check_count(actions.size());
  const auto wrong = std::ranges::find_if(actions, [](float a) { return !std::isfinite(a); });
  if (wrong != actions.end()) {
    throw UsageError(fmt::format("{}: action {} of environment {} is no number", traits_.name,
                                 *wrong, (wrong - actions.begin()) / traits_.action_size));
  }
  advance_continuous(actions);
  end_episodes();
  return step_;
}

std::vector<double> VectorEnv::state(int i) const {
  check_index(i);
  std::vector<double> values(static_cast<std::size_t>(traits_.state_size));
  for (int v = 0; v < traits_.state_size; ++v) values[static_cast<std::size_t>(v)] = column(v)[i];
  return values;
}

void VectorEnv::set_state(int i, std::span<const double> values) {
  check_index(i);
  if (values.size() != static_cast<std::size_t>(traits_.state_size)) {
    throw UsageError(fmt::format("{}: a state of {} numbers, {} are needed", traits_.name,
                                 values.size(), traits_.state_size));
  }
  for (int v = 0; v < traits_.state_size; ++v) column(v)[i] = values[static_cast<std::size_t>(v)];
  steps_[static_cast<std::size_t>(i)] = 0;
  observe_row(i);
}

void VectorEnv::advance_discrete(std::span<const int> /*actions*/) {}
void VectorEnv::advance_continuous(std::span<const float> /*actions*/) {}

void VectorEnv::check_count(std::size_t actions) const {
  const auto wanted =
      static_cast<std::size_t>(size_) * static_cast<std::size_t>(traits_.action_size);
  if (actions == wanted) return;
  throw UsageError(fmt::format("{}: {} actions for {} environments, {} are needed", traits_.name,
                               actions, size_, wanted));
}

void VectorEnv::check_index(int i) const {
  if (i >= 0 && i < size_) return;
  throw UsageError(fmt::format("{}: no environment {}, there are {}", traits_.name, i, size_));
}

void VectorEnv::begin_episode(int i) {
  draw_state(i, streams_[static_cast<std::size_t>(i)]);
  steps_[static_cast<std::size_t>(i)] = 0;
  observe_row(i);
}

void VectorEnv::observe_row(int i) {
  const auto columns = static_cast<std::size_t>(traits_.observation_size);
  observe(i, std::span(observations_).subspan(static_cast<std::size_t>(i) * columns, columns));
}

void VectorEnv::end_episodes() {
  const auto n = static_cast<std::size_t>(size_);
  kernels().count_steps(size_, traits_.max_episode_steps, steps_.data(), step_.truncated.data());
  std::memcpy(observations_.data(), step_.next_observations.data(),
              observations_.size() * sizeof(float));
  // Ends are rare: eight environments are looked at together.
  for (std::size_t i = 0; i < n; i += 8) {
    const std::size_t count = std::min<std::size_t>(8, n - i);
    std::uint64_t terminated = 0;
    std::uint64_t truncated = 0;
    std::memcpy(&terminated, step_.terminated.data() + i, count);
    std::memcpy(&truncated, step_.truncated.data() + i, count);
    for (std::uint64_t ended = terminated | truncated; ended != 0; ended &= ended - 1) {
      begin_episode(static_cast<int>(i) + std::countr_zero(ended) / 8);
    }
  }
}

std::vector<std::string> env_names() {
  return {"CartPole-v1", "Pendulum-v1"};
}

std::unique_ptr<VectorEnv> make_env(const std::string& name, int n, std::uint64_t seed) {
  std::unique_ptr<VectorEnv> env;
  if (name == "CartPole-v1") env = std::make_unique<CartPole>(n);
  if (name == "Pendulum-v1") env = std::make_unique<Pendulum>(n);
  if (env == nullptr) {
    const auto names = env_names();
    throw UsageError(fmt::format("unknown environment '{}'{} (known: {})", name,
                                 did_you_mean(name, names), fmt::join(names, ", ")));
  }
  env->reset(seed);
  return env;
}

}  // namespace divisi::rl
