#include "ding/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <span>

namespace divisi::ding {

namespace {

struct Pending {
  Options options{};
  std::string mode{};
  std::string module{};
};

// One flag: how it is spelled and what it does. `has_value` flags take the next argument.
struct Flag {
  std::string_view long_name;
  std::string_view short_name;  // with its dash; may be empty
  bool has_value;
  std::function<Status(Pending&, const std::string& value)> apply;
};

Status bad_value(std::string_view flag, std::string_view value, std::string_view expected) {
  return make_status(Code::kInvalid, "{} '{}': expected {}", flag, value, expected);
}

bool parse_whole(std::string_view text, std::int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

auto set_text(std::string Options::* field) {
  return [field](Pending& pending, const std::string& value) -> Status {
    pending.options.*field = value;
    return {};
  };
}

auto set_port(std::string_view flag, std::optional<std::uint16_t> Options::* field) {
  return [flag, field](Pending& pending, const std::string& value) -> Status {
    std::int64_t port = 0;
    if (!parse_whole(value, port) || port < 1 || port > 65'535) {
      return bad_value(flag, value, "a port from 1 to 65535");
    }
    pending.options.*field = static_cast<std::uint16_t>(port);
    return {};
  };
}

auto set_number(std::string_view flag, std::int64_t Options::* field, std::int64_t least,
                std::int64_t most) {
  return [flag, field, least, most](Pending& pending, const std::string& value) -> Status {
    std::int64_t number = 0;
    if (!parse_whole(value, number) || number < least || number > most) {
      return bad_value(flag, value, fmt::format("a whole number from {} to {}", least, most));
    }
    pending.options.*field = number;
    return {};
  };
}

auto set_action(std::string_view flag, Action action) {
  return [flag, action](Pending& pending, const std::string& value) -> Status {
    if (value != "collector" && value != "learner") {
      return bad_value(flag, value, "collector or learner");
    }
    if (pending.options.action != Action::kNone) {
      return make_status(Code::kInvalid, "--add, --delete and --restart exclude each other");
    }
    pending.options.action = action;
    pending.options.role = value;
    return {};
  };
}

Status set_platform(Pending& pending, const std::string& value) {
  if (value != "local" && value != "k8s") {
    return bad_value("--platform", value, "local or k8s (Slurm jobs start ditask)");
  }
  pending.options.platform = value;
  return {};
}

Status ignore(Pending&, const std::string&) {
  return {};
}

auto set_true(bool Options::* field) {
  return [field](Pending& pending, const std::string&) -> Status {
    pending.options.*field = true;
    return {};
  };
}

auto refuse(std::string_view flag) {
  return [flag](Pending&, const std::string&) -> Status {
    return make_status(Code::kInvalid,
                       "{} has no meaning with -m dist: put it into the configuration", flag);
  };
}

const std::vector<Flag>& identity_flags() {
  static const std::vector<Flag> all = {
      {"--help", "-h", false, set_true(&Options::help)},
      {"--version", "-v", false, set_true(&Options::version)},
      {"--mode", "-m", true,
       [](Pending& pending, const std::string& value) -> Status {
         pending.mode = value;
         return {};
       }},
      {"--module", "-M", true,
       [](Pending& pending, const std::string& value) -> Status {
         pending.module = value;
         return {};
       }},
      {"--module-name", "", true, set_text(&Options::module_name)},
      {"--config", "-c", true, set_text(&Options::config)},
      {"--seed", "-s", true, set_number("--seed", &Options::seed, 0, (std::int64_t{1} << 53))},
      {"--platform", "-P", true, set_platform},
      {"--policy", "-p", true, set_platform},  // the manifests in the field write -p k8s
      {"--mock", "", false, set_true(&Options::mock)},
      // They set logs of DI-engine's web server, or repeat the environment.
      {"--enable-total-log", "", true, ignore},
      {"--disable-flask-log", "", true, ignore},
      {"--local-rank", "", true, ignore},
      {"--profile", "", true, ignore},
      {"--env", "-e", true, refuse("--env")},
      {"--train-iter", "", true, refuse("--train-iter")},
      {"--env-step", "", true, refuse("--env-step")},
      {"--exp-name", "", true, refuse("--exp-name")},
      {"--load-path", "", true, refuse("--load-path")},
      {"--replay-path", "", true, refuse("--replay-path")},
  };
  return all;
}

const std::vector<Flag>& place_flags() {
  static const std::vector<Flag> all = {
      {"--coordinator-host", "-cdh", true, set_text(&Options::coordinator_host)},
      {"--coordinator-port", "-cdp", true,
       set_port("--coordinator-port", &Options::coordinator_port)},
      {"--learner-host", "-lh", true, set_text(&Options::learner_host)},
      {"--learner-port", "-lp", true, set_port("--learner-port", &Options::learner_port)},
      {"--collector-host", "-clh", true, set_text(&Options::collector_host)},
      {"--collector-port", "-clp", true, set_port("--collector-port", &Options::collector_port)},
      {"--aggregator-host", "-agh", true, set_text(&Options::aggregator_host)},
      {"--aggregator-port", "-agp", true, set_port("--aggregator-port", &Options::aggregator_port)},
      {"--add", "", true, set_action("--add", Action::kAdd)},
      {"--delete", "", true, set_action("--delete", Action::kDelete)},
      {"--restart", "", true, set_action("--restart", Action::kRestart)},
      {"--kubeconfig", "", true,
       [](Pending&, const std::string&) {
         return make_status(Code::kInvalid,
                            "--kubeconfig: di-server is asked directly, give --server URL instead");
       }},
      {"--server", "", true, set_text(&Options::server)},
      {"--coordinator-name", "-cdn", true, set_text(&Options::coordinator_name)},
      {"--namespace", "-ns", true, set_text(&Options::space)},
      {"--replicas", "-rs", true, set_number("--replicas", &Options::replicas, 1, 100'000)},
      {"--restart-pod-name", "-rpn", true, set_text(&Options::restart_pod)},
      {"--cpus", "", true, set_number("--cpus", &Options::cpus, 0, 1'000'000)},
      {"--gpus", "", true, set_number("--gpus", &Options::gpus, 0, 1'000'000)},
      {"--memory", "", true, set_text(&Options::memory)},
  };
  return all;
}

template <class Match>
const Flag* find_flag(Match match) {
  for (const auto* flags : {&identity_flags(), &place_flags()}) {
    const auto found = std::ranges::find_if(*flags, match);
    if (found != flags->end()) return &*found;
  }
  return nullptr;
}

// An argument taken apart: the flag, and a value that stands in the same argument.
struct Spelling {
  const Flag* flag = nullptr;
  std::optional<std::string> value{};
};

Spelling spell(std::string argument) {
  if (argument.starts_with("--")) {
    Spelling spelling;
    if (const std::size_t equals = argument.find('='); equals != std::string::npos) {
      spelling.value = argument.substr(equals + 1);
      argument.resize(equals);
    }
    std::replace(argument.begin() + 2, argument.end(), '_', '-');
    spelling.flag = find_flag([&](const Flag& flag) { return flag.long_name == argument; });
    return spelling;
  }
  if (const Flag* flag = find_flag([&](const Flag& f) { return f.short_name == argument; })) {
    return {flag, {}};
  }
  // "-s0": only flags of one letter have their value attached.
  const std::string letter = argument.substr(0, 2);
  const Flag* flag = find_flag([&](const Flag& f) { return f.short_name == letter; });
  if (flag == nullptr || !flag->has_value || argument.size() <= 2) return {};
  return {flag, argument.substr(2)};
}

Status parse_into(const std::vector<std::string>& arguments, Pending& pending) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with('-') || argument.size() < 2) {
      return make_status(Code::kInvalid, "unexpected argument '{}'", argument);
    }
    Spelling spelling = spell(argument);
    if (spelling.flag == nullptr) {
      return make_status(Code::kInvalid, "unknown flag '{}'", argument);
    }
    if (!spelling.flag->has_value && spelling.value) {
      return make_status(Code::kInvalid, "{} takes no value", spelling.flag->long_name);
    }
    if (spelling.flag->has_value && !spelling.value) {
      if (++i == arguments.size()) {
        return make_status(Code::kInvalid, "{} needs a value", spelling.flag->long_name);
      }
      spelling.value = arguments[i];
    }
    DIVISI_TRY_STATUS(spelling.flag->apply(pending, spelling.value.value_or("")));
  }
  return {};
}

Status set_module(Pending& pending) {
  static constexpr std::array<std::pair<std::string_view, Module>, 6> kModules = {{
      {"config", Module::kConfig},
      {"coordinator", Module::kCoordinator},
      {"collector", Module::kCollector},
      {"learner", Module::kLearner},
      {"learner_aggregator", Module::kAggregator},
      {"spawn_learner", Module::kSpawnLearner},
  }};
  for (const auto& [name, module] : kModules) {
    if (pending.module == name) pending.options.module = module;
  }
  if (!pending.module.empty() && pending.options.module == Module::kNone) {
    return bad_value(
        "--module", pending.module,
        "config, coordinator, collector, learner, learner_aggregator or spawn_learner");
  }
  return {};
}

Status check_mode(const std::string& mode, bool dist_only) {
  if (mode == "dist" || (dist_only && mode.empty())) return {};
  if (mode.empty()) return make_status(Code::kInvalid, "no mode: give -m dist");
  return make_status(
      Code::kInvalid,
      "-m {}: this is not DI-engine; here is -m dist (jobs of collectors and learners); "
      "ditask starts everything else",
      mode);
}

Status check_parts(const Options& options) {
  const bool has_module = options.module != Module::kNone;
  if (!has_module && options.action == Action::kNone) {
    return make_status(Code::kInvalid,
                       "nothing to do: give --module, or --add, --delete or --restart");
  }
  if (has_module && options.action != Action::kNone) {
    return make_status(Code::kInvalid,
                       "--module and --add, --delete or --restart exclude each other");
  }
  if (options.action == Action::kRestart && options.restart_pod.empty()) {
    return make_status(Code::kInvalid, "--restart needs the pod: -rpn NAME");
  }
  if (!has_module) return {};
  if (options.module == Module::kConfig && options.mock) {
    return make_status(Code::kInvalid, "--mock: a mock job has no configuration to prepare");
  }
  const bool wants_config = options.module != Module::kAggregator && !options.mock;
  if (wants_config && options.config.empty()) {
    return make_status(
        Code::kInvalid, "no configuration: give -c FILE{}",
        options.module == Module::kConfig
            ? ".py"
            : ".pkl (made by --module config), or --mock for a job that trains nothing");
  }
  if (options.mock && !options.config.empty()) {
    return make_status(Code::kInvalid, "--mock and -c exclude each other");
  }
  return {};
}

}  // namespace

Result<Options> parse_options(const std::vector<std::string>& arguments, bool dist_only) {
  Pending pending;
  if (Status status = parse_into(arguments, pending); !status.ok()) return failure(status);
  if (pending.options.help || pending.options.version) return pending.options;
  for (const auto& check :
       {std::function<Status()>([&] { return check_mode(pending.mode, dist_only); }),
        std::function<Status()>([&] { return set_module(pending); }),
        std::function<Status()>([&] { return check_parts(pending.options); })}) {
    if (Status status = check(); !status.ok()) return failure(status);
  }
  return pending.options;
}

std::string help_text(std::string_view program) {
  return fmt::format(R"(usage: {0} --module MODULE [flags]
       {0} --add|--delete|--restart collector|learner [flags]

The processes of a first-generation (v1alpha1) DIJob, as DI-engine's `ding -m dist` starts them.

  -M, --module config             run a configuration (.py) and write it as FILE.pkl
               coordinator        ask di-server for workers, give out tasks, end the job
               collector          play, write what happened under path_data
               learner            train, write policies under path_policy
               learner_aggregator many learners that look like one
               spawn_learner      one learner for each GPU of a pod (LOCAL_WORLD_SIZE, START_RANK)
  -c, --config FILE               the .py of `config`, the .pkl of the others
  -s, --seed N                    of random numbers (0)
  -P, -p, --platform local|k8s    where the job runs (local)
      --mock                      instead of -c: short tasks that train nothing, to try a cluster
      --module-name NAME          which part of the configuration's `system` to use

  -cdh, -cdp, --coordinator-host, --coordinator-port    COORDINATOR_PORT, 22273
  -clh, -clp, --collector-host, --collector-port        COLLECTOR_PORT, 22270
  -lh,  -lp,  --learner-host, --learner-port            LEARNER_PORT, 22271
  -agh, -agp, --aggregator-host, --aggregator-port      AGGREGATOR_PORT, 22272; its master: one more
      A flag counts more than its variable, that more than the configuration.

      --add, --delete ROLE        more or fewer workers of a running job
      --restart ROLE              a new pod for -rpn POD
      --server URL                di-server; otherwise KUBERNETES_SERVER_URL
  -cdn, --coordinator-name POD    of the job; otherwise KUBERNETES_POD_NAME
  -ns,  --namespace NS            otherwise KUBERNETES_POD_NAMESPACE, default
  -rs,  --replicas N              how many (1)
  -rpn, --restart-pod-name POD
      --cpus N, --gpus N, --memory QUANTITY             of each, instead of the template's

  -h, --help    -v, --version

examples:
  {0} --module config -P k8s -c cartpole_dqn_config_k8s.py -s 0
  {0} --module coordinator -P k8s -c cartpole_dqn_config_k8s.py.pkl -s 0 -cdp $COORDINATOR_PORT
  {0} --module collector -c cartpole_dqn_config_k8s.py.pkl -s 0 -clp $COLLECTOR_PORT
  {0} --module spawn_learner -c cartpole_dqn_config_k8s.py.pkl -s 0 -lp $LEARNER_PORT
  {0} --add collector -cdn my-job-coordinator -ns default -rs 2 --server di-server.di-system:8080
)",
                     program);
}

Result<std::int64_t> integer_variable(const char* name, std::int64_t otherwise) {
  const char* text =
      std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  if (text == nullptr || *text == '\0') return otherwise;
  std::int64_t number = 0;
  if (!parse_whole(text, number)) {
    return failure(Code::kInvalid, "the variable {} is '{}': expected a whole number", name, text);
  }
  return number;
}

Result<std::uint16_t> choose_port(const std::optional<std::uint16_t>& flag, const char* variable,
                                  std::uint16_t otherwise) {
  if (flag) return *flag;
  DIVISI_TRY(const std::int64_t port, integer_variable(variable, otherwise));
  if (port < 1 || port > 65'535) {
    return failure(Code::kInvalid, "the variable {} is '{}': expected a port from 1 to 65535",
                   variable, port);
  }
  return static_cast<std::uint16_t>(port);
}

}  // namespace divisi::ding
