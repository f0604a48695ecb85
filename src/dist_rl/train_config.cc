#include "dist_rl/train_config.h"

#include "rl/ding_config.h"

#include <utility>

namespace divisi::dist_rl {

namespace {

Status take_seconds(const json::Value& from, const std::string& name, json::Path path, double& to) {
  const json::Value* value = from.find_path(path);
  if (value == nullptr) return {};
  const double seconds = value->as_int() != nullptr      ? static_cast<double>(*value->as_int())
                         : value->as_double() != nullptr ? *value->as_double()
                                                         : -1;
  if (!(seconds >= 0 && seconds <= 1e6)) return rl::bad_value(name, *value, "seconds, 0 or more");
  to = seconds;
  return {};
}

Status take_text(const json::Value& from, const std::string& name, json::Path path,
                 std::string& to) {
  const json::Value* value = from.find_path(path);
  if (value == nullptr) return {};
  const std::string* text = value->as_string();
  if (text == nullptr || text->empty() || text->find('\0') != std::string::npos) {
    return rl::bad_value(name, *value, "a text");
  }
  to = *text;
  return {};
}

Status read_commander(TrainConfig& config, const json::Value& main) {
  const std::string place = "main_config.policy.other.commander.";
  DIVISI_TRY_STATUS(rl::take_int(main, place + "collector_task_space",
                                 {"policy", "other", "commander", "collector_task_space"}, 0,
                                 10'000, config.collector_task_space));
  int learners = 1;
  DIVISI_TRY_STATUS(rl::take_int(main, place + "learner_task_space",
                                 {"policy", "other", "commander", "learner_task_space"}, 0, 10'000,
                                 learners));
  if (learners > 1) {
    return make_status(Code::kInvalid,
                       "{}learner_task_space={}: one policy is trained at a time; further learners "
                       "take over when it is lost",
                       place, learners);
  }
  DIVISI_TRY_STATUS(take_seconds(main, place + "eval_interval",
                                 {"policy", "other", "commander", "eval_interval"},
                                 config.eval_interval));
  return rl::take_int(main, "main_config.policy.learn.learner.send_policy_freq",
                      {"policy", "learn", "learner", "send_policy_freq"}, 1, 1'000'000,
                      config.send_policy_freq);
}

Status read_size(const json::Value& request, std::string_view role, dist::Size& size) {
  const json::Value* found = request.find(role);
  if (found == nullptr || found->is_null()) return {};
  const std::string place =
      fmt::format("system_config.coordinator.operator_server.init_replicas_request.{}", role);
  if (found->as_object() == nullptr) return rl::bad_value(place, *found, "a dict");
  for (const auto& [name, value] : *found->as_object()) {
    if (name == "replicas") {
      const std::int64_t* count = value.as_int();
      if (count == nullptr || *count < 0 || *count > 100'000) {
        return rl::bad_value(place + ".replicas", value, "a whole number from 0 to 100000");
      }
      size.replicas = *count;
    } else if (name == "cpus") {
      size.cpus = value;
    } else if (name == "gpus") {
      size.gpus = value;
    } else if (name == "memory") {
      size.memory = value;
    } else {
      return make_status(Code::kInvalid,
                         "{}.{}: this key is not known: replicas, cpus, gpus, memory", place, name);
    }
  }
  return {};
}

Status read_operator_server(TrainConfig& config, const json::Value& coordinator) {
  const json::Value* server = coordinator.find("operator_server");
  if (server == nullptr || server->is_null()) return {};
  const std::string place = "system_config.coordinator.operator_server";
  if (server->as_object() == nullptr) return rl::bad_value(place, *server, "a dict");
  DIVISI_TRY_STATUS(take_text(*server, place + ".system_addr", {"system_addr"}, config.server));
  DIVISI_TRY_STATUS(
      take_text(*server, place + ".api_version", {"api_version"}, config.api_version));
  if (const json::Value* request = server->find("init_replicas_request")) {
    DIVISI_TRY_STATUS(read_size(*request, "collectors", config.demand.collectors));
    DIVISI_TRY_STATUS(read_size(*request, "learners", config.demand.learners));
  }
  config.collector_target =
      static_cast<int>(std::max<std::int64_t>(1, config.demand.collectors.replicas));
  config.learner_target =
      static_cast<int>(std::max<std::int64_t>(1, config.demand.learners.replicas));
  DIVISI_TRY_STATUS(rl::take_int(*server, place + ".collector_target_num", {"collector_target_num"},
                                 1, 100'000, config.collector_target));
  return rl::take_int(*server, place + ".learner_target_num", {"learner_target_num"}, 1, 100'000,
                      config.learner_target);
}

// Workers of a job without di-server: {"name": ["name", "host", port]}, or a list of "host:port".
Status read_workers(const json::Value& coordinator, std::string_view role,
                    std::vector<std::string>& workers) {
  const json::Value* found = coordinator.find(role);
  if (found == nullptr) return {};
  const std::string place = fmt::format("system_config.coordinator.{}", role);
  if (const json::Array* list = found->as_array()) {
    for (const json::Value& item : *list) {
      if (item.as_string() == nullptr) return rl::bad_value(place, item, "texts 'host:port'");
      workers.push_back(*item.as_string());
    }
    return {};
  }
  if (found->as_object() == nullptr) return rl::bad_value(place, *found, "a dict or a list");
  for (const auto& [name, entry] : *found->as_object()) {
    const json::Array* parts = entry.as_array();
    if (parts == nullptr || parts->size() != 3 || (*parts)[1].as_string() == nullptr ||
        (*parts)[2].as_int() == nullptr) {
      return rl::bad_value(fmt::format("{}.{}", place, name), entry, "[name, host, port]");
    }
    workers.push_back(fmt::format("{}:{}", *(*parts)[1].as_string(), *(*parts)[2].as_int()));
  }
  return {};
}

Status take_port(const json::Value& system, std::string_view role, std::uint16_t& port) {
  int number = port;
  DIVISI_TRY_STATUS(rl::take_int(system, fmt::format("system_config.{}.port", role), {role, "port"},
                                 1, 65'535, number));
  port = static_cast<std::uint16_t>(number);
  return {};
}

Status read_system(TrainConfig& config, const json::Value& system) {
  DIVISI_TRY_STATUS(take_text(system, "system_config.path_data", {"path_data"}, config.path_data));
  DIVISI_TRY_STATUS(
      take_text(system, "system_config.path_policy", {"path_policy"}, config.path_policy));
  if (const json::Value* mode = system.find("communication_mode");
      mode != nullptr && rl::config_text(*mode) != "auto") {
    return rl::bad_value("system_config.communication_mode", *mode, "auto");
  }
  for (const auto& [role, port] : {std::pair{"coordinator", &config.coordinator_port},
                                   std::pair{"collector", &config.collector_port},
                                   std::pair{"learner", &config.learner_port}}) {
    DIVISI_TRY_STATUS(take_port(system, role, *port));
  }
  const json::Value* coordinator = system.find("coordinator");
  if (coordinator == nullptr) return {};
  DIVISI_TRY_STATUS(read_operator_server(config, *coordinator));
  DIVISI_TRY_STATUS(read_workers(*coordinator, "collector", config.collectors));
  return read_workers(*coordinator, "learner", config.learners);
}

Status read_all_of(TrainConfig& config, const json::Value& document) {
  const json::Value* main = document.find("main");
  const json::Value* system = document.find("system");
  if (main == nullptr || system == nullptr) {
    return make_status(Code::kInvalid, "the configuration has no 'main' or no 'system'");
  }
  const json::Value* create = document.find("create");
  auto dqn = rl::read_ding_config(*main, create == nullptr ? json::Value() : *create, "job");
  if (!dqn) return dqn.error();
  config.dqn = *std::move(dqn);
  DIVISI_TRY_STATUS(read_commander(config, *main));
  return read_system(config, *system);
}

}  // namespace

Result<TrainConfig> read_train_config(const json::Value& document, std::int64_t seed) {
  TrainConfig config;
  if (Status status = read_all_of(config, document); !status.ok())
    return failure(std::move(status));
  config.dqn.seed = seed;
  return config;
}

}  // namespace divisi::dist_rl
