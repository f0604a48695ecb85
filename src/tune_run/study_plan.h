// What `divisi tune` was asked for: a study file with the command line's flags laid over it.
//
//   DIVISI_TRY(json::Value document, read_study_file("study.yaml"));
//   DIVISI_TRY(StudyPlan plan, make_plan(document));
//
// A key that is not known is refused with the nearest one that is. docs/tune-cli.md lists them.
#pragma once

#include "base/status.h"
#include "divisi/tune.h"
#include "json/value.h"
#include "tune_run/command_template.h"
#include "tune_run/search_space.h"

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace divisi::tune_run {

// What is made large or small.
struct Target {
  tune::Expr value;
  std::string name;  // as it was written
  bool maximize = false;
};

// A name with its options: an algorithm or a pruner.
struct NamedOptions {
  std::string name;
  json::Object options{};
};

// What a template does about variables that its main_config lacks.
enum class Missing { kWarn, kError, kOk };

struct StudyPlan {
  std::string name;
  std::vector<std::string> command;  // empty: a template is run
  std::string template_file;
  std::string python = "python3";
  Missing missing = Missing::kWarn;
  Inject inject = Inject::kPlaceholders;
  SearchSpace space;
  std::vector<Target> targets;  // at least one
  std::vector<tune::Expr> stop_when{};
  std::vector<std::pair<std::string, tune::Expr>> concerns{};
  NamedOptions algorithm{.name = "auto"};
  std::optional<NamedOptions> prune = std::nullopt;
  std::optional<std::int64_t> max_steps = std::nullopt;
  std::optional<std::int64_t> no_improvement = std::nullopt;
  std::int64_t max_failures = 0;  // in a row, that end the search; 0: any number
  int workers = 1;
  int tries = 3;
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;        // of the whole run
  std::optional<std::chrono::milliseconds> trial_timeout = std::nullopt;  // of each try
  std::chrono::milliseconds grace{10'000};
  std::string storage = "divisi-tune.db";
  std::string folder;  // of logs and main files
  std::map<std::string, std::string> env{};
  std::vector<std::string> gpus{};
  int gpus_per_trial = 1;
  bool resume = false;
  bool allow_space_change = false;
  bool require_exit_zero = true;
};

// YAML, or JSON, which is YAML.
Result<json::Value> read_study_file(const std::string& path);

// Fails with one line that names the key.
Result<StudyPlan> make_plan(const json::Value& document);

// "reward" and "eval.mean" are R["reward"] and R["eval"]["mean"]; all else is an expression.
Result<tune::Expr> parse_target(const std::string& text);

// Seconds as a number, or a text with a unit: 90, "90s", "1.5m", "2h", "1d".
Result<std::chrono::milliseconds> parse_duration(const json::Value& value);

}  // namespace divisi::tune_run
