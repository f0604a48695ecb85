// What a trial has found out, from where its program left it.
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <ctime>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::local_trials {

struct ResultPlaces {
  std::string result_file{};           // $HPO_RESULT_FILE
  std::string last_line{};             // of its output
  std::vector<std::string> folders{};  // where result.json or result.pkl may lie
  timespec started{};                  // files that were changed before are of an earlier trial
};

struct TrialResult {
  json::Value value;
  std::string place;  // "the file PATH" or "the last line of its output"
};

// The first of these that is there:
//   1. $HPO_RESULT_FILE, one JSON document;
//   2. the last line of the output, if it is a number or a JSON object;
//   3. result.json, result.pkl, hpo/result.pkl, hpo/result or hpo/results in one of the folders.
// Pickles are read as data; nothing in them is executed. Links, pipes and files beyond 64 MiB are
// refused. Fails with one line: no result, a stale one, or what is wrong with it.
Result<TrialResult> read_trial_result(const ResultPlaces& places);

// A number as Python or C prints it, "nan" and "inf" included (tagged as studies do), or a JSON
// object. Null for anything else.
json::Value result_of_line(std::string_view line);

}  // namespace divisi::local_trials
