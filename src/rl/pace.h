// Pace: how the collectors, the replay and the learner of a job wait for each other, in numbers.
#pragma once

#include "rl/config.h"
#include "rl/rate_limiter.h"

#include <cstdint>

namespace divisi::rl {

inline constexpr int kBatchesOfAnAnswer = 8;  // what a learner trains with between two looks around

struct Pace {
  std::int64_t rows_of_collect = 0;  // at least: of one message of a collector
  std::int64_t collects = 0;         // of a collector with one set of weights; 0: no bound
  std::int64_t rows_of_answer = 0;   // of the replay to the learner
  std::int64_t answers = 0;          // between two broadcasts of the weights
  RateLimit limit;
};

Pace pace_of(const DqnConfig& config);

// Throws UsageError, with the numbers, for a configuration with which a job of so many collectors
// would stand still: the collectors wait for new weights, and the learner for the rows that it
// needs to make them.
void check_pace(const DqnConfig& config, int collectors);

}  // namespace divisi::rl
