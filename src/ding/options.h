// The command line of `ding`: what DI-engine's command of that name takes with -m dist.
#pragma once

#include "base/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::ding {

enum class Module {
  kNone,  // --add, --delete or --restart
  kConfig,
  kCoordinator,
  kCollector,
  kLearner,
  kAggregator,
  kSpawnLearner,
};

enum class Action { kNone, kAdd, kDelete, kRestart };

struct Options {
  bool help = false;
  bool version = false;
  Module module = Module::kNone;
  std::string config{};
  std::int64_t seed = 0;
  std::string platform = "local";  // or "k8s"
  bool mock = false;               // a job that trains nothing, of short tasks

  std::string coordinator_host = "0.0.0.0";
  std::string learner_host = "0.0.0.0";
  std::string collector_host = "0.0.0.0";
  std::string aggregator_host = "0.0.0.0";
  std::optional<std::uint16_t> coordinator_port{};
  std::optional<std::uint16_t> learner_port{};
  std::optional<std::uint16_t> collector_port{};
  std::optional<std::uint16_t> aggregator_port{};
  std::string module_name{};  // of the part of the configuration's `system` to use

  // Of the helper that speaks to di-server.
  Action action = Action::kNone;
  std::string role{};  // "collector" or "learner"
  std::string server{};
  std::string coordinator_name{};
  std::string space{};  // --namespace
  std::int64_t replicas = 1;
  std::int64_t cpus = 0;
  std::int64_t gpus = 0;
  std::string memory{};
  std::string restart_pod{};
};

// `arguments` without the program's name. With `dist_only` the mode need not be given (divisi
// dist). A failure is one line for people, kInvalid.
Result<Options> parse_options(const std::vector<std::string>& arguments, bool dist_only);

// "usage: ..."; `program` is "ding -m dist" or "divisi dist".
std::string help_text(std::string_view program);

// The port for a role: the flag, else the variable (`COLLECTOR_PORT`), else `otherwise`. Fails for
// a variable that is no port.
Result<std::uint16_t> choose_port(const std::optional<std::uint16_t>& flag, const char* variable,
                                  std::uint16_t otherwise);

// A whole number of the environment; `otherwise` when the variable is absent or empty.
Result<std::int64_t> integer_variable(const char* name, std::int64_t otherwise);

}  // namespace divisi::ding
