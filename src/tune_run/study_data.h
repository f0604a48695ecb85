// A study as its viewers see it: names, values and ends, read once.
#pragma once

#include "base/status.h"
#include "divisi/study.h"
#include "divisi/value.h"

#include <optional>
#include <string>
#include <vector>

namespace divisi::tune_run {

struct StudyTrial {
  tune::TrialRecord record;
  Value config;
  std::vector<Value> variables;  // one for each of StudyData::names; nil where it has none
};

struct StudyData {
  tune::StudySpec spec;
  std::vector<std::string> names;   // of the variables
  std::vector<tune::Space> spaces;  // likewise
  std::vector<StudyTrial> trials;   // by number

  // "reward" for R['reward'], other expressions as they are; "target" if the study does not say.
  std::string target_name(std::size_t index = 0) const;
  bool maximize(std::size_t index = 0) const;
  // Those that ended well, in their order.
  std::vector<const StudyTrial*> finished() const;
  // The best first; of several objectives the ones that no other trial beats in all of them.
  std::vector<const StudyTrial*> ranked() const;
  std::vector<const StudyTrial*> pareto() const;
};

StudyData read_study(const tune::Study& study);
// Without a name the only study there.
Result<StudyData> load_study(const std::string& url, const std::string& name);

}  // namespace divisi::tune_run
