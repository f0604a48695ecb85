// What a Pruner runs: one rule, called by one thread at a time.
#pragma once

#include "base/status.h"
#include "divisi/pruner.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

namespace divisi::tune {

// Values in one order, the best one first. NaN is worse than every number.
struct ReportOrder {
  bool maximize = false;

  bool better(double a, double b) const;
  double best(double a, double b) const { return better(b, a) ? b : a; }
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
};

// What one running trial has reported.
class Reports {
 public:
  struct Entry {
    std::int64_t step;
    double value;
    double best;  // of this one and all before
  };

  // `kept`: how many of the last entries a rule looks at.
  Reports(ReportOrder direction, std::size_t kept) : direction_(direction), kept_(kept) {}

  // Ignored: a step that is not above the last one.
  void add(std::int64_t step, double value);
  bool empty() const { return entries_.empty(); }
  const std::deque<Entry>& entries() const { return entries_; }
  const Entry& last() const { return entries_.back(); }
  // The best value of the last `n` entries, which are kept.
  double best_of_last(std::size_t n) const;
  // Whether the last report is the first one since a check was due: checks are due at
  // warmup + k * interval.
  bool check_due(std::int64_t warmup, std::int64_t interval) const;

 private:
  ReportOrder direction_;
  std::size_t kept_;
  std::deque<Entry> entries_;
};

// Values of many trials at one place, sorted: the best one first.
class Standings {
 public:
  explicit Standings(ReportOrder direction) : direction_(direction) {}

  // Of numbers, not NaN.
  void add(double value);
  void add_all(const std::vector<double>& values);
  std::size_t size() const { return values_.size(); }
  // The value that `percent` of the others are better than or equal to, between two of them
  // linearly; at least one value is there.
  double percentile(double percent) const;
  // The value at a rank, from 0.
  double at(std::size_t rank) const { return values_[rank]; }
  // Forgets every second value.
  void thin();

 private:
  ReportOrder direction_;
  std::vector<double> values_;
};

class PruningRule {
 public:
  virtual ~PruningRule() = default;
  // The same settings in another direction.
  virtual std::unique_ptr<PruningRule> anew(bool maximize) const = 0;
  virtual ReportOrder direction() const = 0;
  // How many of the last reports of a trial it looks at.
  virtual std::size_t looks_back() const { return 2; }
  // `reports` is not empty. Not called again for a trial once it said yes.
  virtual bool prune(std::uint64_t trial_id, const Reports& reports) = 0;
  // The end of a trial; `reports` may be empty.
  virtual void finish(std::uint64_t trial_id, const Reports& reports, TrialState state) = 0;
};

Result<std::unique_ptr<PruningRule>> make_percentile_rule(double percentile,
                                                          const PercentileOptions& options);
Result<std::unique_ptr<PruningRule>> make_halving_rule(const HalvingOptions& options);
Result<std::unique_ptr<PruningRule>> make_hyperband_rule(const HyperbandOptions& options);
Result<std::unique_ptr<PruningRule>> make_threshold_rule(const ThresholdOptions& options);
// `other` may be null.
Result<std::unique_ptr<PruningRule>> make_patience_rule(const PatienceOptions& options,
                                                        std::unique_ptr<PruningRule> other);
std::unique_ptr<PruningRule> make_no_rule();

// A number from `lowest` on.
Status check_at_least(const char* name, std::int64_t value, std::int64_t lowest);

}  // namespace divisi::tune
