// DqnCommander: what a coordinator trains: one policy, by one learner at a time and any number of
// collectors, which also evaluate it.
//
// A collector's task is short (a part of the evaluation interval), so that there is soon a
// collector for the next evaluation. Training is done when the mean return of an evaluation
// reaches the stop value, and has failed when max_env_step is reached before. A second coordinator
// of the same job goes on from the last checkpoint and counters, which are in the policy path;
// when a job is over they are renamed to *.final, so that the next one begins at 0.
//
// The interface has the rules of calls. On the loop, except for files, which a thread of its own
// writes and deletes.
#pragma once

#include "dist/commander.h"
#include "dist_rl/train_config.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace divisi::dist_rl {

struct DqnCommanderOptions {
  TrainConfig config{};
  std::string job = "job";  // the folder of its files: a plain name
  // The time that evaluation intervals are measured with; a test moves it.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

// Fails when the state of an earlier coordinator cannot be read, or `job` is no name.
Result<std::shared_ptr<dist::Commander>> make_dqn_commander(DqnCommanderOptions options);

}  // namespace divisi::dist_rl
