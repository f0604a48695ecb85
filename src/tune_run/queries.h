// What `divisi tune list`, `show`, `best` and `export` print.
#pragma once

#include "base/status.h"
#include "tune_run/study_data.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace divisi::tune_run {

// A table of all studies of a file.
Result<std::string> list_studies(const std::string& url);
// What the study is about, how far it is, and its best `rows` trials.
std::string show_study(const StudyData& data, std::size_t rows);
// Everything known of a trial. Fails if there is none of that number.
Result<std::string> show_trial(const StudyData& data, std::uint64_t id);
// The configuration, values and number of the best trial as JSON, of several objectives those of
// the Pareto front. Fails if no trial ended well.
Result<std::string> show_best(const StudyData& data);

// How much each variable matters, of all together 1, the largest first. `divergence`: by PED-ANOVA
// instead of fANOVA. Fails for fewer than two trials that ended well.
Result<std::vector<std::pair<std::string, double>>> importance_of(const StudyData& data,
                                                                  bool divergence);
// The same as a table, or as a JSON object.
std::string show_importance(const std::vector<std::pair<std::string, double>>& importance,
                            bool as_json);

// A line per trial: number, stage, values, variables, times, error.
std::string export_csv(const StudyData& data);
// Everything as one JSON document.
std::string export_json(const StudyData& data);

}  // namespace divisi::tune_run
