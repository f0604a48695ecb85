#include "tune_run/queries.h"

#include "divisi/error.h"
#include "divisi/importance.h"
#include "json/value.h"
#include "json/yaml.h"
#include "tune/numbers.h"
#include "tune_run/value_json.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

namespace divisi::tune_run {
namespace {

std::string time_text(double seconds) {
  if (seconds <= 0) return "";
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(static_cast<std::time_t>(seconds)));
}

tune::Cell query_cell(const Value& value) {
  if (value.is_nil()) return {};
  if (const auto* whole = value.get_if<std::int64_t>()) return *whole;
  if (const auto* number = value.get_if<double>()) return *number;
  return plain_text(value);
}

std::string goals_text(const tune::StudySpec& spec) {
  std::vector<std::string> goals;
  for (std::size_t i = 0; i < spec.maximize.size(); ++i) {
    goals.push_back(fmt::format("{} {}", spec.maximize[i] ? "maximize" : "minimize",
                                i < spec.targets.size() ? spec.targets[i] : "target"));
  }
  return fmt::format("{}", fmt::join(goals, ", "));
}

json::Value number_list(const std::vector<double>& numbers) {
  json::Array list;
  for (const double number : numbers) list.push_back(to_json(Value(number)));
  return list;
}

json::Value trial_json(const StudyTrial& trial) {
  const tune::TrialRecord& record = trial.record;
  json::Object object{{"number", static_cast<std::int64_t>(record.id)},
                      {"stage", stage_name(record.stage)},
                      {"values", number_list(record.values)},
                      {"config", to_json(trial.config)}};
  if (!record.returned.empty()) object.emplace_back("return", to_json(from_text(record.returned)));
  if (!record.metrics.empty()) object.emplace_back("metrics", to_json(from_text(record.metrics)));
  if (!record.error.empty()) object.emplace_back("error", record.error);
  object.emplace_back("tries", record.tries);
  object.emplace_back("attempt", record.attempt);
  object.emplace_back("started", record.started);
  object.emplace_back("ended", record.ended);
  json::Array reports;
  for (const auto& [step, value] : record.reports) {
    reports.push_back(json::Array{step, to_json(Value(value))});
  }
  if (!reports.empty()) object.emplace_back("reports", std::move(reports));
  return object;
}

// Quoted where a reader of CSV would take it apart.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_row(const std::vector<std::string>& cells) {
  std::vector<std::string> quoted;
  for (const std::string& cell : cells) quoted.push_back(csv_cell(cell));
  return fmt::format("{}\n", fmt::join(quoted, ","));
}

std::string ranking(const StudyData& data, const std::vector<const StudyTrial*>& best) {
  std::vector<std::string> headers{"#"};
  headers.insert(headers.end(), data.names.begin(), data.names.end());
  for (std::size_t i = 0; i < data.spec.maximize.size(); ++i)
    headers.push_back(data.target_name(i));
  std::vector<std::vector<tune::Cell>> rows;
  for (const StudyTrial* trial : best) {
    std::vector<tune::Cell>& row = rows.emplace_back();
    row.emplace_back(static_cast<std::int64_t>(trial->record.id));
    for (const Value& value : trial->variables) row.push_back(query_cell(value));
    for (const double value : trial->record.values) row.emplace_back(value);
    row.resize(headers.size());
  }
  return tune::format_table(headers, rows, tune::TableStyle::kPsql);
}

std::size_t count_of(const StudyData& data, tune::TrialStage stage) {
  return static_cast<std::size_t>(std::ranges::count_if(
      data.trials, [&](const StudyTrial& trial) { return trial.record.stage == stage; }));
}

}  // namespace

Result<std::string> list_studies(const std::string& url) {
  try {
    std::vector<std::vector<tune::Cell>> rows;
    for (const tune::StudySummary& study : tune::Study::list(url)) {
      rows.push_back({study.spec.name, study.spec.algorithm, goals_text(study.spec),
                      static_cast<std::int64_t>(study.finished),
                      static_cast<std::int64_t>(study.ok), static_cast<std::int64_t>(study.running),
                      time_text(study.spec.created)});
    }
    return tune::format_table(
               {"study", "algorithm", "goal", "finished", "ok", "running", "created"}, rows,
               tune::TableStyle::kPsql) +
           "\n";
  } catch (const Error& error) {
    return failure(error.code(), "{}", error.what());
  }
}

std::string show_study(const StudyData& data, std::size_t rows) {
  std::string text = fmt::format("study {}: {}, algorithm {} {}\n", data.spec.name,
                                 goals_text(data.spec), data.spec.algorithm, data.spec.options);
  text += fmt::format(
      "{} trials: {} ok, {} failed, {} skipped, {} pruned, {} running, {} waiting\n",
      data.trials.size(), count_of(data, tune::TrialStage::kOk),
      count_of(data, tune::TrialStage::kFail), count_of(data, tune::TrialStage::kSkip),
      count_of(data, tune::TrialStage::kPruned), count_of(data, tune::TrialStage::kRunning),
      count_of(data, tune::TrialStage::kWaiting));
  std::vector<const StudyTrial*> best =
      data.spec.maximize.size() > 1 ? data.pareto() : data.ranked();
  if (best.size() > rows) best.resize(rows);
  return text + ranking(data, best) + "\n";
}

Result<std::string> show_trial(const StudyData& data, std::uint64_t id) {
  const auto found = std::ranges::find_if(
      data.trials, [&](const StudyTrial& trial) { return trial.record.id == id; });
  if (found == data.trials.end()) {
    return failure(Code::kNotFound, "study {} has no trial {}; it has {} trials", data.spec.name,
                   id, data.trials.size());
  }
  return json::print_yaml(trial_json(*found));
}

Result<std::string> show_best(const StudyData& data) {
  const bool many = data.spec.maximize.size() > 1;
  const std::vector<const StudyTrial*> best = many ? data.pareto() : data.ranked();
  if (best.empty()) {
    return failure(Code::kUnavailable, "no trial of study {} has ended well", data.spec.name);
  }
  if (!many) return json::print(trial_json(*best.front()), 2) + "\n";
  json::Array list;
  for (const StudyTrial* trial : best) list.push_back(trial_json(*trial));
  return json::print(list, 2) + "\n";
}

Result<std::vector<std::pair<std::string, double>>> importance_of(const StudyData& data,
                                                                  bool divergence) {
  std::vector<std::vector<double>> points;
  std::vector<double> values;
  for (const StudyTrial* trial : data.finished()) {
    if (trial->record.raw.size() != data.spaces.size()) continue;
    points.push_back(trial->record.raw);
    values.push_back(trial->record.values[0]);
  }
  tune::ImportanceOptions options{.maximize = data.maximize()};
  if (divergence) options.method = tune::ImportanceMethod::kDivergence;
  std::vector<std::pair<std::string, double>> named;
  try {
    const std::vector<double> shares = tune::importance(data.spaces, points, values, options);
    for (std::size_t i = 0; i < shares.size(); ++i) named.emplace_back(data.names[i], shares[i]);
  } catch (const UsageError& error) {
    return failure(Code::kUnavailable, "study {}: {}", data.spec.name, error.what());
  }
  std::ranges::sort(named, std::greater<>(), &std::pair<std::string, double>::second);
  return named;
}

std::string show_importance(const std::vector<std::pair<std::string, double>>& importance,
                            bool as_json) {
  if (as_json) {
    json::Object object;
    for (const auto& [name, share] : importance) object.emplace_back(name, share);
    return json::print(object, 2) + "\n";
  }
  std::vector<std::vector<tune::Cell>> rows;
  for (const auto& [name, share] : importance) rows.push_back({name, share});
  return tune::format_table({"variable", "importance"}, rows, tune::TableStyle::kPsql) + "\n";
}

std::string export_csv(const StudyData& data) {
  std::vector<std::string> header{"number", "stage"};
  for (std::size_t i = 0; i < data.spec.maximize.size(); ++i) header.push_back(data.target_name(i));
  header.insert(header.end(), data.names.begin(), data.names.end());
  for (const char* name : {"started", "ended", "tries", "error"}) header.emplace_back(name);
  std::string text = csv_row(header);
  for (const StudyTrial& trial : data.trials) {
    const tune::TrialRecord& record = trial.record;
    std::vector<std::string> row{std::to_string(record.id), std::string(stage_name(record.stage))};
    for (std::size_t i = 0; i < data.spec.maximize.size(); ++i) {
      row.push_back(i < record.values.size() ? fmt::format("{}", record.values[i]) : "");
    }
    for (const Value& value : trial.variables)
      row.push_back(value.is_nil() ? "" : plain_text(value));
    row.push_back(fmt::format("{:.3f}", record.started));
    row.push_back(fmt::format("{:.3f}", record.ended));
    row.push_back(std::to_string(record.tries));
    row.push_back(record.error);
    text += csv_row(row);
  }
  return text;
}

std::string export_json(const StudyData& data) {
  json::Array trials;
  for (const StudyTrial& trial : data.trials) trials.push_back(trial_json(trial));
  json::Array directions;
  for (std::size_t i = 0; i < data.spec.maximize.size(); ++i) {
    directions.emplace_back(data.maximize(i) ? "maximize" : "minimize");
  }
  json::Array targets;
  for (const std::string& target : data.spec.targets) targets.emplace_back(target);
  const json::Value document =
      json::Object{{"name", data.spec.name},
                   {"directions", std::move(directions)},
                   {"targets", std::move(targets)},
                   {"algorithm", data.spec.algorithm},
                   {"options", json::parse(data.spec.options).value_or(json::Value())},
                   {"space", json::parse(data.spec.space).value_or(json::Value(data.spec.space))},
                   {"created", data.spec.created},
                   {"trials", std::move(trials)}};
  return json::print(document, 2) + "\n";
}

}  // namespace divisi::tune_run
