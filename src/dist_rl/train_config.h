// TrainConfig: a configuration in DI-engine's layout, as far as a first-generation job uses it.
#pragma once

#include "base/status.h"
#include "dist/di_server_client.h"
#include "json/value.h"
#include "rl/config.h"

#include <cstdint>
#include <string>
#include <vector>

namespace divisi::dist_rl {

struct TrainConfig {
  rl::DqnConfig dqn{};

  // Shared by all processes of the job; each job has a folder of its own below.
  std::string path_data = "./data";
  std::string path_policy = "./policy";

  std::string server{};       // operator_server.system_addr; empty: workers are listed below
  std::string api_version{};  // "/v1alpha1"
  dist::Demand demand{};
  int collector_target = 1;
  int learner_target = 1;
  std::vector<std::string> collectors{};  // "host:port"
  std::vector<std::string> learners{};

  int collector_task_space = 0;  // 0: as many as there are collectors
  double eval_interval = 5;      // seconds between two evaluations
  int send_policy_freq = 1;      // updates between two policy files, at least
  std::uint16_t coordinator_port = 22'273;
  std::uint16_t collector_port = 22'270;
  std::uint16_t learner_port = 22'271;
};

// Reads the document of `--module config` (main, create, system). A key that is not known, or a
// value that this program cannot honour, is kInvalid with its name. `seed` is the command line's;
// it counts more than the document's.
Result<TrainConfig> read_train_config(const json::Value& document, std::int64_t seed);

}  // namespace divisi::dist_rl
