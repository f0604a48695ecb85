#include "rl/ppo.h"

#include "divisi/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace divisi::rl {

namespace {

constexpr std::size_t kReturnsKept = 100;

PpoOptions checked(PpoOptions options) {
  const auto require = [](bool good, const char* what, double value) {
    if (!good) throw UsageError(fmt::format("ppo: {} is {}", what, value));
  };
  require(options.rollout_steps >= 1, "rollout_steps, at least 1,", options.rollout_steps);
  require(options.epochs >= 1, "epochs, at least 1,", options.epochs);
  require(options.minibatch >= 1, "minibatch, at least 1,", options.minibatch);
  require(options.discount > 0.0 && options.discount <= 1.0, "discount, in (0, 1],",
          options.discount);
  require(options.gae_lambda >= 0.0 && options.gae_lambda <= 1.0, "gae_lambda, in [0, 1],",
          options.gae_lambda);
  require(options.clip > 0.0, "clip, above 0,", options.clip);
  require(options.learning_rate > 0.0, "learning_rate, above 0,", options.learning_rate);
  require(options.max_grad_norm > 0.0, "max_grad_norm, above 0,", options.max_grad_norm);
  for (const int size : options.hidden) require(size >= 1, "a hidden size, at least 1,", size);
  return options;
}

PolicyShape shape_for(const VectorEnv& env, const std::vector<int>& hidden) {
  return {.observation_size = env.observation_size(),
          .action_count = env.action_count(),
          .action_size = env.action_size(),
          .hidden = hidden};
}

// Row `from` of one matrix as row `to` of another.
void copy_row(std::span<const float> source, std::size_t from, std::size_t width,
              std::span<float> target, std::size_t to) {
  std::ranges::copy(source.subspan(from * width, width), target.subspan(to * width).begin());
}

}  // namespace

void estimate_advantages(const Rollout& rollout, double discount, double lambda,
                         std::span<float> advantages) {
  const auto factor = static_cast<float>(discount);
  const auto carry = static_cast<float>(discount * lambda);
  const std::size_t rows = advantages.size();
  for (std::size_t i = rows; i-- > 0;) {
    const float next = rollout.terminated[i] != 0 ? 0.0F : rollout.next_values[i];
    const float surprise = rollout.rewards[i] + factor * next - rollout.values[i];
    const bool goes_on = rollout.ended[i] == 0 && i + rollout.envs < rows;
    advantages[i] = surprise + (goes_on ? carry * advantages[i + rollout.envs] : 0.0F);
  }
}

PpoOptions PpoOptions::suited_to(const VectorEnv& env) {
  PpoOptions options;
  if (env.action_count() == 0) {
    options.discount = 0.9;  // torques act at once, and 200 steps are few
    options.rollout_steps = 256;
    options.reward_scale = 0.1;
  }
  return options;
}

PpoTrainer::PpoTrainer(PpoOptions options, std::unique_ptr<VectorEnv> env, std::uint64_t seed)
    : options_(checked(std::move(options))),
      env_(std::move(env)),
      envs_(static_cast<std::size_t>(env_->size())),
      rows_(envs_ * static_cast<std::size_t>(options_.rollout_steps)),
      random_(seed),
      policy_(shape_for(*env_, options_.hidden), random_()),
      adam_({.learning_rate = options_.learning_rate, .epsilon = 1e-5},
            policy_.parameters().size()),
      running_returns_(envs_),
      terminated_(rows_),
      ended_(rows_),
      values_(rows_),
      next_values_(rows_),
      advantages_(rows_),
      returns_(rows_),
      order_(rows_),
      gradient_(policy_.parameters().size()) {
  const std::size_t numbers = rows_ * static_cast<std::size_t>(env_->observation_size());
  observations_.resize(numbers);
  next_observations_.resize(numbers);
  actions_.resize(rows_ * static_cast<std::size_t>(env_->action_size()));
  log_probabilities_.resize(rows_);
  rewards_.resize(rows_);
  std::iota(order_.begin(), order_.end(), 0U);
}

void PpoTrainer::take(VectorEnv& env, std::span<const float> actions, const EnvStep** step) {
  if (env.action_count() == 0) {
    *step = &env.step(actions);
    return;
  }
  choices_.assign(actions.begin(), actions.end());
  *step = &env.step(choices_);
}

void PpoTrainer::collect() {
  const auto width = static_cast<std::size_t>(env_->observation_size());
  const auto action_width = static_cast<std::size_t>(env_->action_size());
  for (std::size_t first = 0; first < rows_; first += envs_) {
    const auto to = static_cast<std::ptrdiff_t>(first * width);
    const auto actions = std::span(actions_).subspan(first * action_width, envs_ * action_width);
    std::ranges::copy(env_->observations(), observations_.begin() + to);
    policy_.act(env_->observations(), env_->size(), random_, actions,
                std::span(log_probabilities_).subspan(first, envs_));
    const EnvStep* step = nullptr;
    take(*env_, actions, &step);
    std::ranges::copy(step->next_observations, next_observations_.begin() + to);
    for (std::size_t i = 0; i < envs_; ++i) {
      const bool ended = step->terminated[i] != 0 || step->truncated[i] != 0;
      rewards_[first + i] = step->rewards[i] * static_cast<float>(options_.reward_scale);
      terminated_[first + i] = step->terminated[i];
      ended_[first + i] = ended ? 1 : 0;
      running_returns_[i] += static_cast<double>(step->rewards[i]);
      if (!ended) continue;
      last_returns_.push_back(std::exchange(running_returns_[i], 0.0));
      if (last_returns_.size() > kReturnsKept) last_returns_.pop_front();
      ++episodes_;
    }
  }
  env_steps_ += static_cast<std::int64_t>(rows_);
}

void PpoTrainer::compute_advantages() {
  const int rows = static_cast<int>(rows_);
  std::ranges::copy(policy_.values(observations_, rows), values_.begin());
  std::ranges::copy(policy_.values(next_observations_, rows), next_values_.begin());
  estimate_advantages({.envs = envs_,
                       .rewards = rewards_,
                       .values = values_,
                       .next_values = next_values_,
                       .terminated = terminated_,
                       .ended = ended_},
                      options_.discount, options_.gae_lambda, advantages_);
  for (std::size_t i = 0; i < rows_; ++i) returns_[i] = advantages_[i] + values_[i];
}

void PpoTrainer::learn(PpoStatistics& statistics) {
  int minibatches = 0;
  for (int epoch = 0; epoch < options_.epochs; ++epoch) {
    for (std::size_t i = rows_; i > 1; --i) {
      std::swap(order_[i - 1], order_[random_.below(static_cast<std::uint32_t>(i))]);
    }
    const auto size = static_cast<std::size_t>(options_.minibatch);
    for (std::size_t first = 0; first < rows_; first += size) {
      learn_from(std::span(order_).subspan(first, std::min(size, rows_ - first)), statistics);
      ++minibatches;
    }
  }
  for (double* mean : {&statistics.policy_loss, &statistics.value_loss, &statistics.entropy,
                       &statistics.kl, &statistics.clip_fraction}) {
    *mean /= minibatches;
  }
}

void PpoTrainer::learn_from(std::span<const std::uint32_t> rows, PpoStatistics& statistics) {
  const std::size_t count = rows.size();
  const auto width = static_cast<std::size_t>(env_->observation_size());
  const auto action_width = static_cast<std::size_t>(env_->action_size());
  batch_observations_.resize(count * width);
  batch_actions_.resize(count * action_width);
  batch_log_probabilities_.resize(count);
  batch_gradient_.resize(count);
  double sum = 0.0;
  double squares = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    copy_row(observations_, rows[i], width, batch_observations_, i);
    copy_row(actions_, rows[i], action_width, batch_actions_, i);
    const auto advantage = static_cast<double>(advantages_[rows[i]]);
    sum += advantage;
    squares += advantage * advantage;
  }
  const double share = 1.0 / static_cast<double>(count);
  const double mean = sum * share;
  const double deviation = std::sqrt(std::max(0.0, squares * share - mean * mean)) + 1e-8;

  const int batch = static_cast<int>(count);
  const double entropy =
      policy_.evaluate(batch_observations_, batch, batch_actions_, batch_log_probabilities_);
  double policy_loss = 0.0;
  double kl = 0.0;
  double clipped = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    const double advantage = (static_cast<double>(advantages_[rows[i]]) - mean) / deviation;
    const auto log_ratio =
        static_cast<double>(batch_log_probabilities_[i] - log_probabilities_[rows[i]]);
    const double ratio = std::exp(log_ratio);
    const double bounded = std::clamp(ratio, 1.0 - options_.clip, 1.0 + options_.clip);
    policy_loss -= std::min(ratio * advantage, bounded * advantage) * share;
    // Where the bounded one is the smaller, the loss does not depend on the policy.
    const bool counts = ratio * advantage <= bounded * advantage;
    batch_gradient_[i] = counts ? static_cast<float>(-ratio * advantage * share) : 0.0F;
    kl += (ratio - 1.0 - log_ratio) * share;
    if (ratio != bounded) clipped += share;
  }
  policy_.backward_actor(batch_observations_, batch, batch_actions_, batch_gradient_,
                         static_cast<float>(-options_.entropy_weight), gradient_);

  const auto values = policy_.values(batch_observations_, batch);
  double value_loss = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto error = static_cast<double>(values[i] - returns_[rows[i]]);
    value_loss += error * error * share;
    batch_gradient_[i] = static_cast<float>(2.0 * options_.value_weight * error * share);
  }
  policy_.backward_critic(batch_observations_, batch, batch_gradient_, gradient_);

  const double loss = policy_loss + options_.value_weight * value_loss;
  if (!std::isfinite(loss)) {
    throw Error(Code::kInternal, fmt::format("loss is {} at env step {}",
                                             std::isnan(loss) ? "nan" : "inf", env_steps_));
  }
  shorten_gradient();
  adam_.step(policy_.parameters(), gradient_);
  statistics.policy_loss += policy_loss;
  statistics.value_loss += value_loss;
  statistics.entropy += entropy;
  statistics.kl += kl;
  statistics.clip_fraction += clipped;
}

void PpoTrainer::shorten_gradient() {
  const double norm =
      std::sqrt(static_cast<double>(kernels().sum_of_squares(gradient_.size(), gradient_.data())));
  if (norm <= options_.max_grad_norm) return;
  const auto factor = static_cast<float>(options_.max_grad_norm / norm);
  for (float& value : gradient_) value *= factor;
}

PpoStatistics PpoTrainer::step() {
  collect();
  compute_advantages();
  PpoStatistics statistics;
  learn(statistics);
  statistics.env_steps = env_steps_;
  statistics.episodes = episodes_;
  statistics.mean_return = last_returns_.empty()
                               ? -std::numeric_limits<double>::infinity()
                               : std::accumulate(last_returns_.begin(), last_returns_.end(), 0.0) /
                                     static_cast<double>(last_returns_.size());
  return statistics;
}

double PpoTrainer::evaluate(int episodes, std::uint64_t seed) {
  // One environment an episode: the first episode of each counts, so that short ones are not
  // preferred.
  const auto env = make_env(env_->name(), episodes, seed);
  const auto count = static_cast<std::size_t>(episodes);
  std::vector<float> actions(count * static_cast<std::size_t>(env->action_size()));
  std::vector<std::uint8_t> done(count);
  double sum = 0.0;
  for (int t = 0; t < env->max_episode_steps(); ++t) {
    policy_.act_greedily(env->observations(), episodes, actions);
    const EnvStep* step = nullptr;
    take(*env, actions, &step);
    for (std::size_t i = 0; i < count; ++i) {
      if (done[i] != 0) continue;
      sum += static_cast<double>(step->rewards[i]);
      done[i] = step->terminated[i] | step->truncated[i];
    }
  }
  return sum / episodes;
}

}  // namespace divisi::rl
