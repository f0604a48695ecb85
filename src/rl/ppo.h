// PpoTrainer: proximal policy optimisation with a clipped objective, in one process.
//
//   auto env = make_env("CartPole-v1", 8, seed);
//   const auto options = PpoOptions::suited_to(*env);
//   PpoTrainer trainer(options, std::move(env), seed);
//   while (trainer.step().mean_return < 475) {
//   }
//
// One object belongs to one thread.
#pragma once

#include "rl/adam.h"
#include "rl/env.h"
#include "rl/policy.h"
#include "rl/random.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace divisi::rl {

struct PpoOptions {
  std::vector<int> hidden = {64, 64};
  int rollout_steps = 128;       // of each environment between two updates
  int epochs = 10;               // passes over what was collected
  int minibatch = 256;           // rows of one step of Adam
  double discount = 0.99;        // (0, 1]
  double gae_lambda = 0.95;      // [0, 1]: 0 trusts the critic, 1 what was collected
  double clip = 0.2;             // how far a probability may move before it stops counting
  double learning_rate = 0.001;  // of Adam
  double value_weight = 0.5;     // of the critic's loss
  double entropy_weight = 0.0;   // of the bonus for not deciding too soon
  double max_grad_norm = 0.5;    // longer gradients are shortened to it
  double reward_scale = 1.0;     // what the critic sees; returns are reported unscaled

  // What learns the environments we have in a few seconds.
  static PpoOptions suited_to(const VectorEnv& env);
};

struct PpoStatistics {
  std::int64_t env_steps = 0;  // of all environments, so far
  std::int64_t episodes = 0;   // ended so far
  double mean_return = 0.0;    // of the last 100 of them; the worst number before the first
  double policy_loss = 0.0;    // these: means over the minibatches of the step
  double value_loss = 0.0;
  double entropy = 0.0;
  double kl = 0.0;             // how far the policy moved from the one that collected
  double clip_fraction = 0.0;  // of rows whose probability moved too far to count
};

// One rollout of `envs` environments, row t * envs + i.
struct Rollout {
  std::size_t envs = 1;
  std::span<const float> rewards{};
  std::span<const float> values{};       // of the critic, before the step
  std::span<const float> next_values{};  // and behind it
  std::span<const std::uint8_t> terminated{};
  std::span<const std::uint8_t> ended{};  // terminated or truncated
};

// Generalised advantage estimation. A truncated episode goes on in the critic's eyes: only a
// termination makes what follows worth nothing. No advantage is carried from one episode to the one
// before.
void estimate_advantages(const Rollout& rollout, double discount, double lambda,
                         std::span<float> advantages);

class PpoTrainer {
 public:
  // Throws UsageError for options out of range.
  PpoTrainer(PpoOptions options, std::unique_ptr<VectorEnv> env, std::uint64_t seed);

  // Collects rollout_steps of each environment and learns from them. Throws Error when the loss
  // is no number ("loss is nan at env step 1024").
  PpoStatistics step();

  // Mean return of episodes with the most likely actions, in environments of its own.
  double evaluate(int episodes, std::uint64_t seed);

  Policy& policy() noexcept { return policy_; }
  const VectorEnv& env() const noexcept { return *env_; }

 private:
  void collect();
  void compute_advantages();
  void learn(PpoStatistics& statistics);
  void learn_from(std::span<const std::uint32_t> rows, PpoStatistics& statistics);
  void shorten_gradient();
  void take(VectorEnv& env, std::span<const float> actions, const EnvStep** step);

  const PpoOptions options_;
  const std::unique_ptr<VectorEnv> env_;
  const std::size_t envs_;
  const std::size_t rows_;  // of one rollout
  Random random_;
  Policy policy_;
  Adam adam_;

  std::int64_t env_steps_ = 0;
  std::int64_t episodes_ = 0;
  std::vector<double> running_returns_;
  std::deque<double> last_returns_;

  // One rollout, row t * envs + i.
  std::vector<float> observations_;
  std::vector<float> next_observations_;
  std::vector<float> actions_;
  std::vector<float> log_probabilities_;
  std::vector<float> rewards_;
  std::vector<std::uint8_t> terminated_;
  std::vector<std::uint8_t> ended_;
  std::vector<float> values_;
  std::vector<float> next_values_;
  std::vector<float> advantages_;
  std::vector<float> returns_;
  std::vector<std::uint32_t> order_;

  // One minibatch.
  std::vector<float> batch_observations_;
  std::vector<float> batch_actions_;
  std::vector<float> batch_log_probabilities_;
  std::vector<float> batch_gradient_;
  std::vector<float> gradient_;
  std::vector<int> choices_;
};

}  // namespace divisi::rl
