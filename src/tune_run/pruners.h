// The pruner of a study, by its name and options.
#pragma once

#include "base/status.h"
#include "divisi/pruner.h"

#include <string>
#include <vector>

namespace divisi::tune_run {

struct NamedOptions;

std::vector<std::string> pruner_names();

// Fails for a name or an option that is not known, with the nearest one.
Result<tune::Pruner> make_pruner(const NamedOptions& prune, bool maximize);

}  // namespace divisi::tune_run
