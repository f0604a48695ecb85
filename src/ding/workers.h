// The modules that run until they are ended: coordinator, collector, learner, aggregator.
#pragma once

#include "base/status.h"
#include "ding/options.h"

namespace divisi::ding {

// Blocks. The exit code of the process, or why it could not start.
Result<int> run_worker(const Options& options);

}  // namespace divisi::ding
