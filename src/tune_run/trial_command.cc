#include "tune_run/trial_command.h"

#include "json/yaml.h"
#include "tune_run/python_template.h"
#include "tune_run/value_json.h"

#include <fmt/ranges.h>

#include <cerrno>
#include <ctime>
#include <fstream>
#include <sstream>

namespace divisi::tune_run {
namespace {

Result<std::string> read_template(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return failure(Code::kNotFound, "reading the template {}: {}", path, errno_text(errno));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Files that trials write have times of this clock, which is behind the precise one.
timespec file_time() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return now;
}

}  // namespace

Result<TrialCommands> TrialCommands::open(const StudyPlan& plan, const std::string& folder,
                                          std::string& warning) {
  if (plan.inject != Inject::kPython) return TrialCommands(plan, folder, "");
  DIVISI_TRY(std::string text, read_template(plan.template_file));
  if (plan.missing != Missing::kOk) {
    const auto missing = missing_in_template(text, plan.space.names, plan.python, folder);
    if (!missing) return failure(missing.error().with_context(plan.template_file));
    if (!missing->empty()) {
      warning = fmt::format("main_config of {} has no {}: nothing reads what is tuned",
                            plan.template_file, fmt::join(*missing, ", "));
      if (plan.missing == Missing::kError) return failure(Code::kInvalid, "{}", warning);
    }
  }
  return TrialCommands(plan, folder, std::move(text));
}

std::string TrialCommands::config_file(const TrialFolder& folder) const {
  return folder.path + (plan_.inject == Inject::kYaml ? "/config.yaml" : "/config.json");
}

std::string TrialCommands::main_file(const TrialFolder& folder) const {
  return fmt::format("{}/{}.py", folder_, folder.task);
}

std::vector<std::string> TrialCommands::command(const TrialFolder& folder,
                                                const Value& config) const {
  switch (plan_.inject) {
    case Inject::kPlaceholders: return fill_placeholders(plan_.command, config);
    case Inject::kPython: return {plan_.python, main_file(folder)};
    case Inject::kArgv: {
      std::vector<std::string> words = plan_.command;
      for (std::string& argument : as_arguments(config)) words.push_back(std::move(argument));
      return words;
    }
    default: return plan_.command;
  }
}

Status TrialCommands::write_config(const TrialFolder& folder, const Value& config) const {
  const json::Value document = to_json(config);
  if (plan_.inject == Inject::kPython) {
    const auto text = fill_python_template(template_, config, folder.name);
    if (!text) return text.error().with_context(plan_.template_file);
    return write_file(main_file(folder), *text);
  }
  if (plan_.inject == Inject::kYaml) {
    return write_file(config_file(folder), json::print_yaml(document));
  }
  return write_file(config_file(folder), json::print(document, 2) + "\n");
}

Result<local_trials::ProcessTrial> TrialCommands::make(
    const TrialFolder& folder, std::uint64_t trial, const Value& config, int attempt,
    const std::map<std::string, std::string>& more) const {
  if (Status status = write_config(folder, config); !status.ok()) return failure(status);
  local_trials::ProcessTrial process{.task = folder.task, .command = command(folder, config)};
  for (const auto& [name, value] : plan_.env) process.environment[name] = value;
  if (plan_.inject == Inject::kEnv) {
    for (const auto& [name, value] : as_environment(config)) process.environment[name] = value;
  }
  for (const auto& [name, value] : more) process.environment[name] = value;
  process.environment["HPO_TRIAL_ID"] = std::to_string(trial);
  process.environment["HPO_TASK_ID"] = std::to_string(folder.task);
  process.environment["HPO_TASK_NAME"] = folder.name;
  process.environment["HPO_PROJECT"] = plan_.name;
  process.environment["HPO_ATTEMPT"] = std::to_string(attempt);
  process.environment["HPO_RESULT_FILE"] = folder.path + "/result.json";
  process.environment["HPO_METRICS_FILE"] = folder.path + "/metrics.jsonl";
  if (plan_.inject != Inject::kPython) process.environment["HPO_CONFIG"] = config_file(folder);
  if (plan_.inject == Inject::kPython) process.folder = folder_;
  process.log_file = folder.path + "/log.txt";
  process.metrics_file = folder.path + "/metrics.jsonl";
  process.time_limit = plan_.trial_timeout;
  return process;
}

local_trials::ResultPlaces TrialCommands::places(const TrialFolder& folder) const {
  local_trials::ResultPlaces places{.result_file = folder.path + "/result.json",
                                    .started = file_time()};
  places.folders.push_back(folder_ + "/" + folder.name);
  places.folders.push_back(folder.path);
  return places;
}

}  // namespace divisi::tune_run
