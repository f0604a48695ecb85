// Rules that compare a trial with those that ended well: median and percentile; and with itself or
// with numbers: threshold, patience, none.
#include "tune/pruning_rule.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace divisi::tune {
namespace {

constexpr std::size_t kMostReports = std::size_t{1} << 20;  // of one trial that are remembered
constexpr std::size_t kMostValues = std::size_t{1} << 24;   // of all trials: 128 MiB

class NoRule final : public PruningRule {
 public:
  std::unique_ptr<PruningRule> anew(bool) const override { return std::make_unique<NoRule>(); }
  ReportOrder direction() const override { return {}; }
  bool prune(std::uint64_t, const Reports&) override { return false; }
  void finish(std::uint64_t, const Reports&, TrialState) override {}
};

class PercentileRule final : public PruningRule {
 public:
  PercentileRule(double percentile, const PercentileOptions& options)
      : percentile_(percentile), options_(options) {}

  std::unique_ptr<PruningRule> anew(bool maximize) const override {
    PercentileOptions options = options_;
    options.maximize = maximize;
    return std::make_unique<PercentileRule>(percentile_, options);
  }

  ReportOrder direction() const override { return {options_.maximize}; }
  std::size_t looks_back() const override { return kMostReports; }

  bool prune(std::uint64_t, const Reports& reports) override {
    if (finished_ == 0 || finished_ < options_.startup_trials) return false;
    if (!reports.check_due(options_.warmup_steps, options_.interval_steps)) return false;
    const Reports::Entry& last = reports.last();
    if (std::isnan(last.best)) return true;
    const auto found = steps_.find(last.step);
    if (!options_.count_ended) return found != steps_.end() && is_behind(last, found->second);
    Standings others = found == steps_.end() ? Standings(direction()) : found->second;
    others.add_all(ended_before(last.step));
    return is_behind(last, others);
  }

  void finish(std::uint64_t, const Reports& reports, TrialState state) override {
    if (state != TrialState::kOk) return;
    ++finished_;
    if (options_.count_ended && !reports.empty() && !std::isnan(reports.last().value)) {
      ended_.push_back({reports.last().step, reports.last().value});
    }
    for (const Reports::Entry& entry : reports.entries()) {
      if (std::isnan(entry.value)) continue;
      steps_.try_emplace(entry.step, direction()).first->second.add(entry.value);
      ++values_;
    }
    if (values_ > kMostValues) thin();
  }

 private:
  struct Ended {
    std::int64_t step;  // of the last report
    double value;
  };

  bool is_behind(const Reports::Entry& last, const Standings& others) const {
    if (others.size() == 0 || std::cmp_less(others.size(), options_.min_trials)) return false;
    return direction().better(others.percentile(percentile_), last.best);
  }

  std::vector<double> ended_before(std::int64_t step) const {
    std::vector<double> values;
    for (const Ended& one : ended_) {
      if (one.step < step) values.push_back(one.value);
    }
    return values;
  }

  void thin() {
    values_ = 0;
    for (auto& [step, standings] : steps_) {
      standings.thin();
      values_ += standings.size();
    }
  }

  const double percentile_;
  const PercentileOptions options_;
  std::int64_t finished_ = 0;
  std::size_t values_ = 0;
  std::unordered_map<std::int64_t, Standings> steps_;  // of trials that ended well
  std::vector<Ended> ended_;                           // the same trials, with count_ended
};

class ThresholdRule final : public PruningRule {
 public:
  explicit ThresholdRule(const ThresholdOptions& options) : options_(options) {}

  // The limits are the same in both directions.
  std::unique_ptr<PruningRule> anew(bool) const override {
    return std::make_unique<ThresholdRule>(options_);
  }
  ReportOrder direction() const override { return {}; }

  bool prune(std::uint64_t, const Reports& reports) override {
    if (!reports.check_due(options_.warmup_steps, options_.interval_steps)) return false;
    const double value = reports.last().value;
    return std::isnan(value) || (options_.lower && value < *options_.lower) ||
           (options_.upper && value > *options_.upper);
  }
  void finish(std::uint64_t, const Reports&, TrialState) override {}

 private:
  const ThresholdOptions options_;
};

class PatienceRule final : public PruningRule {
 public:
  PatienceRule(const PatienceOptions& options, std::unique_ptr<PruningRule> other)
      : options_(options), other_(std::move(other)) {}

  std::unique_ptr<PruningRule> anew(bool maximize) const override {
    PatienceOptions options = options_;
    options.maximize = maximize;
    return std::make_unique<PatienceRule>(options, other_ ? other_->anew(maximize) : nullptr);
  }

  ReportOrder direction() const override { return {options_.maximize}; }
  std::size_t looks_back() const override {
    return std::max(window() + 1, other_ ? other_->looks_back() : 0);
  }

  bool prune(std::uint64_t trial_id, const Reports& reports) override {
    if (reports.entries().size() <= window()) return false;
    const double before = reports.entries()[reports.entries().size() - window() - 1].best;
    const double since = reports.best_of_last(window());
    const double borne = before + (options_.maximize ? -options_.min_delta : options_.min_delta);
    if (!direction().better(borne, since)) return false;
    return other_ == nullptr || other_->prune(trial_id, reports);
  }

  void finish(std::uint64_t trial_id, const Reports& reports, TrialState state) override {
    if (other_) other_->finish(trial_id, reports, state);
  }

 private:
  std::size_t window() const { return static_cast<std::size_t>(options_.patience) + 1; }

  const PatienceOptions options_;
  const std::unique_ptr<PruningRule> other_;
};

Status check_interval(std::int64_t warmup, std::int64_t interval) {
  DIVISI_TRY_STATUS(check_at_least("warmup_steps", warmup, 0));
  return check_at_least("interval_steps", interval, 1);
}

}  // namespace

std::unique_ptr<PruningRule> make_no_rule() {
  return std::make_unique<NoRule>();
}

Result<std::unique_ptr<PruningRule>> make_percentile_rule(double percentile,
                                                          const PercentileOptions& options) {
  if (!(percentile >= 0 && percentile <= 100)) {
    return failure(Code::kInvalid, "a pruner's percentile is from 0 to 100, not {}", percentile);
  }
  Status checked = check_interval(options.warmup_steps, options.interval_steps);
  if (checked.ok()) checked = check_at_least("startup_trials", options.startup_trials, 0);
  if (checked.ok()) checked = check_at_least("min_trials", options.min_trials, 1);
  if (!checked.ok()) return failure(std::move(checked));
  return std::make_unique<PercentileRule>(percentile, options);
}

Result<std::unique_ptr<PruningRule>> make_threshold_rule(const ThresholdOptions& options) {
  Status checked = check_interval(options.warmup_steps, options.interval_steps);
  if (!checked.ok()) return failure(std::move(checked));
  if (!options.lower && !options.upper) {
    return failure(Code::kInvalid, "a threshold pruner needs lower, upper or both");
  }
  const auto is_nan = [](const std::optional<double>& limit) {
    return limit && std::isnan(*limit);
  };
  if (is_nan(options.lower) || is_nan(options.upper)) {
    return failure(Code::kInvalid, "a limit of a threshold pruner is not a number");
  }
  if (options.lower && options.upper && *options.lower > *options.upper) {
    return failure(Code::kInvalid, "a threshold pruner's lower limit {} is above the upper one, {}",
                   *options.lower, *options.upper);
  }
  return std::make_unique<ThresholdRule>(options);
}

Result<std::unique_ptr<PruningRule>> make_patience_rule(const PatienceOptions& options,
                                                        std::unique_ptr<PruningRule> other) {
  constexpr std::int64_t kLongest = std::int64_t{1} << 20;  // reports that a trial remembers
  Status checked = check_at_least("patience", options.patience, 0);
  if (!checked.ok()) return failure(std::move(checked));
  if (options.patience > kLongest - 2) {
    return failure(Code::kInvalid, "a pruner's patience is at most {}, not {}", kLongest - 2,
                   options.patience);
  }
  if (!(options.min_delta >= 0)) {
    return failure(Code::kInvalid, "a pruner's min_delta must be 0 or more, not {}",
                   options.min_delta);
  }
  return std::make_unique<PatienceRule>(options, std::move(other));
}

}  // namespace divisi::tune
