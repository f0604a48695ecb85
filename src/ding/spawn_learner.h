// `--module spawn_learner`: the learners of one pod.
#pragma once

#include "base/status.h"
#include "ding/options.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace divisi::ding {

// One process of a pod that trains in parallel.
struct LearnerProcess {
  std::vector<std::string> arguments{};
  std::map<std::string, std::optional<std::string>> environment{};
};

// One for each GPU of the pod: LOCAL_WORLD_SIZE of them, with RANK = START_RANK + local rank, the
// learner of rank r on LEARNER_PORT + r. None when LOCAL_WORLD_SIZE is absent or 0: the pod has one
// plain learner. Fails for variables that make no sense together.
Result<std::vector<LearnerProcess>> learner_processes(const Options& options);

// Starts `program` once for each, ends them all when one fails or this process is asked to end,
// and returns the exit code of the pod: 0 when all ended well or were asked to end.
int run_learners(const std::string& program, const std::vector<LearnerProcess>& processes);

}  // namespace divisi::ding
