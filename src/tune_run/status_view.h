// A run on the terminal, redrawn in place, or as plain lines.
#pragma once

#include "tune_run/run_state.h"

#include <memory>
#include <string>
#include <vector>

namespace divisi::tune_run {

// "[0, 1, 2]"; more than 24 numbers as ranges: "[0-7, 9, 12-40]".
std::string task_list(std::vector<std::uint64_t> tasks);

// The six lists, and those of pruned tasks if `with_pruned`.
std::string status_table(const RunState& state, bool with_pruned);

// "12/50 trials · 10 ok · 2 failed · 4 running · 0:00:31 · best 0.93 (trial 7)".
std::string progress_line(const RunState& state, const StudyPlan& plan);

// "lr=0.001, layers=3".
std::string variables_text(const StudyPlan& plan, const Value& config);

// The best trials as a table: number, variables, targets, concerns.
std::string rank_table(const StudyPlan& plan, const std::vector<tune::TrialRecord>& best);

// On a terminal the table is redrawn in place; elsewhere each end of a trial is a line.
std::unique_ptr<RunView> make_view(const StudyPlan& plan, int descriptor);
// Shows nothing.
std::unique_ptr<RunView> make_quiet_view();

}  // namespace divisi::tune_run
