#include "tune_run/study_plan.h"

#include "base/nearest_name.h"
#include "json/yaml.h"
#include "tune_run/algorithms.h"
#include "tune_run/pruners.h"
#include "tune_run/value_json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

namespace divisi::tune_run {
namespace {

// Of a search without another end. Large enough for spaces of which one configuration in five
// works: 20 failures in a row then come up once in a hundred trials.
constexpr std::int64_t kMaxFailures = 20;

// What is read of the document before the parts are put together.
struct Draft {
  std::string name;
  std::vector<std::string> command;
  std::string template_file;
  std::string python = "python3";
  std::optional<Inject> inject;
  Missing missing = Missing::kWarn;
  std::optional<SearchSpace> space;
  std::vector<Target> targets;
  std::vector<tune::Expr> stop_when;
  std::vector<std::pair<std::string, tune::Expr>> concerns;
  NamedOptions algorithm{.name = "auto"};
  std::optional<NamedOptions> prune;
  std::optional<std::int64_t> max_steps;
  std::optional<std::int64_t> no_improvement;
  std::optional<std::int64_t> max_failures;
  std::optional<int> workers;
  int tries = 3;
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<std::chrono::milliseconds> trial_timeout;
  std::chrono::milliseconds grace{10'000};
  std::string storage = "divisi-tune.db";
  std::string folder;
  std::map<std::string, std::string> env;
  std::vector<std::string> gpus;
  int gpus_per_trial = 1;
  bool resume = false;
  bool allow_space_change = false;
  bool require_exit_zero = true;
};

Status wrong(std::string_view wanted, const json::Value& value) {
  return make_status(Code::kInvalid, "{} is expected, not {}", wanted, json::print(value));
}

Status read_string(const json::Value& value, std::string& to) {
  const std::string* text = value.as_string();
  if (text == nullptr || text->empty()) return wrong("a text", value);
  to = *text;
  return {};
}

Status read_bool(const json::Value& value, bool& to) {
  if (value.as_bool() == nullptr) return wrong("true or false", value);
  to = *value.as_bool();
  return {};
}

constexpr std::int64_t kMostCounted = 1'000'000'000;
constexpr std::int64_t kMostWorkers = 10'000;  // processes at the same time

Result<std::int64_t> read_whole(const json::Value& value, std::int64_t least,
                                std::int64_t most = kMostCounted) {
  const std::int64_t* whole = value.as_int();
  if (whole == nullptr || *whole < least || *whole > most) {
    return failure(wrong(fmt::format("a whole number from {} to {}", least, most), value));
  }
  return *whole;
}

template <class T>
Status read_whole_into(const json::Value& value, std::int64_t least, T& to,
                       std::int64_t most = kMostCounted) {
  const Result<std::int64_t> number = read_whole(value, least, most);
  if (!number) return number.error();
  to = static_cast<T>(*number);
  return {};
}

template <class T>
Status read_duration_into(const json::Value& value, T& to) {
  const auto duration = parse_duration(value);
  if (!duration) return duration.error();
  to = *duration;
  return {};
}

// A list of texts, or one text.
Result<std::vector<std::string>> read_texts(const json::Value& value) {
  std::vector<std::string> texts;
  if (const auto* list = value.as_array()) {
    for (const json::Value& item : *list) texts.push_back(plain_text(from_json(item)));
    return texts;
  }
  if (value.as_string() == nullptr) return failure(wrong("a text or a list of texts", value));
  return std::vector<std::string>{*value.as_string()};
}

Status read_command(const json::Value& value, Draft& draft) {
  if (value.as_array() != nullptr) {
    Result<std::vector<std::string>> words = read_texts(value);
    if (!words) return words.error();
    draft.command = *std::move(words);
  } else if (const std::string* line = value.as_string()) {
    Result<std::vector<std::string>> words = split_words(*line);
    if (!words) return words.error();
    draft.command = *std::move(words);
  }
  return draft.command.empty() ? wrong("a command, as a text or a list", value) : Status();
}

Status read_targets(const json::Value& value, bool maximize, Draft& draft) {
  const auto texts = read_texts(value);
  if (!texts) return texts.error();
  for (const std::string& text : *texts) {
    Result<tune::Expr> target = parse_target(text);
    if (!target) return target.error();
    draft.targets.push_back({*std::move(target), text, maximize});
  }
  return {};
}

Status read_stops(const json::Value& value, Draft& draft) {
  const auto texts = read_texts(value);
  if (!texts) return texts.error();
  for (const std::string& text : *texts) {
    Result<tune::Expr> condition = parse_target(text);
    if (!condition) return condition.error();
    draft.stop_when.push_back(*std::move(condition));
  }
  return {};
}

// name: expression, or a list of expressions that name themselves.
Status read_concerns(const json::Value& value, Draft& draft) {
  std::vector<std::pair<std::string, std::string>> named;
  if (const auto* object = value.as_object()) {
    for (const auto& [name, text] : *object) {
      if (text.as_string() == nullptr) return wrong("an expression as text", text);
      named.emplace_back(name, *text.as_string());
    }
  } else {
    const auto texts = read_texts(value);
    if (!texts) return texts.error();
    for (const std::string& text : *texts) named.emplace_back(text, text);
  }
  for (const auto& [name, text] : named) {
    Result<tune::Expr> expr = parse_target(text);
    if (!expr) return expr.error();
    draft.concerns.emplace_back(name, *std::move(expr));
  }
  return {};
}

// "bayes", or {name: bayes, seed: 1}.
Status read_named_options(const json::Value& value, NamedOptions& to) {
  if (value.as_string() != nullptr) {
    to = {.name = *value.as_string()};
    return {};
  }
  const auto* object = value.as_object();
  const std::string_view name = value.string_at({"name"});
  if (object == nullptr || name.empty()) return wrong("a name, or {name: ..., options}", value);
  to = {.name = std::string(name)};
  for (const auto& [key, option] : *object) {
    if (key != "name") to.options.emplace_back(key, option);
  }
  return {};
}

Status read_env(const json::Value& value, Draft& draft) {
  const auto* object = value.as_object();
  if (object == nullptr) return wrong("a map of variables", value);
  for (const auto& [name, text] : *object) {
    if (name.empty() || name.find('=') != std::string::npos)
      return wrong("a variable's name", name);
    draft.env[name] = plain_text(from_json(text));
  }
  return {};
}

Status read_missing(const json::Value& value, Draft& draft) {
  const std::string text = plain_text(from_json(value));
  if (text == "warn") draft.missing = Missing::kWarn;
  if (text == "error") draft.missing = Missing::kError;
  if (text == "ok") draft.missing = Missing::kOk;
  return text == "warn" || text == "error" || text == "ok" ? Status()
                                                           : wrong("warn, error or ok", value);
}

Status read_gpus(const json::Value& value, Draft& draft) {
  if (const std::int64_t* count = value.as_int(); count != nullptr && *count > 0) {
    for (std::int64_t i = 0; i < *count && i < 1024; ++i) draft.gpus.push_back(std::to_string(i));
    return {};
  }
  if (value.as_array() == nullptr || value.as_array()->empty()) {
    return wrong("a number of GPUs, or a list of them", value);
  }
  for (const json::Value& gpu : *value.as_array()) draft.gpus.push_back(plain_text(from_json(gpu)));
  return {};
}

Status read_inject(const json::Value& value, Draft& draft) {
  const auto inject = parse_inject(plain_text(from_json(value)));
  if (!inject) return inject.error();
  draft.inject = *inject;
  return {};
}

Status read_space(const json::Value& value, Draft& draft) {
  Result<SearchSpace> space = parse_space(value);
  if (!space) return space.error();
  draft.space = *std::move(space);
  return {};
}

struct PlanKey {
  std::string_view name;
  Status (*read)(const json::Value&, Draft&);
};

using V = const json::Value&;
using D = Draft&;

const std::vector<PlanKey>& plan_keys() {
  static const std::vector<PlanKey> keys{
      {"name", [](V v, D d) { return read_string(v, d.name); }},
      {"command", [](V v, D d) { return read_command(v, d); }},
      {"template", [](V v, D d) { return read_string(v, d.template_file); }},
      {"python", [](V v, D d) { return read_string(v, d.python); }},
      {"missing", [](V v, D d) { return read_missing(v, d); }},
      {"inject", [](V v, D d) { return read_inject(v, d); }},
      {"space", [](V v, D d) { return read_space(v, d); }},
      {"maximize", [](V v, D d) { return read_targets(v, true, d); }},
      {"minimize", [](V v, D d) { return read_targets(v, false, d); }},
      {"stop_when", [](V v, D d) { return read_stops(v, d); }},
      {"concern", [](V v, D d) { return read_concerns(v, d); }},
      {"algorithm", [](V v, D d) { return read_named_options(v, d.algorithm); }},
      {"prune", [](V v, D d) { return read_named_options(v, d.prune.emplace()); }},
      {"max_steps", [](V v, D d) { return read_whole_into(v, 0, d.max_steps); }},
      {"no_improvement", [](V v, D d) { return read_whole_into(v, 1, d.no_improvement); }},
      {"max_failures", [](V v, D d) { return read_whole_into(v, 0, d.max_failures); }},
      {"workers", [](V v, D d) { return read_whole_into(v, 1, d.workers, kMostWorkers); }},
      {"retries",
       [](V v, D d) {
         const Status status = read_whole_into(v, 0, d.tries);
         ++d.tries;
         return status;
       }},
      {"timeout", [](V v, D d) { return read_duration_into(v, d.timeout); }},
      {"trial_timeout", [](V v, D d) { return read_duration_into(v, d.trial_timeout); }},
      {"grace", [](V v, D d) { return read_duration_into(v, d.grace); }},
      {"storage", [](V v, D d) { return read_string(v, d.storage); }},
      {"folder", [](V v, D d) { return read_string(v, d.folder); }},
      {"env", [](V v, D d) { return read_env(v, d); }},
      {"gpus", [](V v, D d) { return read_gpus(v, d); }},
      {"gpus_per_trial", [](V v, D d) { return read_whole_into(v, 1, d.gpus_per_trial); }},
      {"resume", [](V v, D d) { return read_bool(v, d.resume); }},
      {"allow_space_change", [](V v, D d) { return read_bool(v, d.allow_space_change); }},
      {"require_exit_zero", [](V v, D d) { return read_bool(v, d.require_exit_zero); }},
  };
  return keys;
}

Status read_keys(const json::Object& document, Draft& draft) {
  std::vector<std::string> names;
  for (const PlanKey& key : plan_keys()) names.emplace_back(key.name);
  for (const auto& [name, value] : document) {
    const auto key = std::ranges::find(plan_keys(), name, &PlanKey::name);
    if (key == plan_keys().end()) {
      return make_status(Code::kInvalid, "there is no key '{}'{}", name, did_you_mean(name, names));
    }
    const Status status = key->read(value, draft);
    // What a space is wrong about begins with its own place.
    if (!status.ok()) return name == "space" ? status : status.with_context(name);
  }
  return {};
}

// A folder and a file are named after it.
Status check_name(const std::string& name) {
  const bool plain = !name.empty() && name.size() <= 100 && name.front() != '.' &&
                     name.front() != '-' && std::ranges::all_of(name, [](char c) {
                       return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                              std::string_view("._-").find(c) != std::string_view::npos;
                     });
  if (plain) return {};
  return make_status(Code::kInvalid,
                     "name: '{}' cannot name a folder: use letters, digits, '.', '_' and '-', "
                     "beginning with a letter or digit",
                     name);
}

Status check_source(const Draft& draft) {
  if (draft.command.empty() == draft.template_file.empty()) {
    return make_status(Code::kInvalid,
                       "{}: give either a command (divisi tune ... -- COMMAND) or a "
                       "template, a Python file with main_config",
                       draft.command.empty() ? "nothing to run" : "a command and a template");
  }
  const bool python = draft.inject == Inject::kPython;
  if (draft.inject && python != draft.command.empty()) {
    return make_status(Code::kInvalid, "inject: python goes with a template, and only with one");
  }
  return {};
}

Status check_draft(const Draft& draft) {
  if (Status status = check_name(draft.name); !status.ok()) return status;
  if (Status status = check_source(draft); !status.ok()) return status;
  if (!draft.space) {
    return make_status(
        Code::kInvalid,
        "space: nothing to search; give --space NAME=KIND:ARGUMENTS or the key space");
  }
  if (draft.targets.empty()) {
    return make_status(Code::kInvalid,
                       "nothing to optimize: give maximize or minimize; the result "
                       "itself is R, its field reward is R[\"reward\"] or reward");
  }
  return {};
}

Inject inject_of(const Draft& draft) {
  if (draft.command.empty()) return Inject::kPython;
  if (draft.inject) return *draft.inject;
  return placeholders_of(draft.command).empty() ? Inject::kArgv : Inject::kPlaceholders;
}

Status check_arguments(const std::vector<std::string>& command) {
  const std::vector<std::string> used = placeholders_of(command);
  if (used.empty()) return {};
  return make_status(
      Code::kInvalid,
      "inject: argv adds --NAME=VALUE itself; the command has the placeholder {{{}}}",
      used.front());
}

// Any configuration will do: all have the same names and constants.
Status check_command(const Draft& draft, Inject inject) {
  if (inject == Inject::kArgv) return check_arguments(draft.command);
  if (inject != Inject::kPlaceholders && inject != Inject::kEnv) return {};
  std::vector<double> lowest;
  for (const tune::Space& space : draft.space->spaces()) {
    lowest.push_back(space.kind() == tune::Space::Kind::kFixed ? 0 : space.lower());
  }
  try {
    const Value config = draft.space->structure.config(lowest);
    return inject == Inject::kEnv ? check_environment(config)
                                  : check_placeholders(draft.command, draft.space->names, config);
  } catch (const UsageError& error) {
    return make_status(Code::kInvalid, "space: {}", error.what());
  }
}

// A program that never works must not run for ever; with an end in sight all trials are run. A grid
// and a population have theirs; `auto` takes no grid without max_steps.
std::int64_t default_max_failures(const Draft& draft) {
  const bool ends_itself = draft.algorithm.name == "grid" || draft.algorithm.name == "pbt";
  const bool ends = ends_itself || draft.max_steps || draft.timeout || draft.no_improvement;
  return ends ? 0 : kMaxFailures;
}

int default_workers(const Draft& draft) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  if (draft.gpus.empty()) return cores;
  return std::max(1, static_cast<int>(draft.gpus.size()) / draft.gpus_per_trial);
}

bool is_plain_path(const std::string& text) {
  const auto is_start = [](char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  if (text.empty() || text == "R" || text == "M" || text == "C") return false;
  if (text.starts_with("R.") || text.starts_with("M.") || text.starts_with("C.")) return false;
  char before = '.';
  for (const char c : text) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    const bool fits = before == '.' ? is_start(c) : is_start(c) || digit || c == '.';
    if (!fits) return false;
    before = c;
  }
  return before != '.';
}

}  // namespace

Result<json::Value> read_study_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return failure(Code::kNotFound, "reading the study file {}: {}", path, errno_text(errno));
  std::ostringstream text;
  text << file.rdbuf();
  Result<json::Value> document = json::parse_yaml_one(text.str());
  if (!document) return failure(document.error().with_context(path));
  if (document->as_object() == nullptr) {
    return failure(Code::kInvalid, "{}: a study file is a map of keys", path);
  }
  return *std::move(document);
}

Result<std::chrono::milliseconds> parse_duration(const json::Value& value) {
  std::string text = plain_text(from_json(value));
  double factor = 1;
  constexpr std::string_view kUnits = "smhd";
  constexpr std::array<double, 4> kSeconds{1, 60, 3600, 86400};
  if (const std::size_t unit = text.empty() ? kUnits.npos : kUnits.find(text.back());
      unit != kUnits.npos) {
    factor = kSeconds[unit];
    text.pop_back();
  }
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const double seconds = number * factor;
  if (error != std::errc() || end != text.data() + text.size() || !(seconds >= 0) ||
      seconds > 1e9) {
    return failure(wrong("a time as seconds, or like 90s, 1.5m, 2h", value));
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000)));
}

Result<tune::Expr> parse_target(const std::string& text) {
  if (is_plain_path(text)) {
    tune::Expr expr = tune::R;
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, '.');) expr = expr[part];
    return expr;
  }
  try {
    return tune::Expr::parse(text);
  } catch (const UsageError& error) {
    return failure(Code::kInvalid, "{}", error.what());
  }
}

Result<StudyPlan> make_plan(const json::Value& document) {
  DIVISI_CHECK(document.as_object() != nullptr, "the caller made sure of it");
  Draft draft;
  if (Status status = read_keys(*document.as_object(), draft); !status.ok()) return failure(status);
  if (Status status = check_draft(draft); !status.ok()) return failure(status);
  const Inject inject = inject_of(draft);
  if (Status status = check_command(draft, inject); !status.ok()) return failure(status);
  const std::int64_t max_failures = draft.max_failures.value_or(default_max_failures(draft));
  StudyPlan plan{.name = draft.name,
                 .command = std::move(draft.command),
                 .template_file = std::move(draft.template_file),
                 .python = std::move(draft.python),
                 .missing = draft.missing,
                 .inject = inject,
                 .space = *std::move(draft.space),
                 .targets = std::move(draft.targets),
                 .stop_when = std::move(draft.stop_when),
                 .concerns = std::move(draft.concerns),
                 .algorithm = std::move(draft.algorithm),
                 .prune = std::move(draft.prune),
                 .max_steps = draft.max_steps,
                 .no_improvement = draft.no_improvement,
                 .max_failures = max_failures,
                 .workers = draft.workers.value_or(default_workers(draft)),
                 .tries = draft.tries,
                 .timeout = draft.timeout,
                 .trial_timeout = draft.trial_timeout,
                 .grace = draft.grace,
                 .storage = std::move(draft.storage),
                 .folder = draft.folder.empty() ? draft.name : std::move(draft.folder),
                 .env = std::move(draft.env),
                 .gpus = std::move(draft.gpus),
                 .gpus_per_trial = draft.gpus_per_trial,
                 .resume = draft.resume,
                 .allow_space_change = draft.allow_space_change,
                 .require_exit_zero = draft.require_exit_zero};
  // Options are checked before anything runs.
  DIVISI_TRY(const tune::Sampler sampler, make_sampler(plan));
  if (plan.prune) {
    DIVISI_TRY(const tune::Pruner pruner, make_pruner(*plan.prune, plan.targets.front().maximize));
  }
  return plan;
}

}  // namespace divisi::tune_run
