// Plots of a study as SVG files.
#pragma once

#include "base/status.h"
#include "tune_run/study_data.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace divisi::tune_run {

enum class PlotKind {
  kHistory,     // the value of each trial, and the best so far
  kParallel,    // a line per trial over all variables
  kSlice,       // the value over each variable
  kPareto,      // two objectives against each other
  kImportance,  // how much each variable matters
};

Result<PlotKind> parse_plot_kind(std::string_view text);

// Fails where there is nothing to draw: no trial that ended well, one objective for a Pareto plot.
// `importance` is a number per variable, for that kind.
Result<std::string> plot(const StudyData& data, PlotKind kind,
                         const std::vector<std::pair<std::string, double>>& importance = {});

}  // namespace divisi::tune_run
