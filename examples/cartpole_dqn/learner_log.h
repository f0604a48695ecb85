// What the learner writes down while it trains: log.jsonl for the display and for people, and the
// same figures for TensorBoard.
#pragma once

#include "divisi/context.h"
#include "divisi/exchange.h"
#include "divisi/middleware.h"
#include "divisi/writer.h"
#include "rl/exploration.h"
#include "run_folder.h"

#include <memory>
#include <string>

namespace cartpole {

struct LearnerLogOptions {
  RunFolder folder;
  double stop_value = 195;
  std::int64_t max_env_step = 0;
  divisi::rl::EpsilonSchedule schedule;
  std::shared_ptr<divisi::ModelVersion> sent;  // of the weights
  std::shared_ptr<divisi::MetricLogger> metrics;
  double seconds_before = 0;  // of earlier lives of this run
};

// The last middleware of a learner's pipeline. Writes a line for each evaluation and each second,
// and result.json when the run is over.
divisi::Middleware learner_log(LearnerLogOptions options);

// How long the run had taken when its last line was written.
double seconds_logged(const RunFolder& folder);

}  // namespace cartpole
