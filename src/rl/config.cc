#include "rl/config.h"

#include "base/nearest_name.h"
#include "divisi/error.h"
#include "json/value.h"
#include "rl/env.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <variant>

namespace divisi::rl {

namespace {

using Field = std::variant<std::string DqnConfig::*, int DqnConfig::*, std::int64_t DqnConfig::*,
                           double DqnConfig::*, bool DqnConfig::*, std::vector<int> DqnConfig::*>;

struct Key {
  std::string_view name;
  Field field;
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
};

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

const std::vector<Key>& keys() {
  static const std::vector<Key> all = {
      {"exp_name", &DqnConfig::exp_name},
      {"seed", &DqnConfig::seed, 0},
      {"env.name", &DqnConfig::env_name},
      {"env.collector_env_num", &DqnConfig::collector_env_num, 1, 65'536},
      {"env.evaluator_env_num", &DqnConfig::evaluator_env_num, 1, 65'536},
      {"env.n_evaluator_episode", &DqnConfig::n_evaluator_episode, 1, 1e6},
      {"env.stop_value", &DqnConfig::stop_value},
      {"policy.model.encoder_hidden_size_list", &DqnConfig::hidden, 1, 65'536},
      {"policy.model.dueling", &DqnConfig::dueling},
      {"policy.nstep", &DqnConfig::nstep, 1, 1000},
      {"policy.discount_factor", &DqnConfig::discount, 0, 1},
      {"policy.double_q", &DqnConfig::double_q},
      {"policy.priority", &DqnConfig::priority},
      {"policy.learn.batch_size", &DqnConfig::batch_size, 1, 65'536},
      {"policy.learn.learning_rate", &DqnConfig::learning_rate, 0, 1},
      {"policy.learn.update_per_collect", &DqnConfig::update_per_collect, 1, 10'000},
      {"policy.learn.target_update_freq", &DqnConfig::target_update_freq, 1, 1e6},
      {"policy.learn.publish_freq", &DqnConfig::publish_freq, 1, 1e6},
      {"policy.collect.n_sample", &DqnConfig::n_sample, 1, 65'536},
      {"policy.collect.n_sample_remote", &DqnConfig::n_sample_remote, 1, 65'536},
      {"policy.collect.max_staleness", &DqnConfig::max_staleness, 0},
      {"policy.eval.evaluator.eval_freq", &DqnConfig::eval_freq, 1, 1e6},
      {"policy.other.eps.type", &DqnConfig::eps_type},
      {"policy.other.eps.start", &DqnConfig::eps_start, 0, 1},
      {"policy.other.eps.end", &DqnConfig::eps_end, 0, 1},
      {"policy.other.eps.decay", &DqnConfig::eps_decay, 1},
      {"policy.other.replay_buffer.replay_buffer_size", &DqnConfig::replay_buffer_size, 1, 1e8},
      {"policy.other.replay_buffer.samples_per_insert", &DqnConfig::samples_per_insert, 0, 1e6},
      {"max_env_step", &DqnConfig::max_env_step, 1},
      {"checkpoint_seconds", &DqnConfig::checkpoint_seconds, 0, 1e6},
  };
  return all;
}

const Key& find_key(std::string_view name) {
  std::vector<std::string> names;
  for (const Key& key : keys()) {
    if (key.name == name) return key;
    names.emplace_back(key.name);
  }
  throw UsageError(
      fmt::format("there is no configuration key '{}'{}", name, did_you_mean(name, names)));
}

[[noreturn]] void refuse(const Key& key, std::string_view value, std::string_view expected) {
  throw UsageError(fmt::format("{}={}: expected {}", key.name, value, expected));
}

void check_range(const Key& key, double number, std::string_view value) {
  if (number >= key.least && number <= key.most) return;
  if (key.most == kNoLimit) refuse(key, value, fmt::format("{} or more", key.least));
  refuse(key, value, fmt::format("a number from {} to {}", key.least, key.most));
}

template <class T>
T parse_number(const Key& key, std::string_view value) {
  T number{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) {
    refuse(key, value, std::is_integral_v<T> ? "a whole number" : "a number");
  }
  if (!std::isfinite(static_cast<double>(number))) refuse(key, value, "a number");
  check_range(key, static_cast<double>(number), value);
  return number;
}

// "128,128,64", also in brackets.
std::vector<int> parse_list(const Key& key, std::string_view value) {
  std::string_view rest = value;
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  std::vector<int> numbers;
  while (true) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string_view item = rest.substr(0, comma);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    numbers.push_back(parse_number<int>(key, item));
    if (comma == rest.size()) return numbers;
    rest.remove_prefix(comma + 1);
  }
}

bool parse_bool(const Key& key, std::string_view value) {
  if (value == "true" || value == "True" || value == "1") return true;
  if (value == "false" || value == "False" || value == "0") return false;
  refuse(key, value, "true or false");
}

std::string to_text(const json::Value& value, const std::string& key, const std::string& origin) {
  if (const auto* const text = value.as_string()) return *text;
  if (const auto* const items = value.as_array()) {
    std::vector<std::string> parts;
    for (const auto& item : *items) parts.push_back(to_text(item, key, origin));
    return fmt::format("{}", fmt::join(parts, ","));
  }
  if (value.is_null() || value.as_object() != nullptr) {
    throw UsageError(fmt::format("{}: '{}' cannot be {}", origin, key, value.kind()));
  }
  return json::print(value);
}

}  // namespace

void DqnConfig::set(std::string_view name, std::string_view value) {
  const Key& key = find_key(name);
  std::visit(
      [&](auto member) {
        auto& field = this->*member;
        using T = std::remove_reference_t<decltype(field)>;
        if constexpr (std::is_same_v<T, std::string>) {
          field = value;
        } else if constexpr (std::is_same_v<T, bool>) {
          field = parse_bool(key, value);
        } else if constexpr (std::is_same_v<T, std::vector<int>>) {
          field = parse_list(key, value);
        } else {
          field = parse_number<T>(key, value);
        }
      },
      key.field);
}

void DqnConfig::load_json(std::string_view text, const std::string& origin) {
  const auto parsed = json::parse(text);
  if (!parsed) throw UsageError(fmt::format("{}: {}", origin, parsed.error().message()));
  const std::function<void(const json::Value&, const std::string&)> visit =
      [&](const json::Value& value, const std::string& path) {
        const auto* const members = value.as_object();
        if (members == nullptr) {
          try {
            set(path, to_text(value, path, origin));
          } catch (const UsageError& error) {
            throw UsageError(fmt::format("{}: {}", origin, error.what()));
          }
          return;
        }
        for (const auto& [name, member] : *members) {
          visit(member, path.empty() ? name : fmt::format("{}.{}", path, name));
        }
      };
  if (parsed->as_object() == nullptr) {
    throw UsageError(
        fmt::format("{}: expected an object of keys, found {}", origin, parsed->kind()));
  }
  visit(*parsed, "");
}

void DqnConfig::check() const {
  const auto env = make_env(env_name, 1, 0);
  if (env->action_count() == 0) {
    throw UsageError(fmt::format(
        "env.name={}: its actions are continuous, DQN needs a choice of actions; try CartPole-v1",
        env_name));
  }
  if (eps_type != "exp" && eps_type != "linear") {
    throw UsageError(fmt::format("policy.other.eps.type={}: expected exp or linear", eps_type));
  }
  if (!(learning_rate > 0)) {
    throw UsageError("policy.learn.learning_rate=0: expected a number above 0, 1 at most");
  }
  if (!(discount > 0)) {
    throw UsageError("policy.discount_factor=0: expected a number above 0, 1 at most");
  }
  if (replay_buffer_size < batch_size) {
    throw UsageError(fmt::format(
        "policy.other.replay_buffer.replay_buffer_size={} is less than policy.learn.batch_size={}",
        replay_buffer_size, batch_size));
  }
  if (exp_name.empty() || exp_name.find('\0') != std::string::npos) {
    throw UsageError("exp_name is empty: it names the folder of the run");
  }
}

std::string DqnConfig::to_json() const {
  json::Object all;
  for (const Key& key : keys()) {
    all.emplace_back(key.name, std::visit(
                                   [this](auto member) -> json::Value {
                                     const auto& field = this->*member;
                                     if constexpr (requires { json::Value(field); }) {
                                       return field;
                                     } else {
                                       return json::Array(field.begin(), field.end());
                                     }
                                   },
                                   key.field));
  }
  return json::print(json::Value(std::move(all)));
}

std::vector<std::pair<std::string, std::string>> DqnConfig::entries() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Key& key : keys()) {
    std::string text = std::visit(
        [&](auto member) {
          const auto& field = this->*member;
          if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field)>, std::vector<int>>) {
            return fmt::format("{}", fmt::join(field, ","));
          } else {
            return fmt::format("{}", field);
          }
        },
        key.field);
    all.emplace_back(key.name, std::move(text));
  }
  return all;
}

}  // namespace divisi::rl
