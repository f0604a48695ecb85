// The whole of DQN in one loop: the defaults must learn CartPole.
#include "base/sanitizer.h"
#include "rl/dqn.h"
#include "rl/env.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace divisi::rl {
namespace {

constexpr std::size_t kCapacity = 20000;
constexpr int kEnvs = 8;
constexpr int kUpdates = 3;  // for each step of all environments
constexpr int kBatch = 64;
constexpr std::int64_t kMaxSteps = 100'000;

// Rows of a ring, overwritten from the oldest on.
class Ring {
 public:
  void add(const TransitionBatch& batch) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(batch.size); ++i) {
      const std::size_t to = added_++ % kCapacity;
      for (std::size_t v = 0; v < 4; ++v) {
        rows_.observations[4 * to + v] = batch.observations[4 * i + v];
        rows_.next_observations[4 * to + v] = batch.next_observations[4 * i + v];
      }
      rows_.actions[to] = batch.actions[i];
      rows_.rewards[to] = batch.rewards[i];
      rows_.not_done[to] = batch.not_done[i];
      rows_.discounts[to] = batch.discounts[i];
    }
  }

  void sample(Random& random, TransitionBatch& batch) const {
    batch.clear();
    batch.size = kBatch;
    for (int i = 0; i < kBatch; ++i) {
      const std::size_t from =
          random.below(static_cast<std::uint32_t>(std::min(added_, kCapacity)));
      for (std::size_t v = 0; v < 4; ++v) {
        batch.observations.push_back(rows_.observations[4 * from + v]);
        batch.next_observations.push_back(rows_.next_observations[4 * from + v]);
      }
      batch.actions.push_back(rows_.actions[from]);
      batch.rewards.push_back(rows_.rewards[from]);
      batch.not_done.push_back(rows_.not_done[from]);
      batch.discounts.push_back(rows_.discounts[from]);
    }
  }

  std::size_t size() const { return std::min(added_, kCapacity); }

 private:
  std::size_t added_ = 0;
  TransitionBatch rows_{.size = 0,
                        .observations = std::vector<float>(4 * kCapacity),
                        .actions = std::vector<std::int32_t>(kCapacity),
                        .rewards = std::vector<float>(kCapacity),
                        .next_observations = std::vector<float>(4 * kCapacity),
                        .not_done = std::vector<float>(kCapacity),
                        .discounts = std::vector<float>(kCapacity),
                        .weights = {}};
};

double mean_greedy_return(QNetwork& network, std::uint64_t seed) {
  constexpr int kEpisodes = 5;
  const auto env = make_env("CartPole-v1", kEpisodes, seed);
  Random unused(0);
  std::vector<int> actions(kEpisodes);
  std::vector<bool> done(kEpisodes);
  double sum = 0.0;
  for (int t = 0; t < env->max_episode_steps(); ++t) {
    act_epsilon_greedy(network, env->observations(), kEpisodes, 0.0, unused, actions);
    const EnvStep& step = env->step(actions);
    bool all = true;
    for (std::size_t i = 0; i < kEpisodes; ++i) {
      if (!done[i]) sum += static_cast<double>(step.rewards[i]);
      done[i] = done[i] || step.terminated[i] != 0 || step.truncated[i] != 0;
      all = all && done[i];
    }
    if (all) break;
  }
  return sum / kEpisodes;
}

// Environment steps until five greedy episodes have a mean of 195; kMaxSteps if they never do.
std::int64_t steps_to_solve(std::uint64_t seed) {
  DqnOptions options;
  DqnLearner learner(options, seed);
  const EpsilonSchedule epsilon;
  const auto env = make_env("CartPole-v1", kEnvs, seed + 1000);
  NStepBuilder builder(kEnvs, 4, options.nstep, options.discount);
  Ring ring;
  Random random(seed + 2000);
  std::vector<int> actions(kEnvs);
  std::vector<float> observations;
  TransitionBatch fresh;
  TransitionBatch batch;
  for (std::int64_t steps = 0; steps < kMaxSteps;) {
    observations.assign(env->observations().begin(), env->observations().end());
    act_epsilon_greedy(learner.network(), observations, kEnvs, epsilon.at(steps), random, actions);
    fresh.clear();
    builder.add(observations, actions, env->step(actions), fresh);
    ring.add(fresh);
    steps += kEnvs;
    if (ring.size() < kBatch) continue;
    for (int i = 0; i < kUpdates; ++i) {
      ring.sample(random, batch);
      learner.update(batch);
      if (learner.train_iter() % 40 != 0) continue;
      if (mean_greedy_return(learner.network(), random()) >= 195.0) return steps;
    }
  }
  return kMaxSteps;
}

constexpr std::uint64_t kSeeds = kSanitizer ? 1 : 3;  // twenty times slower there

TEST(DqnTrainingTest, The_defaults_learn_CartPole) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::int64_t steps = steps_to_solve(seed);
    EXPECT_LT(steps, kMaxSteps) << "seed " << seed;
    RecordProperty("steps_of_seed_" + std::to_string(seed), std::to_string(steps));
  }
}

}  // namespace
}  // namespace divisi::rl
