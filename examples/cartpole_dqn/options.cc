#include "options.h"

#include "base/nearest_name.h"
#include "divisi/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

namespace cartpole {

using divisi::UsageError;

namespace {

const std::vector<std::string> kRoles = {"replay", "learner", "collector", "evaluator"};

[[noreturn]] void refuse(const std::string& text) {
  throw UsageError(text + " (see --help)");
}

int to_int(const std::string& flag, const std::string& text, int least, int most) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most) {
    refuse(fmt::format("{} {}: expected a number from {} to {}", flag, text, least, most));
  }
  return number;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

void check_role(const std::string& role) {
  for (const auto& known : kRoles) {
    if (role == known) return;
  }
  refuse(fmt::format("there is no role '{}'{}", role, divisi::did_you_mean(role, kRoles)));
}

void check_roles(const std::vector<std::string>& roles) {
  std::map<std::string, int> count;
  for (const auto& role : roles) {
    check_role(role);
    ++count[role];
  }
  for (const char* const needed : {"replay", "learner", "collector", "evaluator"}) {
    if (count[needed] == 0) refuse(fmt::format("--roles needs at least one {}", needed));
  }
  for (const char* const single : {"replay", "learner"}) {
    if (count[single] > 1) refuse(fmt::format("--roles takes one {} only", single));
  }
}

void load_config(divisi::rl::DqnConfig& config, const std::string& path) {
  std::ifstream file(path);
  if (!file) throw UsageError(fmt::format("--config {}: cannot be read", path));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  config.load_json(text, path);
}

void use_preset(divisi::rl::DqnConfig& config, const std::string& name) {
  if (name == "short") return;
  if (name != "long") refuse(fmt::format("--preset {}: expected short or long", name));
  // Looks further ahead, trains less on each transition and explores less, so that it gets there.
  config.stop_value = 475;
  config.discount = 0.99;
  config.nstep = 5;
  config.batch_size = 128;
  config.update_per_collect = 1;
  config.learning_rate = 0.0005;
  config.eps_end = 0.05;
  config.eps_decay = 4000;
  config.samples_per_insert = 16;
}

}  // namespace

std::string usage() {
  return R"(usage: cartpole_dqn [options] [key=value ...]

Trains a DQN on CartPole-v1, by default in five processes: a replay, a learner, two collectors and an
evaluator. Shows the return as it grows, stops when the mean of the evaluation episodes reaches 195,
and leaves checkpoints, logs and the curve in a folder under runs/.

  cartpole_dqn                                   five processes
  cartpole_dqn --alone                           one process
  cartpole_dqn --parallel-workers 4              node 0 learns and holds the replay, node 1 evaluates
  cartpole_dqn --preset long --seed 7            until 475
  cartpole_dqn policy.learn.batch_size=128       any key of the configuration (--show-config)
  cartpole_dqn --run-folder runs/mine            goes on with a run that was interrupted

one process of a job over tcp, each started by hand, maybe on another host:
  cartpole_dqn --role replay --node-id 0 --port 50515
  cartpole_dqn --role learner --node-id 1 --port 50516 --attach-to tcp://127.0.0.1:50515
  cartpole_dqn --role collector --node-id 2 --port 50517 --attach-to tcp://127.0.0.1:50515,tcp://127.0.0.1:50516

options
  --alone                   everything in this process
  --parallel-workers N      N processes
  --roles LIST              one process for each role of the list: replay, learner, collector, evaluator
  --role ROLE               be one process of a job; the folder of the run must be shared
  --node-id N --address HOST --port PORT --attach-to ADDRESS,...    with --role
  --preset short|long       stop at 195 (default) or at 475, with values that learn steadily
  --seed N                  the same as seed=N
  --config FILE             a JSON file of keys
  --run-folder DIR          where everything goes; a run that is there and not over goes on, as
                            its config.json says and with what is given here instead
  --resume                  go on even if it is over
  --no-display              no progress on the terminal
  --show-config             print all keys and their values
  --help                    this
)";
}

Options parse(const std::vector<std::string>& args, Options base) {
  Options options = std::move(base);
  bool seed_named = false;
  std::size_t i = 0;
  const auto value = [&](const std::string& flag) {
    if (i + 1 >= args.size()) refuse(flag + " needs a value");
    return args[++i];
  };
  const std::map<std::string, std::function<void(const std::string&)>> flags = {
      {"--alone", [&](const auto&) { options.mode = Mode::kAlone; }},
      {"--parallel-workers",
       [&](const auto& flag) {
         options.parallel_workers = to_int(flag, value(flag), 1, 1024);
         options.mode = Mode::kJob;
       }},
      {"--roles",
       [&](const auto& flag) {
         options.roles = split(value(flag));
         check_roles(options.roles);
         options.parallel_workers = 0;
         options.mode = Mode::kJob;
       }},
      {"--role",
       [&](const auto& flag) {
         options.role = value(flag);
         check_role(options.role);
         options.mode = Mode::kNode;
       }},
      {"--node-id",
       [&](const auto& flag) { options.node_id = to_int(flag, value(flag), 0, 1 << 20); }},
      {"--address", [&](const auto& flag) { options.address = value(flag); }},
      {"--port", [&](const auto& flag) { options.port = to_int(flag, value(flag), 1, 65'535); }},
      {"--attach-to", [&](const auto& flag) { options.attach_to = split(value(flag)); }},
      {"--preset", [&](const auto& flag) { use_preset(options.config, value(flag)); }},
      {"--seed",
       [&](const auto& flag) {
         options.config.set("seed", value(flag));
         seed_named = true;
       }},
      {"--config", [&](const auto& flag) { load_config(options.config, value(flag)); }},
      {"--runs", [&](const auto& flag) { options.runs = value(flag); }},
      {"--run-folder", [&](const auto& flag) { options.run_folder = value(flag); }},
      {"--resume", [&](const auto&) { options.resume = true; }},
      {"--config-saved", [&](const auto&) { options.config_saved = true; }},
      {"--no-display", [&](const auto&) { options.display = false; }},
      {"--show-config", [&](const auto&) { options.show_config = true; }},
      {"--help", [&](const auto&) { options.help = true; }},
      {"-h", [&](const auto&) { options.help = true; }},
  };
  for (; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (const auto flag = flags.find(arg); flag != flags.end()) {
      flag->second(arg);
    } else if (const std::size_t equals = arg.find('=');
               equals != std::string::npos && arg[0] != '-') {
      options.config.set(arg.substr(0, equals), arg.substr(equals + 1));
    } else {
      std::vector<std::string> names;
      for (const auto& [name, action] : flags) names.push_back(name);
      refuse(fmt::format("unknown argument '{}'{}", arg, divisi::did_you_mean(arg, names)));
    }
  }
  if (seed_named && options.config.exp_name == divisi::rl::DqnConfig{}.exp_name) {
    options.config.exp_name = fmt::format("cartpole_dqn_seed{}", options.config.seed);
  }
  if (!options.help) options.config.check();
  return options;
}

std::string run_folder_of(const std::vector<std::string>& args) {
  for (std::size_t i = args.size(); i-- > 1;) {
    if (args[i - 1] == "--run-folder") return args[i];
  }
  return {};
}

int collectors(const Options& options) {
  if (options.parallel_workers > 0) return std::max(1, options.parallel_workers - 2);
  return static_cast<int>(std::ranges::count(options.roles, "collector"));
}

std::vector<std::string> process_arguments(const Options& options) {
  if (options.mode == Mode::kAlone) return {"--alone"};
  if (options.mode == Mode::kNode) return {};
  if (options.parallel_workers > 0) {
    return {"--parallel-workers", std::to_string(options.parallel_workers)};
  }
  return {"--roles", fmt::format("{}", fmt::join(options.roles, ","))};
}

std::vector<std::string> to_arguments(const Options& options) {
  std::vector<std::string> args = {"--run-folder", options.run_folder, "--runs", options.runs,
                                   "--no-display"};
  if (options.config_saved) args.emplace_back("--config-saved");
  if (options.mode == Mode::kNode) {
    args.insert(args.end(), {"--role", options.role, "--node-id", std::to_string(options.node_id),
                             "--address", options.address, "--port", std::to_string(options.port)});
    if (!options.attach_to.empty()) {
      args.insert(args.end(),
                  {"--attach-to", fmt::format("{}", fmt::join(options.attach_to, ","))});
    }
  }
  for (auto& arg : process_arguments(options)) args.push_back(std::move(arg));
  if (options.resume) args.emplace_back("--resume");
  for (const auto& [key, text] : options.config.entries()) args.push_back(key + "=" + text);
  return args;
}

}  // namespace cartpole
