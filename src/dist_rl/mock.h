// A job that trains nothing: short tasks that go through every step of the protocol, to try a
// cluster without a configuration. Its workers are slow to get ready: a learner refuses its first
// start task after a second, a collector after almost two, so that the first collector task of a
// job waits for longer than the five seconds that it has.
#pragma once

#include "dist/commander.h"
#include "dist/task_handler.h"

#include <cstdint>
#include <memory>

namespace divisi::dist_rl {

struct MockOptions {
  std::int64_t data_records = 8;  // of the whole job; then it is done
  int task_ms = 600;              // a data task or a learn task
  int learner_refusals = 1;       // start tasks that a learner refuses
  int learner_refusal_ms = 1000;  // and how long it takes to do so
  int collector_refusals = 1;
  int collector_refusal_ms = 1700;
};

std::shared_ptr<dist::Commander> make_mock_commander(const MockOptions& options = {});
std::shared_ptr<dist::TaskHandler> make_mock_collector(const MockOptions& options = {});
std::shared_ptr<dist::TaskHandler> make_mock_learner(const MockOptions& options = {});

}  // namespace divisi::dist_rl
