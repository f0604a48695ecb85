// What --dry-run prints: the resolved configuration of every worker, as JSON.
#pragma once

#include "json/value.h"
#include "launch/options.h"
#include "launch/plan.h"
#include "runtime/worker_config.h"

namespace divisi::launch {

// A secret appears as "set" or "none", never as itself.
json::Value describe(const DitaskOptions& options, const std::string& main, const LaunchPlan& plan,
                     const std::vector<runtime::WorkerConfig>& workers);

}  // namespace divisi::launch
