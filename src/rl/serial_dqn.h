// DQN in one thread, as DI-engine's serial pipeline runs it: evaluate when it is due, collect,
// train, until an evaluation reaches the stop value.
#pragma once

#include "rl/config.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::rl {

// The configuration of {"main": ..., "create": ...}, JSON in DI-engine's layout. Throws UsageError
// for a key, an algorithm or an environment that is not here, by name.
DqnConfig read_serial_config(std::string_view document);

// One evaluation: the returns of its episodes, and when it was.
struct SerialEvaluation {
  std::int64_t env_step = 0;
  std::int64_t train_iter = 0;
  double eval_value = 0;        // the mean of the returns
  std::vector<double> returns;  // in the order in which the episodes ended
};

struct SerialOptions {
  DqnConfig config;
  std::int64_t max_train_iter = std::numeric_limits<std::int64_t>::max();
  // Where the learner is saved: after the best evaluation so far, and at the end. Empty: nowhere.
  // The format is that of saved_file.h, kind "dqn": the shape as text, DqnLearner::full_state().
  std::string best_checkpoint;
  std::string last_checkpoint;
  std::function<void(const SerialEvaluation&)> on_evaluation;
  std::function<void()> on_step;  // after each collect and each step of an evaluation; may throw
};

struct SerialResult {
  bool solved = false;  // the last evaluation reached config.stop_value
  std::int64_t env_step = 0;
  std::int64_t train_iter = 0;
  SerialEvaluation last;  // the last evaluation
};

// Trains until the stop value, config.max_env_step or max_train_iter. Repeats exactly for a seed.
// Throws Error: a loss that is no number, a checkpoint that cannot be written; and what the
// functions throw.
SerialResult train_serially(const SerialOptions& options);

}  // namespace divisi::rl
