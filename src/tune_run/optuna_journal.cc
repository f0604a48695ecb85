#include "tune_run/optuna_journal.h"

#include "divisi/error.h"
#include "divisi/tune.h"
#include "json/value.h"
#include "tune/numbers.h"
#include "tune_run/search_space.h"
#include "tune_run/value_json.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>

namespace divisi::tune_run {
namespace {

// The operations and states as Optuna numbers them.
enum Operation {
  kCreateStudy = 0,
  kDeleteStudy = 1,
  kStudyUserAttr = 2,
  kCreateTrial = 4,
  kTrialParam = 5,
  kTrialState = 6,
  kTrialUserAttr = 8,
  kTrialSystemAttr = 9,
};
enum OptunaState { kRunning = 0, kComplete = 1, kPruned = 2, kFail = 3, kWaiting = 4 };
constexpr int kMinimize = 1;
constexpr int kMaximize = 2;
constexpr std::string_view kAttribute = "divisi";

// --- out ---

json::Value distribution(std::string_view name, json::Object attributes) {
  return json::Object{{"name", name}, {"attributes", std::move(attributes)}};
}

json::Value float_distribution(double low, double high, bool log, json::Value step = {}) {
  return distribution("FloatDistribution",
                      {{"step", std::move(step)}, {"low", low}, {"high", high}, {"log", log}});
}

json::Value int_distribution(double low, double high, bool log, double step = 1) {
  const auto whole = [](double number) { return static_cast<std::int64_t>(number); };
  return distribution(
      "IntDistribution",
      {{"log", log}, {"step", whole(step)}, {"low", whole(low)}, {"high", whole(high)}});
}

// Optuna's alternatives are plain values; others become text.
json::Value plain_choice(const Value& value) {
  const bool nested = value.holds<Value::Array>() || value.holds<Value::Map>();
  return nested ? json::Value(to_text(value)) : to_json(value);
}

// One variable as Optuna sees it: how it is distributed, and its values as numbers.
struct OptunaVariable {
  json::Value distribution;
  std::vector<std::string> choices;  // as JSON, if it has alternatives

  json::Value internal(const Value& value) const {
    if (choices.empty()) return tune::as_number(value).value_or(0);
    const auto found = std::ranges::find(choices, json::print(plain_choice(value)));
    return static_cast<std::int64_t>(found - choices.begin());
  }
};

OptunaVariable categorical(const json::Array& values) {
  OptunaVariable variable;
  for (const json::Value& value : values) variable.choices.push_back(json::print(value));
  variable.distribution = distribution("CategoricalDistribution", {{"choices", values}});
  return variable;
}

// For what has transforms that Optuna does not know: what was seen.
OptunaVariable observed(const StudyData& data, std::size_t index) {
  json::Array seen;
  double low = HUGE_VAL;
  double high = -HUGE_VAL;
  bool numbers = true;
  for (const StudyTrial& trial : data.trials) {
    const Value& value = trial.variables[index];
    if (value.is_nil()) continue;
    const auto number = value.holds<bool>() ? std::nullopt : tune::as_number(value);
    numbers = numbers && number.has_value();
    low = std::min(low, number.value_or(low));
    high = std::max(high, number.value_or(high));
    json::Value choice = plain_choice(value);
    if (std::ranges::find(seen, choice) == seen.end()) seen.push_back(std::move(choice));
  }
  if (seen.empty()) seen.emplace_back();
  if (!numbers || !std::isfinite(low)) return categorical(seen);
  return {float_distribution(low, high, false), {}};
}

// The only transform of a variable, as space_text() stores it: [name, operand, ...].
const json::Array* only_transform(const json::Value& variable) {
  const json::Value* chain = variable.find("transforms");
  if (chain == nullptr || chain->as_array() == nullptr || chain->as_array()->size() != 1) {
    return nullptr;
  }
  const auto* transform = chain->as_array()->front().as_array();
  return transform != nullptr && transform->size() >= 2 ? transform : nullptr;
}

bool has_transforms(const json::Value& variable) {
  const json::Value* chain = variable.find("transforms");
  return chain != nullptr && chain->as_array() != nullptr && !chain->as_array()->empty();
}

double number_at(const json::Value& list, std::size_t index) {
  const auto* items = list.as_array();
  if (items == nullptr || index >= items->size()) return 0;
  return tune::as_number(from_json((*items)[index])).value_or(0);
}

OptunaVariable optuna_variable(const StudyData& data, std::size_t index,
                               const json::Value& stored) {
  const tune::Space& space = data.spaces[index];
  if (!has_transforms(stored)) {
    if (space.kind() == tune::Space::Kind::kContinuous) {
      return {float_distribution(space.lower(), space.upper(), false), {}};
    }
    if (space.kind() == tune::Space::Kind::kSeparate) {
      return {float_distribution(space.lower(), space.upper(), false, space.step()), {}};
    }
    return observed(data, index);
  }
  const json::Array* transform = only_transform(stored);
  const std::string name = transform == nullptr || transform->front().as_string() == nullptr
                               ? ""
                               : *transform->front().as_string();
  if (name == "exp") {
    return {float_distribution(number_at((*transform)[1], 0), number_at((*transform)[1], 1), true),
            {}};
  }
  if (name == "intexp") {
    return {int_distribution(number_at((*transform)[1], 0), number_at((*transform)[1], 1), true),
            {}};
  }
  if (name == "int" && space.kind() == tune::Space::Kind::kSeparate) {
    return {int_distribution(space.lower(), space.upper(), false, space.step()), {}};
  }
  if (name == "choice" && (*transform)[1].as_array() != nullptr) {
    json::Array choices;
    for (const json::Value& item : *(*transform)[1].as_array()) {
      choices.push_back(plain_choice(from_json(item)));
    }
    return categorical(choices);
  }
  return observed(data, index);
}

std::vector<OptunaVariable> optuna_variables(const StudyData& data) {
  const json::Value space = json::parse(data.spec.space).value_or(json::Value());
  const json::Value* stored = space.find("variables");
  std::vector<OptunaVariable> variables;
  for (std::size_t i = 0; i < data.names.size(); ++i) {
    const bool known =
        stored != nullptr && stored->as_array() != nullptr && i < stored->as_array()->size();
    variables.push_back(optuna_variable(data, i, known ? (*stored->as_array())[i] : json::Value()));
  }
  return variables;
}

json::Value optuna_time(double seconds) {
  if (seconds <= 0) return {};
  const auto whole = static_cast<std::time_t>(std::floor(seconds));
  const auto micros = static_cast<int>((seconds - static_cast<double>(whole)) * 1e6);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}", fmt::localtime(whole), micros);
}

OptunaState optuna_state(tune::TrialStage stage) {
  switch (stage) {
    case tune::TrialStage::kOk: return kComplete;
    case tune::TrialStage::kPruned: return kPruned;
    case tune::TrialStage::kFail:
    case tune::TrialStage::kSkip: return kFail;
    case tune::TrialStage::kWaiting: return kWaiting;
    case tune::TrialStage::kRunning: break;
  }
  return kRunning;
}

json::Value own_attributes(const StudyTrial& trial) {
  const tune::TrialRecord& record = trial.record;
  json::Array raw;
  for (const double number : record.raw) raw.emplace_back(number);
  return json::Object{{"config", to_json(trial.config)},
                      {"raw", std::move(raw)},
                      {"stage", stage_name(record.stage)},
                      {"returned", record.returned},
                      {"metrics", record.metrics},
                      {"error", record.error},
                      {"tries", record.tries}};
}

json::Value trial_line(const StudyData& data, const StudyTrial& trial,
                       const std::vector<OptunaVariable>& variables) {
  const tune::TrialRecord& record = trial.record;
  json::Value line = json::Object{{"op_code", kCreateTrial},
                                  {"worker_id", kAttribute},
                                  {"study_id", 0},
                                  {"datetime_start", optuna_time(record.started)},
                                  {"state", static_cast<int>(optuna_state(record.stage))},
                                  {"value", json::Value()},
                                  {"values", json::Value()}};
  json::Array values;
  for (const double value : record.values) values.emplace_back(value);
  if (values.size() == 1) line["value"] = values.front();
  if (values.size() > 1) line["values"] = std::move(values);
  if (is_finished(record.stage)) line["datetime_complete"] = optuna_time(record.ended);
  json::Value distributions = json::Object{};
  json::Value params = json::Object{};
  for (std::size_t i = 0; i < variables.size(); ++i) {
    if (trial.variables[i].is_nil() && variables[i].choices.empty()) continue;
    distributions[data.names[i]] = json::print(variables[i].distribution);
    params[data.names[i]] = variables[i].internal(trial.variables[i]);
  }
  line["distributions"] = std::move(distributions);
  line["params"] = std::move(params);
  line["user_attrs"] = json::Object{{std::string(kAttribute), own_attributes(trial)}};
  line["system_attrs"] = json::Object{};
  json::Value reports = json::Object{};
  for (const auto& [step, value] : record.reports) {
    if (std::isfinite(value)) reports[std::to_string(step)] = value;
  }
  line["intermediate_values"] = std::move(reports);
  return line;
}

// --- in ---

struct JournalTrial {
  int state = kRunning;
  std::vector<double> values;
  std::map<std::string, double> params;
  json::Value own;     // our attribute; null if another program wrote it
  json::Value wanted;  // fixed_params of a trial that waits
};

struct JournalStudy {
  std::string name;
  std::vector<bool> maximize;
  bool deleted = false;
  json::Value own;
  std::vector<JournalTrial> trials;
  std::map<std::string, json::Value> distributions;  // the widest of each parameter
};

double attribute(const json::Value& one, std::string_view name) {
  const json::Value* found = one.find_path({"attributes", name});
  return found == nullptr ? 0 : tune::as_number(from_json(*found)).value_or(0);
}

class JournalReader {
 public:
  Status take(const json::Value& line) {
    const auto operation = line.int_at({"op_code"});
    if (!operation) return {Code::kInvalid, "no op_code"};
    switch (*operation) {
      case kCreateStudy: return create_study(line);
      case kDeleteStudy: return with_study(line, [](JournalStudy& study) { study.deleted = true; });
      case kStudyUserAttr:
        return with_study(line,
                          [&](JournalStudy& study) { take_own(line, "user_attr", study.own); });
      case kCreateTrial: return create_trial(line);
      case kTrialParam: return set_param(line);
      case kTrialState: return set_state(line);
      case kTrialUserAttr:
        return with_trial(line,
                          [&](JournalTrial& trial) { take_own(line, "user_attr", trial.own); });
      case kTrialSystemAttr:
        return with_trial(line, [&](JournalTrial& trial) {
          if (const json::Value* fixed = line.find_path({"system_attr", "fixed_params"})) {
            trial.wanted = *fixed;
          }
        });
      default: return {};  // attributes and reports that a study of ours has no place for
    }
  }

  std::vector<JournalStudy> studies;

 private:
  static void take_own(const json::Value& line, std::string_view key, json::Value& to) {
    if (const json::Value* own = line.find_path({key, kAttribute})) to = *own;
  }

  template <class F>
  Status with_study(const json::Value& line, F change) {
    const auto id = line.int_at({"study_id"});
    if (!id || *id < 0 || static_cast<std::size_t>(*id) >= studies.size()) {
      return {Code::kInvalid, "a study_id that was not created before"};
    }
    change(studies[static_cast<std::size_t>(*id)]);
    return {};
  }

  template <class F>
  Status with_trial(const json::Value& line, F change) {
    const auto id = line.int_at({"trial_id"});
    if (!id || *id < 0 || static_cast<std::size_t>(*id) >= trials_.size()) {
      return {Code::kInvalid, "a trial_id that was not created before"};
    }
    const auto [study, place] = trials_[static_cast<std::size_t>(*id)];
    change(studies[study].trials[place]);
    return {};
  }

  Status create_study(const json::Value& line) {
    JournalStudy study;
    study.name = line.string_at({"study_name"});
    const json::Value* directions = line.find("directions");
    if (study.name.empty() || directions == nullptr || directions->as_array() == nullptr) {
      return {Code::kInvalid, "a study without name or directions"};
    }
    for (const json::Value& one : *directions->as_array()) {
      study.maximize.push_back(one.as_int() != nullptr && *one.as_int() == kMaximize);
    }
    studies.push_back(std::move(study));
    return {};
  }

  Status create_trial(const json::Value& line) {
    JournalTrial trial;
    trial.state = static_cast<int>(line.int_at({"state"}).value_or(kRunning));
    read_values(line, trial);
    if (const json::Value* own = line.find_path({"user_attrs", kAttribute})) trial.own = *own;
    if (const json::Value* fixed = line.find_path({"system_attrs", "fixed_params"})) {
      trial.wanted = *fixed;
    }
    const auto id = line.int_at({"study_id"});
    return with_study(line, [&](JournalStudy& study) {
      const json::Value* params = line.find("params");
      for (std::size_t i = 0;
           params != nullptr && params->as_object() != nullptr && i < params->as_object()->size();
           ++i) {
        const auto& [name, value] = (*params->as_object())[i];
        const json::Value* text = line.find_path({"distributions", name});
        if (text == nullptr || text->as_string() == nullptr) continue;
        add_param(study, trial, name, value, *text->as_string());
      }
      trials_.emplace_back(static_cast<std::size_t>(*id), study.trials.size());
      study.trials.push_back(std::move(trial));
    });
  }

  Status set_param(const json::Value& line) {
    const std::string name(line.string_at({"param_name"}));
    const json::Value* value = line.find("param_value_internal");
    if (name.empty() || value == nullptr)
      return {Code::kInvalid, "a parameter without a name or value"};
    Status status = with_trial(line, [](JournalTrial&) {});
    if (!status.ok()) return status;
    const auto [study, place] = trials_[static_cast<std::size_t>(*line.int_at({"trial_id"}))];
    add_param(studies[study], studies[study].trials[place], name, *value,
              std::string(line.string_at({"distribution"})));
    return {};
  }

  Status set_state(const json::Value& line) {
    return with_trial(line, [&](JournalTrial& trial) {
      trial.state = static_cast<int>(line.int_at({"state"}).value_or(kRunning));
      read_values(line, trial);
    });
  }

  static void read_values(const json::Value& line, JournalTrial& trial) {
    const json::Value* values = line.find("values");
    const json::Value* value = line.find("value");
    if (values != nullptr && values->as_array() != nullptr) {
      trial.values.clear();
      for (const json::Value& one : *values->as_array()) {
        trial.values.push_back(tune::as_number(from_json(one)).value_or(std::nan("")));
      }
    } else if (value != nullptr && !value->is_null()) {
      trial.values = {tune::as_number(from_json(*value)).value_or(std::nan(""))};
    }
  }

  static void add_param(JournalStudy& study, JournalTrial& trial, const std::string& name,
                        const json::Value& value, const std::string& text) {
    trial.params[name] = tune::as_number(from_json(value)).value_or(0);
    Result<json::Value> given = json::parse(text);
    if (!given) return;
    const auto found = study.distributions.find(name);
    if (found == study.distributions.end()) {
      study.distributions[name] = *std::move(given);
      return;
    }
    // The same parameter may have been asked for with other bounds: both are inside of the wider.
    json::Value& widest = found->second;
    if (widest.find_path({"attributes", "low"}) == nullptr) return;
    if (attribute(*given, "low") < attribute(widest, "low")) {
      widest["attributes"]["low"] = *given->find_path({"attributes", "low"});
    }
    if (attribute(*given, "high") > attribute(widest, "high")) {
      widest["attributes"]["high"] = *given->find_path({"attributes", "high"});
    }
  }

  std::vector<std::pair<std::size_t, std::size_t>> trials_;  // study and place there, by trial_id
};

// A distribution in the tagged form of study files. One with a single value is fixed.
json::Value tagged_space(const json::Value& one) {
  const std::string_view name = one.string_at({"name"});
  if (name == "CategoricalDistribution") {
    const json::Value* choices = one.find_path({"attributes", "choices"});
    return json::Object{{"choice", choices == nullptr ? json::Value(json::Array{}) : *choices}};
  }
  const double low = attribute(one, "low");
  const double high = attribute(one, "high");
  const double step = attribute(one, "step");
  const bool log = one.bool_at({"attributes", "log"}).value_or(false);
  const bool whole = name == "IntDistribution";
  if (low == high) {
    return json::Object{
        {"fixed", whole ? json::Value(static_cast<std::int64_t>(low)) : json::Value(low)}};
  }
  if (whole && log) return json::Object{{"lograndint", json::Array{low, high}}};
  if (whole && step > 1) return json::Object{{"qrandint", json::Array{low, high, step}}};
  if (whole) return json::Object{{"randint", json::Array{low, high}}};
  if (log) return json::Object{{"loguniform", json::Array{low, high}}};
  if (step > 0) return json::Object{{"quniform", json::Array{low, high, step}}};
  return json::Object{{"uniform", json::Array{low, high}}};
}

// What the engine would have drawn for Optuna's number.
double raw_of(const json::Value& one, double internal) {
  if (one.string_at({"name"}) == "CategoricalDistribution") return internal;
  if (attribute(one, "low") == attribute(one, "high")) return 0;
  return one.bool_at({"attributes", "log"}).value_or(false) ? std::log(internal) : internal;
}

tune::Told told_of(const JournalTrial& trial) {
  tune::Told told{.values = trial.values};
  if (trial.state == kFail) told = {.state = tune::TrialState::kFail, .error = "failed in Optuna"};
  if (trial.state == kPruned) told.state = tune::TrialState::kPruned;
  const auto text = [&](std::string_view key) { return std::string(trial.own.string_at({key})); };
  if (!trial.own.is_null()) {
    told.returned = text("returned");
    told.metrics = text("metrics");
    told.error = text("error");
    told.tries = static_cast<int>(trial.own.int_at({"tries"}).value_or(1));
    if (text("stage") == "skip") told.state = tune::TrialState::kSkip;
  }
  return told;
}

// A trial that this program exported comes back as it was.
std::optional<tune::GivenTrial> own_trial(const JournalTrial& trial, std::size_t variables) {
  const json::Value* raw = trial.own.find("raw");
  const json::Value* config = trial.own.find("config");
  if (raw == nullptr || config == nullptr || raw->as_array() == nullptr ||
      raw->as_array()->size() != variables) {
    return std::nullopt;
  }
  tune::GivenTrial given{.config = json::print(*config)};
  for (const json::Value& number : *raw->as_array()) {
    given.raw.push_back(tune::as_number(from_json(number)).value_or(0));
  }
  return given;
}

// The numbers of a trial that waits with wanted values.
std::map<std::string, double> wanted_params(const JournalStudy& study, const JournalTrial& trial) {
  std::map<std::string, double> params = trial.params;
  for (const auto& [name, one] : study.distributions) {
    const json::Value* value = trial.wanted.find(name);
    if (value == nullptr) continue;
    const json::Value* choices = one.find_path({"attributes", "choices"});
    if (choices == nullptr || choices->as_array() == nullptr) {
      params[name] = tune::as_number(from_json(*value)).value_or(0);
      continue;
    }
    const auto found = std::ranges::find(*choices->as_array(), *value);
    if (found != choices->as_array()->end()) {
      params[name] = static_cast<double>(found - choices->as_array()->begin());
    }
  }
  return params;
}

std::optional<tune::GivenTrial> foreign_trial(const JournalStudy& study, const JournalTrial& trial,
                                              const SearchSpace& space) {
  const std::map<std::string, double> params = wanted_params(study, trial);
  tune::GivenTrial given;
  for (const std::string& name : space.names) {
    const auto found = params.find(name);
    if (found == params.end()) return std::nullopt;
    given.raw.push_back(raw_of(study.distributions.at(name), found->second));
  }
  given.config = to_text(space.structure.config(given.raw));
  return given;
}

Result<tune::StudySpec> own_spec(const JournalStudy& study) {
  tune::StudySpec spec{.name = study.name, .maximize = study.maximize};
  spec.space = study.own.string_at({"space"});
  spec.algorithm = study.own.string_at({"algorithm"});
  if (const auto options = study.own.string_at({"options"}); !options.empty())
    spec.options = options;
  if (const json::Value* targets = study.own.find("targets");
      targets != nullptr && targets->as_array() != nullptr) {
    for (const json::Value& target : *targets->as_array())
      spec.targets.push_back(plain_text(from_json(target)));
  }
  return spec;
}

Result<tune::Study> new_study(const std::string& url, tune::StudySpec spec) {
  const std::string name = spec.name;
  try {
    return tune::Study::open(url, std::move(spec));
  } catch (const Error& error) {
    if (error.code() != Code::kAlreadyExists) throw;
    return failure(
        Code::kAlreadyExists,
        "the study '{}' exists in {}, and an import adds to none: give another --storage", name,
        url);
  }
}

Result<ImportedStudy> import_one(const JournalStudy& journal, const std::string& url) {
  json::Value tagged = json::Object{};
  for (const auto& [name, one] : journal.distributions) tagged[name] = tagged_space(one);
  if (journal.distributions.empty()) {
    return failure(Code::kInvalid, "study {}: no trial has a parameter, so there is no space",
                   journal.name);
  }
  DIVISI_TRY(const SearchSpace space, parse_space(tagged));
  DIVISI_TRY(tune::StudySpec spec, own_spec(journal));
  const bool ours = !spec.space.empty();
  if (!ours) spec.space = space.text;
  if (spec.algorithm.empty()) spec.algorithm = "optuna";
  while (spec.targets.size() < spec.maximize.size()) spec.targets.emplace_back("value");
  const std::size_t variables = ours ? tune::parse_space_text(spec.space).size() : 0;
  ImportedStudy imported{.name = journal.name};
  std::vector<tune::GivenTrial> given;
  for (const JournalTrial& trial : journal.trials) {
    auto one = ours ? own_trial(trial, variables) : foreign_trial(journal, trial, space);
    if (!one) {
      ++imported.left_out;
      continue;
    }
    const bool ended = trial.state == kComplete || trial.state == kPruned || trial.state == kFail;
    if (ended) one->told = told_of(trial);
    given.push_back(*std::move(one));
  }
  imported.trials = given.size();
  DIVISI_TRY(tune::Study study, new_study(url, std::move(spec)));
  study.add(given);
  study.sync();
  return imported;
}

}  // namespace

std::string export_optuna(const StudyData& data) {
  json::Array directions;
  json::Array targets;
  for (std::size_t i = 0; i < data.spec.maximize.size(); ++i) {
    directions.emplace_back(data.maximize(i) ? kMaximize : kMinimize);
    targets.emplace_back(data.target_name(i));
  }
  const json::Value own = json::Object{{"space", data.spec.space},
                                       {"algorithm", data.spec.algorithm},
                                       {"options", data.spec.options},
                                       {"targets", std::move(targets)}};
  std::string text;
  const auto add = [&](const json::Value& line) { text += json::print(line) + "\n"; };
  add(json::Object{{"op_code", kCreateStudy},
                   {"worker_id", kAttribute},
                   {"study_name", data.spec.name},
                   {"directions", std::move(directions)}});
  add(json::Object{{"op_code", kStudyUserAttr},
                   {"worker_id", kAttribute},
                   {"study_id", 0},
                   {"user_attr", json::Object{{std::string(kAttribute), own}}}});
  const std::vector<OptunaVariable> variables = optuna_variables(data);
  for (const StudyTrial& trial : data.trials) add(trial_line(data, trial, variables));
  return text;
}

Result<std::vector<ImportedStudy>> import_optuna(const std::string& file, const std::string& url,
                                                 const std::string& name) {
  std::ifstream journal(file, std::ios::binary);
  if (!journal)
    return failure(Code::kNotFound, "reading the journal {}: {}", file, errno_text(errno));
  JournalReader reader;
  std::size_t number = 0;
  for (std::string text; std::getline(journal, text);) {
    ++number;
    if (text.empty()) continue;
    const Result<json::Value> line = json::parse(text);
    // The last line may be cut off where a writer was killed; Optuna ignores it as well.
    if (!line && journal.peek() == std::ifstream::traits_type::eof() && number > 1) break;
    const Status status = line ? reader.take(*line) : line.error();
    if (!status.ok()) return failure(status.with_context(fmt::format("{}, line {}", file, number)));
  }
  std::vector<ImportedStudy> imported;
  try {
    for (const JournalStudy& study : reader.studies) {
      if (study.deleted || (!name.empty() && study.name != name)) continue;
      DIVISI_TRY(ImportedStudy one, import_one(study, url));
      imported.push_back(std::move(one));
    }
  } catch (const Error& error) {
    return failure(error.code(), "{}", error.what());
  }
  if (imported.empty()) {
    return failure(Code::kNotFound, "{} has no study{}", file,
                   name.empty() ? "" : " '" + name + "'");
  }
  return imported;
}

}  // namespace divisi::tune_run
