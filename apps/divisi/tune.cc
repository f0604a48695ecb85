// divisi tune: hyper-parameter search over any command.

#include "tune.h"

#include "base/nearest_name.h"
#include "commands.h"
#include "io/process.h"
#include "tune_run/queries.h"
#include "tune_run/status_view.h"
#include "tune_run/study_plan.h"
#include "tune_run/tune_run.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <optional>
#include <unistd.h>

namespace divisi::apps {
namespace {

constexpr int kDryRunLines = 5;
constexpr std::size_t kRankedRows = 5;

constexpr const char* kExamples = R"(Examples:
  divisi tune --space lr=loguniform:1e-5,1e-1 --space layers=randint:1,4 \
      --maximize reward --max-steps 40 --workers 4 -- python train.py --lr {lr} --layers {layers}
  divisi tune study.yaml --resume
  divisi tune best

A trial says how good it was by one of these, the first that is there:
  one JSON document in the file $HPO_RESULT_FILE;
  the last line of its output, a number or a JSON object;
  result.json or result.pkl in its folder.

Spaces: uniform:LOW,HIGH  loguniform:LOW,HIGH  quniform:START,END,STEP  qloguniform:LOW,HIGH,STEP
        randint:FIRST,LAST  lograndint:FIRST,LAST  normal:MEAN,DEVIATION  choice:A,B,...  fixed:VALUE

Stored studies: divisi tune list | show | best | importance | export | import | plot | top, each with --help.

Exit status: 0 a trial succeeded, 1 none did, 2 wrong usage, 3 interrupted with results.)";

// SIGINT and SIGTERM as bytes of a pipe: a handler, because blocked signals would stay blocked in
// the trials.
class InterruptPipe {
 public:
  InterruptPipe() {
    Result<io::PipePair> pipe = io::make_pipe();
    DIVISI_CHECK(pipe.has_value(), "a process that starts has descriptors left");
    read_ = std::move(pipe->read);
    write_ = std::move(pipe->write);
    for (const int fd : {read_.get(), write_.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
    target = write_.get();
    struct sigaction action{};
    action.sa_handler = [](int) {
      const int kept = errno;
      [[maybe_unused]] const ssize_t written = ::write(target, "", 1);
      errno = kept;
    };
    ::sigaction(SIGINT, &action, nullptr);
    ::sigaction(SIGTERM, &action, nullptr);
  }

  tune_run::Interrupts interrupts() {
    return {read_.get(), [this] {
              char bytes[16];
              const ssize_t size = ::read(read_.get(), bytes, sizeof(bytes));
              return static_cast<int>(std::max<ssize_t>(0, size));
            }};
  }

 private:
  inline static volatile int target = -1;
  io::Descriptor read_;
  io::Descriptor write_;
};

struct RunFlags {
  std::string file;
  json::Value keys = json::Object{};  // laid over the study file
  json::Value algorithm = json::Object{};
  std::vector<std::string> spaces;
  std::vector<std::string> environment;
  std::vector<std::string> options;
  bool dry_run = false;
  bool quiet = false;
  bool json = false;
};

// A number where the text is one, so that a flag reads as the same text in a study file would.
json::Value scalar(const std::string& text) {
  Result<json::Value> value = json::parse(text);
  return value && (value->as_int() != nullptr || value->as_double() != nullptr ||
                   value->as_bool() != nullptr)
             ? *value
             : json::Value(text);
}

void add_flags(CLI::App& app, RunFlags& flags) {
  app.add_option("file", flags.file, "A study file, YAML or JSON; flags come before its keys");
  const auto key = [&](const std::string& flag, const std::string& name, const std::string& help) {
    app.add_option_function<std::string>(
        flag, [&flags, name](const std::string& text) { flags.keys[name] = scalar(text); }, help);
  };
  const auto list = [&](const std::string& flag, const std::string& name, const std::string& help) {
    app.add_option_function<std::vector<std::string>>(
           flag,
           [&flags, name](const std::vector<std::string>& texts) {
             json::Array all;
             for (const std::string& text : texts) all.emplace_back(text);
             flags.keys[name] = std::move(all);
           },
           help)
        ->allow_extra_args(false);
  };
  key("--name", "name", "Of the study; default: the file's name, or \"study\"");
  app.add_option("--space", flags.spaces, "NAME=KIND:ARGUMENTS, or NAME: {KIND: [ARGUMENTS]}")
      ->allow_extra_args(false);
  list("--maximize", "maximize", "What shall be large: reward, or an expression of R, M and C");
  list("--minimize", "minimize", "What shall be small");
  list("--stop-when", "stop_when", "Stop once a trial meets this: 'R[\"reward\"] > 195'");
  list("--concern", "concern", "A further column of the table");
  key("--algo", "algorithm", "auto, bayes, tpe, cmaes, nsga2, qmc, random or grid");
  app.add_option("--option", flags.options, "NAME=VALUE of the algorithm")->allow_extra_args(false);
  app.add_option_function<std::string>(
      "--seed", [&flags](const std::string& text) { flags.algorithm["seed"] = scalar(text); },
      "Of everything random");
  key("--max-steps", "max_steps", "Trials");
  key("--workers", "workers", "Trials at the same time; default: the number of cores");
  key("--retries", "retries", "Further tries of a trial that failed; default 2");
  key("--timeout", "timeout", "No new trials after this: 90, 90s, 1.5m, 2h");
  key("--trial-timeout", "trial_timeout", "For each try; then all its processes are ended");
  key("--grace", "grace", "Between SIGTERM and SIGKILL; default 10s");
  key("--no-improvement", "no_improvement", "Stop after so many trials without a better one");
  key("--max-failures", "max_failures",
      "Stop after so many failed trials in a row; default 20 if nothing else ends the search");
  key("--prune", "prune", "End bad trials early: median, asha, hyperband, ...");
  key("--inject", "inject", "How a trial gets its values: argv, env, json, yaml");
  key("--template", "template", "A Python file with main_config, run instead of a command");
  key("--python", "python", "The interpreter of templates; default python3");
  key("--missing", "missing", "Variables that main_config lacks: warn, error or ok");
  key("--gpus", "gpus", "GPUs to share out by CUDA_VISIBLE_DEVICES");
  key("--gpus-per-trial", "gpus_per_trial", "Default 1");
  app.add_option("--env", flags.environment, "NAME=VALUE for the trials")->allow_extra_args(false);
  key("--storage", "storage", "sqlite:FILE, file:FILE.jsonl, memory:; default divisi-tune.db");
  key("--folder", "folder", "Of logs and main files; default: the study's name");
  app.add_flag_callback(
      "--resume", [&flags] { flags.keys["resume"] = true; },
      "Go on with the study of that name, if there is one");
  app.add_flag_callback(
      "--allow-space-change", [&flags] { flags.keys["allow_space_change"] = true; },
      "Even if it searched other spaces");
  app.add_flag("--dry-run", flags.dry_run, "Print the first commands; run and store nothing");
  app.add_flag("-q,--quiet", flags.quiet, "Print the best configuration only");
  app.add_flag("--json", flags.json, "The same, as JSON");
  app.footer(kExamples);
}

// NAME=VALUE pairs into a map.
Status add_pairs(json::Value& to, const std::vector<std::string>& pairs, std::string_view flag,
                 const std::function<json::Value(const std::string&)>& value_of) {
  for (const std::string& pair : pairs) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) {
      return make_status(Code::kInvalid, "{} {}: NAME=VALUE is expected", flag, pair);
    }
    to[pair.substr(0, equals)] = value_of(pair.substr(equals + 1));
  }
  return {};
}

// What --algo, --seed and --option add to the file's algorithm.
Status lay_algorithm(json::Value& document, RunFlags& flags) {
  if (Status status = add_pairs(flags.algorithm, flags.options, "--option", scalar); !status.ok()) {
    return status;
  }
  if (flags.algorithm.as_object()->empty()) return {};
  json::Value algorithm = json::Object{{"name", "auto"}};
  if (const json::Value* chosen = document.find("algorithm")) {
    if (chosen->as_string() != nullptr) algorithm["name"] = *chosen;
    if (chosen->as_object() != nullptr) algorithm = *chosen;
  }
  for (auto& [name, value] : *flags.algorithm.as_object()) algorithm[name] = value;
  document["algorithm"] = std::move(algorithm);
  return {};
}

Result<json::Value> document_of(RunFlags& flags, const std::vector<std::string>& command) {
  json::Value document = json::Object{};
  if (!flags.file.empty()) {
    DIVISI_TRY(document, tune_run::read_study_file(flags.file));
  }
  // A flag that says what is optimised says all of it.
  if (flags.keys.find("maximize") != nullptr || flags.keys.find("minimize") != nullptr) {
    document.erase("maximize");
    document.erase("minimize");
  }
  for (auto& [name, value] : *flags.keys.as_object()) document[name] = value;
  if (!command.empty()) {
    json::Array words;
    for (const std::string& word : command) words.emplace_back(word);
    document["command"] = std::move(words);
  }
  json::Value space = json::Object{};
  if (const json::Value* given = document.find("space")) space = *given;
  for (const std::string& flag : flags.spaces) {
    if (Status status = tune_run::add_space_flag(space, flag); !status.ok()) return failure(status);
  }
  if (!flags.spaces.empty()) document["space"] = std::move(space);
  if (!flags.environment.empty()) {
    json::Value& env = document["env"];
    const auto as_text = [](const std::string& text) { return json::Value(text); };
    if (Status status = add_pairs(env, flags.environment, "--env", as_text); !status.ok()) {
      return failure(status);
    }
  }
  if (Status status = lay_algorithm(document, flags); !status.ok()) return failure(status);
  if (document.find("name") == nullptr) {
    document["name"] =
        flags.file.empty() ? "study" : std::filesystem::path(flags.file).stem().string();
  }
  return document;
}

void print_best(const tune_run::StudyPlan& plan, const RunFlags& flags,
                const tune_run::StudyData& data) {
  if (flags.json) {
    std::fputs(tune_run::show_best(data).value_or("").c_str(), stdout);
    return;
  }
  std::vector<tune::TrialRecord> best;
  for (const tune_run::StudyTrial* trial :
       data.spec.maximize.size() > 1 ? data.pareto() : data.ranked()) {
    if (best.size() < kRankedRows) best.push_back(trial->record);
  }
  if (best.empty()) return;
  if (!flags.quiet) std::printf("%s\n", tune_run::rank_table(plan, best).c_str());
  std::printf("best: %s\n", best.front().config.c_str());
}

int exit_code(const tune_run::RunOutcome& outcome) {
  if (outcome.state.trials_ok == 0) return kNothingSucceeded;
  return outcome.interrupted ? kInterrupted : kSucceeded;
}

int run(const tune_run::StudyPlan& plan, const RunFlags& flags) {
  InterruptPipe pipe;
  const bool silent = flags.quiet || flags.json;
  const auto view = silent ? tune_run::make_quiet_view() : tune_run::make_view(plan, STDOUT_FILENO);
  const auto outcome = tune_run::run_study(plan, *view, pipe.interrupts());
  if (!outcome) return tune_failed(outcome.error());
  print_best(plan, flags, outcome->data);
  const int code = exit_code(*outcome);
  if (code == kNothingSucceeded) {
    std::fprintf(stderr, "divisi tune: no trial succeeded%s%s\n",
                 outcome->last_error.empty() ? "" : "; ", outcome->last_error.c_str());
  }
  return code;
}

// A word that is no file and nearly a command was meant as one.
Status check_file(const std::string& file) {
  std::error_code error;
  if (file.empty() || file.find_first_of("./") != std::string::npos ||
      std::filesystem::exists(file, error)) {
    return {};
  }
  return make_status(Code::kNotFound, "there is neither a command nor a study file '{}'{}", file,
                     did_you_mean(file, study_command_names()));
}

int parse_and_run(std::vector<std::string> arguments, const std::vector<std::string>& command) {
  RunFlags flags;
  CLI::App app("Search for the settings under which a program does best.", "divisi tune");
  add_flags(app, flags);
  if (!arguments.empty() && !arguments.front().starts_with('-')) {
    if (const Status status = check_file(arguments.front()); !status.ok()) {
      return tune_failed(status);
    }
  }
  if (const std::optional<int> code = parse_flags(app, std::move(arguments))) return *code;
  Result<json::Value> document = document_of(flags, command);
  if (!document) return tune_failed(document.error());
  Result<tune_run::StudyPlan> plan = tune_run::make_plan(*document);
  if (!plan) {
    const std::string place = flags.file.empty() ? "" : flags.file;
    return tune_failed(place.empty() ? plan.error() : plan.error().with_context(place));
  }
  if (!flags.dry_run) return run(*plan, flags);
  const auto lines = tune_run::dry_run(*plan, kDryRunLines);
  if (!lines) return tune_failed(lines.error());
  for (const std::string& line : *lines) std::printf("%s\n", line.c_str());
  return kSucceeded;
}

}  // namespace

int tune_failed(const Status& status) {
  std::fprintf(stderr, "divisi tune: %s\n", status.message().c_str());
  const bool usage = status.code() == Code::kInvalid || status.code() == Code::kNotFound ||
                     status.code() == Code::kAlreadyExists;
  return usage ? kUsage : kNothingSucceeded;
}

std::optional<int> parse_flags(CLI::App& app, std::vector<std::string> arguments) {
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    std::string text = error.what();
    std::ranges::replace(text, '\n', ' ');
    return fmt::format("{}: {}; {} --help tells more\n", failed->get_name(), text,
                       failed->get_name());
  });
  std::ranges::reverse(arguments);  // as the library takes them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kSucceeded : kUsage;
  }
  return std::nullopt;
}

void add_tune_command(CLI::App& app) {
  app.add_subcommand("tune", "Search for the settings under which a program does best");
}

int tune_main(std::vector<std::string> arguments) {
  try {
    if (!arguments.empty()) {
      if (const std::optional<int> code = read_study_command(arguments)) return *code;
    }
    const auto dashes = std::ranges::find(arguments, "--");
    const std::vector<std::string> command(dashes == arguments.end() ? dashes : dashes + 1,
                                           arguments.end());
    arguments.erase(dashes, arguments.end());
    return parse_and_run(std::move(arguments), command);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "divisi tune: %s\n", error.what());
    return kNothingSucceeded;
  }
}

}  // namespace divisi::apps
