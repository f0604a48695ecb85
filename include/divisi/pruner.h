// Pruners: which running trials are not worth finishing, told by what they report on their way.
//
//   Pruner pruner = Pruner::median({.maximize = true});
//   pruner.report(trial, step, reward);
//   if (pruner.should_prune(trial)) ...            // ends early
//   pruner.finish(trial, TrialState::kOk);         // now others are compared with it
//
// divisi/tune.h has the same for objectives: TrialHandle. docs/tuner.md.
#pragma once

#include "divisi/export.h"
#include "divisi/sampler.h"

#include <cstdint>
#include <memory>
#include <optional>

namespace divisi::tune {

// For Pruner::median and Pruner::percentile.
struct PercentileOptions {
  bool maximize = false;            // whether larger values are better
  std::int64_t startup_trials = 5;  // nothing is pruned before so many trials have ended well
  std::int64_t warmup_steps = 0;    // nor at an earlier step than this
  std::int64_t interval_steps = 1;  // steps between two checks, counted from warmup_steps
  std::int64_t min_trials = 1;      // with a value at that step
  // Whether a trial that ended well before a step counts there, with its last value. For trials
  // that end as soon as they have reached something: those that still run are the slower ones.
  bool count_ended = false;
};

// For Pruner::successive_halving.
struct HalvingOptions {
  bool maximize = false;  // whether larger values are better
  // The step of the first check; nothing: a hundredth of the steps of the trials that ended well.
  std::optional<std::int64_t> min_resource = 1;
  std::int64_t reduction_factor = 4;         // one of so many goes on at each check
  std::int64_t min_early_stopping_rate = 0;  // checks that are left out at the beginning
  std::int64_t bootstrap_count = 0;          // a check lets pass until it has seen more than these
};

// For Pruner::hyperband.
struct HyperbandOptions {
  bool maximize = false;          // whether larger values are better
  std::int64_t min_resource = 1;  // the step of the first check of the first bracket
  // The steps of a whole trial; nothing: those of the first trials that ended well, before which
  // none is pruned.
  std::optional<std::int64_t> max_resource = std::nullopt;
  std::int64_t reduction_factor = 3;  // one of so many goes on at each check
  std::int64_t bootstrap_count = 0;   // a check lets pass until it has seen more than these
};

// For Pruner::threshold.
struct ThresholdOptions {
  std::optional<double> lower = std::nullopt;  // a smaller value is pruned
  std::optional<double> upper = std::nullopt;  // a larger value is pruned
  std::int64_t warmup_steps = 0;               // nothing is pruned at an earlier step
  std::int64_t interval_steps = 1;             // steps between two checks
};

// For Pruner::patience.
struct PatienceOptions {
  bool maximize = false;      // whether larger values are better
  std::int64_t patience = 1;  // reports without a better value that are borne
  double min_delta = 0;       // what a value must be better by
};

// Decides by reports. Any thread may call; calls run one at a time.
//
// A value that is not a number is worse than every number. Steps of a trial rise: a report for a
// step that is not above the last one is ignored. A report costs the logarithm of the number of
// trials; memory is 8 bytes for each report of a trial that ended well (percentile, median) or for
// each check of a trial (successive halving, Hyperband), at most 128 MiB, beyond which every second
// value is forgotten.
class DIVISI_API Pruner {
 public:
  // Prunes nothing.
  static Pruner none();
  // Prunes what is worse at its step than the median of the trials that ended well.
  static Pruner median(const PercentileOptions& options = {});
  // Prunes what is not among the best `percentile` percent of them at its step, 0 to 100. Throws
  // UsageError, like all below: numbers out of range.
  static Pruner percentile(double percentile, const PercentileOptions& options = {});
  // Asynchronous successive halving (ASHA): at steps that grow by the reduction factor, the best
  // one of so many goes on.
  static Pruner successive_halving(const HalvingOptions& options = {});
  // Several successive halvings, which begin their checks the later the fewer trials they have. The
  // number of a trial says which one it is in.
  static Pruner hyperband(const HyperbandOptions& options = {});
  // Prunes values outside of limits.
  static Pruner threshold(const ThresholdOptions& options);
  // Prunes what has not become better for a while.
  static Pruner patience(const PatienceOptions& options);
  // Asks another pruner then.
  static Pruner patience(const PatienceOptions& options, const Pruner& other);

  Pruner(Pruner&&) noexcept;
  Pruner& operator=(Pruner&&) noexcept;
  ~Pruner();

  // One with the same settings in the given direction, which knows of no trial.
  Pruner anew(bool maximize) const;

  // What a trial has reached at a step, from 0. Throws UsageError: a negative step.
  void report(std::uint64_t trial_id, std::int64_t step, double value);
  // Whether the trial should end, by its last report. Where an answer was yes, it stays yes.
  bool should_prune(std::uint64_t trial_id);
  // The end of a trial or of a try; afterwards its number may report from the beginning.
  void finish(std::uint64_t trial_id, TrialState state);

 private:
  struct State;
  explicit Pruner(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace divisi::tune
