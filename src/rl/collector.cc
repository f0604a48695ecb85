#include "rl/collector.h"

#include <algorithm>
#include <functional>

namespace divisi::rl {

Collector::Collector(std::unique_ptr<VectorEnv> env, CollectorOptions options)
    : env_(std::move(env)),
      builder_(env_->size(), env_->observation_size(), options.nstep, options.discount),
      random_(options.seed),
      actions_(static_cast<std::size_t>(env_->size())),
      returns_(static_cast<std::size_t>(env_->size())) {}

const TransitionBatch& Collector::collect(QNetwork& network, double eps, int rows) {
  batch_.clear();
  collected_ = {};
  while (batch_.size < rows) {
    const auto now = env_->observations();
    observations_.assign(now.begin(), now.end());
    act_epsilon_greedy(network, observations_, env_->size(), eps, random_, actions_);
    const EnvStep& step = env_->step(actions_);
    builder_.add(observations_, actions_, step, batch_);
    count(step);
  }
  return batch_;
}

void Collector::count(const EnvStep& step) {
  collected_.env_steps += env_->size();
  for (std::size_t i = 0; i < returns_.size(); ++i) {
    returns_[i] += step.rewards[i];
    if (step.terminated[i] == 0 && step.truncated[i] == 0) continue;
    ++collected_.episodes;
    collected_.return_sum += returns_[i];
    returns_[i] = 0;
  }
}

std::vector<double> evaluate(VectorEnv& env, QNetwork& network, int episodes, std::uint64_t seed,
                             const std::function<bool()>& stop) {
  env.reset(seed);
  const auto n = static_cast<std::size_t>(env.size());
  const auto wanted = static_cast<std::size_t>(episodes);
  Random random(seed);
  std::vector<int> actions(n);
  std::vector<double> running(n);
  std::vector<double> returns;
  // Environment i plays episodes i, i + n, ...: counted in the order they begin, because those that
  // end first are the short ones.
  std::vector<std::size_t> begun(n);
  for (std::size_t i = 0; i < n; ++i) begun[i] = i;
  while (returns.size() < wanted && !(stop && stop())) {
    act_epsilon_greedy(network, env.observations(), env.size(), 0, random, actions);
    const EnvStep& step = env.step(actions);
    for (std::size_t i = 0; i < n; ++i) {
      running[i] += step.rewards[i];
      if (step.terminated[i] == 0 && step.truncated[i] == 0) continue;
      if (begun[i] < wanted) returns.push_back(running[i]);
      begun[i] += n;
      running[i] = 0;
    }
  }
  return returns;
}

}  // namespace divisi::rl
