// Population: the trials of a study as segments of a population (algorithm pbt), with their
// checkpoints.
//
//   DIVISI_TRY(Population population, Population::open(plan, study, folder));
//   while (auto record = population.ask(study)) ...        // nothing: all members run, or are done
//   population.ended(record->id, value);
//
// Which member, generation and parent a trial has is stored in its configuration, under
// kSegmentKey, when it is made; so a run that was killed at any point is taken up from the study
// alone. Programs do not see that key: they find their checkpoints in the environment.
#pragma once

#include "base/status.h"
#include "divisi/pbt.h"
#include "divisi/study.h"
#include "tune_run/study_plan.h"

#include <map>
#include <optional>
#include <string>

namespace divisi::tune_run {

inline constexpr std::string_view kPopulationAlgorithm = "pbt";
inline constexpr std::string_view kSegmentKey = "_pbt";

// The options of the plan's algorithm. Fails for those that are not known or out of range.
Result<tune::PbtOptions> read_population_options(const StudyPlan& plan);

class Population {
 public:
  // Takes up what the study has. Fails when another process works on it, when it has trials that
  // are not of this population, and when a checkpoint that is needed is gone.
  static Result<Population> open(const StudyPlan& plan, const tune::Study& study,
                                 const std::string& folder);

  // The next trial to run: one that was left, or a new segment. Throws as the study does, and Error
  // when somebody else made trials.
  std::optional<tune::TrialRecord> ask(tune::Study& study);
  bool done() const { return pbt_.done(); }

  // HPO_CHECKPOINT_SAVE, HPO_CHECKPOINT_LOAD (unless the training begins), HPO_MEMBER and
  // HPO_GENERATION. Removes what an earlier try has saved.
  std::map<std::string, std::string> prepare(const tune::TrialRecord& record) const;
  // Whether the program has saved its state.
  Status check_saved(std::uint64_t id) const;
  // The end of a trial; without a value it failed. Removes checkpoints that nobody needs any more.
  void ended(std::uint64_t id, std::optional<double> value);

 private:
  Population(const StudyPlan& plan, tune::Pbt pbt, std::string folder);
  std::string path_of(std::uint64_t id) const { return folder_ + "/" + std::to_string(id); }

  const StudyPlan* plan_;
  tune::Pbt pbt_;
  tune::Sampler nothing_;                           // the study asks it when no trial waits
  std::string folder_;                              // of checkpoints
  std::map<std::uint64_t, std::uint64_t> running_;  // and what they load; 0: nothing
};

}  // namespace divisi::tune_run
