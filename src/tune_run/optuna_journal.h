// Studies as journals of Optuna's JournalStorage: a JSON object per line, one for each change.
//
// What Optuna has no place for (return values, configurations, the space itself) is in user
// attributes named "divisi", from which import_optuna() restores it.
#pragma once

#include "base/status.h"
#include "tune_run/study_data.h"

#include <cstddef>
#include <string>
#include <vector>

namespace divisi::tune_run {

std::string export_optuna(const StudyData& data);

struct ImportedStudy {
  std::string name;
  std::size_t trials = 0;
  std::size_t left_out = 0;  // they do not have all variables
};

// Adds the journal's studies, or the one of that name, to a storage. Running trials become waiting
// ones; reports are not kept. Fails with the line that is wrong, and for a name that the storage
// has already.
Result<std::vector<ImportedStudy>> import_optuna(const std::string& file, const std::string& url,
                                                 const std::string& name);

}  // namespace divisi::tune_run
