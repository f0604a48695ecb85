// How much is collected and learned in one task: the numbers that collectors, learners and the
// commander must agree on. All follow from the configuration, which they share.
#pragma once

#include "rl/config.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace divisi::dist_rl {

struct TaskPace {
  int rows = 64;              // transitions of one data file, at least
  int updates = 16;           // of one learn task: enough that the round trip does not count
  int records = 16;           // files of one learn task: each row is drawn about once
  std::int64_t collects = 1;  // files that a collector makes with one policy, then it waits
};

inline TaskPace task_pace(const rl::DqnConfig& config) {
  TaskPace pace;
  pace.rows = std::max(config.n_sample, config.n_sample_remote);
  const double drawn = static_cast<double>(pace.updates) * config.batch_size;
  pace.records = static_cast<int>(std::ceil(drawn / pace.rows));
  if (config.samples_per_insert > 0) {
    // One more than the learner needs for the next policy: it never waits for a single collector.
    pace.collects =
        static_cast<std::int64_t>(std::ceil(drawn / config.samples_per_insert / pace.rows)) + 1;
  } else {
    pace.collects = std::numeric_limits<std::int64_t>::max();
  }
  return pace;
}

}  // namespace divisi::dist_rl
