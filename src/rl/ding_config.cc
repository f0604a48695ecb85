#include "rl/ding_config.h"

#include "base/nearest_name.h"
#include "divisi/error.h"
#include "rl/env.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <vector>

namespace divisi::rl {

// NOLINTNEXTLINE(misc-no-recursion): a document is at most 100 deep
std::string config_text(const json::Value& value) {
  if (const std::string* text = value.as_string()) return *text;
  if (const json::Array* items = value.as_array()) {
    std::vector<std::string> parts;
    for (const json::Value& item : *items) parts.push_back(config_text(item));
    return fmt::format("{}", fmt::join(parts, ","));
  }
  return json::print(value);
}

Status bad_value(const std::string& path, const json::Value& value, std::string_view expected) {
  return make_status(Code::kInvalid, "{}={}: expected {}", path, config_text(value), expected);
}

Status take_int(const json::Value& from, const std::string& name, json::Path path,
                std::int64_t least, std::int64_t most, int& to) {
  const json::Value* value = from.find_path(path);
  if (value == nullptr) return {};
  const std::int64_t* number = value->as_int();
  if (number == nullptr || *number < least || *number > most) {
    return bad_value(name, *value, fmt::format("a whole number from {} to {}", least, most));
  }
  to = static_cast<int>(*number);
  return {};
}

namespace {

// Keys of main_config that DqnConfig has under another or the same name.
struct Same {
  std::string_view key;
  std::string_view dqn;
};
constexpr std::array<Same, 28> kSame = {{
    {"exp_name", "exp_name"},
    {"seed", "seed"},
    {"max_env_step", "max_env_step"},
    {"env.env_id", "env.name"},
    {"env.collector_env_num", "env.collector_env_num"},
    {"env.evaluator_env_num", "env.evaluator_env_num"},
    {"env.n_evaluator_episode", "env.n_evaluator_episode"},
    {"env.stop_value", "env.stop_value"},
    {"policy.model.encoder_hidden_size_list", "policy.model.encoder_hidden_size_list"},
    {"policy.model.dueling", "policy.model.dueling"},
    {"policy.nstep", "policy.nstep"},
    {"policy.discount_factor", "policy.discount_factor"},
    {"policy.double_q", "policy.double_q"},
    {"policy.priority", "policy.priority"},
    {"policy.learn.batch_size", "policy.learn.batch_size"},
    {"policy.learn.learning_rate", "policy.learn.learning_rate"},
    {"policy.learn.update_per_collect", "policy.learn.update_per_collect"},
    {"policy.learn.target_update_freq", "policy.learn.target_update_freq"},
    {"policy.collect.n_sample", "policy.collect.n_sample"},
    {"policy.collect.n_sample_remote", "policy.collect.n_sample_remote"},
    {"policy.eval.evaluator.eval_freq", "policy.eval.evaluator.eval_freq"},
    {"policy.other.eps.type", "policy.other.eps.type"},
    {"policy.other.eps.start", "policy.other.eps.start"},
    {"policy.other.eps.end", "policy.other.eps.end"},
    {"policy.other.eps.decay", "policy.other.eps.decay"},
    {"policy.other.replay_buffer.replay_buffer_size",
     "policy.other.replay_buffer.replay_buffer_size"},
    {"policy.other.replay_buffer.samples_per_insert",
     "policy.other.replay_buffer.samples_per_insert"},
    {"checkpoint_seconds", "checkpoint_seconds"},
}};

// Keys (with all below them) that say how DI-engine's own classes are made, or how it runs
// environments and logs: they change nothing of what is learned here.
constexpr std::array<std::string_view, 25> kWithoutEffect = {{
    "env.manager",
    "env.collector_episode_num",
    "env.evaluator_episode_num",
    "env.type",
    "env.import_names",
    "env.cfg_type",
    "policy.type",
    "policy.cfg_type",
    "policy.on_policy",
    "policy.learn.learner",
    "policy.collect.collector",
    "policy.collect.cfg_type",
    "policy.eval.evaluator",
    "policy.other.commander",
    "policy.other.replay_buffer.type",
    "policy.other.replay_buffer.name",
    "policy.other.replay_buffer.cfg_type",
    "policy.other.replay_buffer.enable_track_used_data",
    "policy.other.replay_buffer.monitor",
    "policy.other.replay_buffer.thruput_controller",
    "policy.import_names",
    // What only the evaluation of a saved policy reads: which one, and where the video goes.
    "policy.load_path",
    "env.replay_path",
    // The tuner's own marks on a trial.
    "DI-toolkit-hpo-id",
    "DI-toolkit-scheduler-hpo-id",
}};

// Keys that have one value that can be honoured.
struct Fixed {
  std::string_view key;
  std::string_view value;  // as JSON
  std::string_view why;
};
constexpr std::array<Fixed, 11> kFixed = {{
    {"policy.cuda", "false", "this program trains on CPUs"},
    {"policy.priority_IS_weight", "false", "records are drawn without importance weights"},
    {"policy.learn.multi_gpu", "false",
     "learners of several GPUs are made by di-server (gpus > 1)"},
    {"policy.learn.ignore_done", "false", "the end of an episode always counts"},
    {"policy.learn.weight_decay", "0", "Adam is without weight decay here"},
    {"policy.collect.unroll_len", "1", "transitions are single"},
    {"policy.learn.learner.hook.load_ckpt_before_run", "\"\"", "a run begins with new weights"},
    {"policy.model.dropout", "null", "the network here is without dropout"},
    {"policy.model.noise", "false", "exploration is by policy.other.eps"},
    {"policy.random_collect_size", "0", "exploration begins with policy.other.eps.start"},
    {"env.frame_stack", "1", "the environments here are not images"},
}};

bool is_below(std::string_view path, std::string_view key) {
  return path == key || (path.starts_with(key) && path[key.size()] == '.');
}

using Visit = std::function<Status(const std::string& path, const json::Value& value)>;

// Calls `visit` for every value that is no object, and for empty objects.
// NOLINTNEXTLINE(misc-no-recursion): a document of the pickle reader is at most 100 deep
Status for_each_leaf(const json::Value& value, const std::string& path, const Visit& visit) {
  const json::Object* members = value.as_object();
  if (members == nullptr) return visit(path, value);
  for (const auto& [name, member] : *members) {
    DIVISI_TRY_STATUS(
        for_each_leaf(member, path.empty() ? name : fmt::format("{}.{}", path, name), visit));
  }
  return {};
}

// The names of the same place: "; policy.learn has a, b".
std::string beside(const std::string& path, const std::vector<std::string>& names) {
  const std::size_t dot = path.rfind('.');
  const std::string place = dot == std::string::npos ? "" : path.substr(0, dot + 1);
  std::vector<std::string> there;
  for (const std::string& name : names) {
    if (!name.starts_with(place)) continue;
    const std::string rest = name.substr(place.size());
    const std::string next = rest.substr(0, rest.find('.'));
    if (std::ranges::find(there, next) == there.end()) there.push_back(next);
  }
  if (there.empty()) return "";
  return fmt::format("; {} has {}", place.empty() ? "it" : place.substr(0, place.size() - 1),
                     fmt::join(there, ", "));
}

Status unknown_key(const std::string& path) {
  std::vector<std::string> names;
  for (const Same& same : kSame) names.emplace_back(same.key);
  for (const Fixed& fixed : kFixed) names.emplace_back(fixed.key);
  for (const std::string_view key : kWithoutEffect) names.emplace_back(key);
  return make_status(Code::kInvalid, "main_config.{}: this key is not known here{}{}", path,
                     did_you_mean(path, names), beside(path, names));
}

Status set_dqn(DqnConfig& config, const std::string& path, std::string_view key,
               const json::Value& value) {
  try {
    config.set(key, config_text(value));
  } catch (const UsageError& error) {
    return make_status(Code::kInvalid, "main_config.{}: {}", path, error.what());
  }
  return {};
}

Status read_leaf(DqnConfig& config, const std::string& path, const json::Value& value) {
  for (const Same& same : kSame) {
    if (path == same.key) return set_dqn(config, path, same.dqn, value);
  }
  for (const Fixed& fixed : kFixed) {
    if (path != fixed.key) continue;
    const auto wanted = json::parse(fixed.value);
    if (json::equivalent(value, *wanted)) return {};
    return make_status(Code::kInvalid, "main_config.{}={}: only {} can be honoured: {}", path,
                       config_text(value), fixed.value, fixed.why);
  }
  for (const std::string_view key : kWithoutEffect) {
    if (is_below(path, key)) return {};
  }
  if (is_below(path, "policy.model.obs_shape") || is_below(path, "policy.model.action_shape")) {
    return {};  // compared with the environment below
  }
  return unknown_key(path);
}

// The environment by its id, or by DI-engine's type of environment where there is no id.
Status read_environment(DqnConfig& config, const json::Value& main, const json::Value& create) {
  const json::Value* id = main.find_path({"env", "env_id"});
  const std::string type(create.string_at({"env", "type"}));
  if (id == nullptr) {
    if (type == "cartpole") {
      config.env_name = "CartPole-v1";
    } else if (type == "pendulum") {
      config.env_name = "Pendulum-v1";
    } else if (!type.empty()) {
      return make_status(Code::kInvalid,
                         "create_config.env.type={}: this environment is not here; there are {}",
                         type, fmt::join(env_names(), ", "));
    }
  }
  const auto names = env_names();
  if (std::ranges::find(names, config.env_name) == names.end()) {
    return make_status(Code::kInvalid,
                       "main_config.env.env_id={}: this environment is not here; "
                       "there are {}",
                       config.env_name, fmt::join(names, ", "));
  }
  return {};
}

// obs_shape 4, [4] and action_shape 2 as the environment has them.
Status check_shape(const json::Value& main, std::string_view key, int expected,
                   const std::string& env) {
  const json::Value* shape = main.find_path({"policy", "model", key});
  if (shape == nullptr) return {};
  const std::string text = config_text(*shape);
  if (text == std::to_string(expected)) return {};
  return make_status(Code::kInvalid, "main_config.policy.model.{}={}: {} has {}", key, text, env,
                     expected);
}

Status check_together(const DqnConfig& config, const json::Value& main) {
  try {
    config.check();
    const auto env = make_env(config.env_name, 1, 0);
    DIVISI_TRY_STATUS(check_shape(main, "obs_shape", env->observation_size(), config.env_name));
    DIVISI_TRY_STATUS(check_shape(main, "action_shape", env->action_count(), config.env_name));
  } catch (const UsageError& error) {
    return make_status(Code::kInvalid, "main_config: {}", error.what());
  }
  return {};
}

// Numbers that follow from others where they are not given themselves.
Status derive(DqnConfig& config, const json::Value& main) {
  int episodes = 1;  // of each environment of an evaluation
  DIVISI_TRY_STATUS(take_int(main, "main_config.env.evaluator_episode_num",
                             {"env", "evaluator_episode_num"}, 1, 1000, episodes));
  if (main.find_path({"env", "n_evaluator_episode"}) == nullptr) {
    config.n_evaluator_episode = config.evaluator_env_num * episodes;
  }
  const bool paced =
      main.find_path({"policy", "other", "replay_buffer", "samples_per_insert"}) != nullptr;
  if (!paced && main.find_path({"policy", "learn", "update_per_collect"}) != nullptr) {
    config.samples_per_insert =
        static_cast<double>(config.batch_size) * config.update_per_collect / config.n_sample;
  }
  // DI-engine's jobs of this kind train until the stop value, however long that takes.
  if (main.find("max_env_step") == nullptr) {
    config.max_env_step = std::numeric_limits<std::int64_t>::max();
  }
  return {};
}

Status read_main(DqnConfig& config, const json::Value& main, const json::Value& create) {
  // Before the other keys: for another environment's configuration this is what has to be said.
  if (const std::string_view id = main.string_at({"env", "env_id"}); !id.empty()) {
    config.env_name = id;
  }
  DIVISI_TRY_STATUS(read_environment(config, main, create));
  DIVISI_TRY_STATUS(for_each_leaf(main, "", [&](const std::string& path, const json::Value& value) {
    return read_leaf(config, path, value);
  }));
  DIVISI_TRY_STATUS(derive(config, main));
  return check_together(config, main);
}

// What a create_config names, beside env: parts of DI-engine that this program has one of.
constexpr std::array<std::string_view, 6> kParts = {
    {"env_manager", "learner", "collector", "evaluator", "commander", "world_model"}};
constexpr std::array<std::string_view, 4> kBuffers = {{"deque", "naive", "advanced", "priority"}};

bool is_leaf_of_part(std::string_view path, std::string_view part) {
  return path == fmt::format("{}.type", part) || path == fmt::format("{}.import_names", part) ||
         path == fmt::format("{}.cfg_type", part);
}

Status check_create_leaf(const std::string& path, const json::Value& value) {
  const std::string text = config_text(value);
  if (path == "policy.type") {
    if (text == "dqn" || text == "dqn_command") return {};
    return make_status(Code::kInvalid,
                       "create_config.policy.type={}: this algorithm is not here; there is dqn",
                       text);
  }
  if (path == "replay_buffer.type") {
    if (std::ranges::find(kBuffers, text) != kBuffers.end()) return {};
    return make_status(Code::kInvalid,
                       "create_config.replay_buffer.type={}: this replay buffer is not here; for "
                       "{} there is one of its kind",
                       text, fmt::join(kBuffers, ", "));
  }
  std::vector<std::string> names;
  for (const std::string_view part :
       {std::string_view("env"), std::string_view("policy"), std::string_view("replay_buffer")}) {
    if (is_leaf_of_part(path, part)) return {};
    names.push_back(fmt::format("{}.type", part));
  }
  for (const std::string_view part : kParts) {
    if (is_leaf_of_part(path, part)) return {};
    names.push_back(fmt::format("{}.type", part));
  }
  return make_status(Code::kInvalid, "create_config.{}: this key is not known here{}", path,
                     did_you_mean(path, names));
}

}  // namespace

Result<DqnConfig> read_ding_config(const json::Value& main, const json::Value& create,
                                   std::string exp_name) {
  DqnConfig config;
  config.exp_name = std::move(exp_name);
  if (Status status = read_main(config, main, create); !status.ok()) {
    return failure(std::move(status));
  }
  return config;
}

Status check_ding_create(const json::Value& create) {
  if (create.string_at({"policy", "type"}).empty()) {
    return make_status(Code::kInvalid, "create_config.policy.type is missing: 'dqn' is known here");
  }
  return for_each_leaf(create, "", check_create_leaf);
}

}  // namespace divisi::rl
