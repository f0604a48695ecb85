// How an agent explores: an epsilon that falls with the steps taken, and actions that obey it.
#pragma once

#include "rl/network.h"
#include "rl/random.h"

#include <cstdint>
#include <span>
#include <string>

namespace divisi::rl {

// The share of random actions, falling from `start` to `end`.
class EpsilonSchedule {
 public:
  // "exp": decay steps until 63 % of the way is done; "linear": until all of it is. Throws
  // UsageError for another type, a probability outside [0, 1] or a decay below 1.
  explicit EpsilonSchedule(const std::string& type = "exp", double start = 0.95, double end = 0.1,
                           std::int64_t decay = 10000);

  double at(std::int64_t env_step) const noexcept;

 private:
  bool exponential_;
  double start_;
  double end_;
  double decay_;
};

// The best action of each row, or with probability eps any. eps 0 draws no random number.
void act_epsilon_greedy(QNetwork& network, std::span<const float> observations, int rows,
                        double eps, Random& random, std::span<int> actions);

}  // namespace divisi::rl
