// Runs a study: asks the algorithm, starts processes, reads results, records all of it.
//
//   DIVISI_TRY(RunOutcome outcome, run_study(plan, view, signals.descriptor(), take_signal));
//
// One thread does everything, in one wait for whatever happens next. The end of a trial is in the
// storage before the next one starts, so killing this process at any point loses no finished trial.
#pragma once

#include "base/status.h"
#include "tune_run/run_state.h"
#include "tune_run/study_data.h"
#include "tune_run/study_plan.h"

#include <functional>
#include <optional>

namespace divisi::tune_run {

// How the user interrupts a run.
struct Interrupts {
  int descriptor = -1;                           // readable when there is one
  std::function<int()> take = [] { return 0; };  // how many came since the last call
};

struct RunOutcome {
  RunState state;
  bool interrupted = false;
  std::string last_error;  // of a trial that failed
  StudyData data;          // the study as it is now
};

// Fails when the study cannot be opened or written, or a program not be started; what ended before
// is stored.
Result<RunOutcome> run_study(const StudyPlan& plan, RunView& view, const Interrupts& interrupts);

// The first `count` commands that would run, as shell lines. Starts and stores nothing.
Result<std::vector<std::string>> dry_run(const StudyPlan& plan, int count);

}  // namespace divisi::tune_run
