// The process of a try: its command, environment and files.
#pragma once

#include "base/status.h"
#include "divisi/value.h"
#include "local_trials/local_trials.h"
#include "local_trials/trial_result.h"
#include "tune_run/study_plan.h"
#include "tune_run/trial_folder.h"

#include <cstdint>
#include <map>
#include <string>

namespace divisi::tune_run {

// Fills commands and templates of one study.
class TrialCommands {
 public:
  // Reads the template, and checks it against the space. What it lacks is added to `warning`.
  static Result<TrialCommands> open(const StudyPlan& plan, const std::string& folder,
                                    std::string& warning);

  // Writes what the process reads, and returns how to start it. `more`: of its environment.
  Result<local_trials::ProcessTrial> make(
      const TrialFolder& folder, std::uint64_t trial, const Value& config, int attempt,
      const std::map<std::string, std::string>& more = {}) const;
  // Where its result will be.
  local_trials::ResultPlaces places(const TrialFolder& folder) const;
  // The command alone.
  std::vector<std::string> command(const TrialFolder& folder, const Value& config) const;

 private:
  TrialCommands(const StudyPlan& plan, std::string folder, std::string text)
      : plan_(plan), folder_(std::move(folder)), template_(std::move(text)) {}
  std::string config_file(const TrialFolder& folder) const;
  std::string main_file(const TrialFolder& folder) const;
  Status write_config(const TrialFolder& folder, const Value& config) const;

  const StudyPlan& plan_;
  std::string folder_;
  std::string template_;  // its text
};

}  // namespace divisi::tune_run
