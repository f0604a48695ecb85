// Successive halving, and Hyperband over several of them.
#include "tune/pruning_rule.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace divisi::tune {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();  // a step

// a * b of numbers from 0 on, or kNever.
std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kNever : product;
}

class HalvingRule final : public PruningRule {
 public:
  explicit HalvingRule(const HalvingOptions& options)
      : options_(options), min_resource_(options.min_resource) {}

  std::unique_ptr<PruningRule> anew(bool maximize) const override {
    HalvingOptions options = options_;
    options.maximize = maximize;
    return std::make_unique<HalvingRule>(options);
  }

  ReportOrder direction() const override { return {options_.maximize}; }

  bool prune(std::uint64_t trial_id, const Reports& reports) override {
    if (!min_resource_) return false;
    std::size_t& passed = passed_.try_emplace(trial_id, 0).first->second;
    const Reports::Entry& last = reports.last();
    while (last.step >= check_step(passed) && check_step(passed) != kNever) {
      if (std::isnan(last.value) || !passes(passed, last.value)) return true;
      ++passed;
    }
    return false;
  }

  void finish(std::uint64_t trial_id, const Reports& reports, TrialState state) override {
    passed_.erase(trial_id);
    if (min_resource_ || state != TrialState::kOk || reports.empty()) return;
    min_resource_ = std::max<std::int64_t>(1, reports.last().step / 100);
  }

 private:
  std::int64_t check_step(std::size_t check) {
    while (check_steps_.size() <= check) {
      std::int64_t step = check_steps_.empty() ? *min_resource_ : check_steps_.back();
      const std::int64_t times = check_steps_.empty() ? options_.min_early_stopping_rate : 1;
      for (std::int64_t i = 0; i < times; ++i) {
        const std::int64_t grown = saturating_product(step, options_.reduction_factor);
        if (grown == step) break;
        step = grown;
      }
      check_steps_.push_back(step);
    }
    return check_steps_[check];
  }

  // Adds the value to those of the check; whether it is among the best ones.
  bool passes(std::size_t check, double value) {
    while (checks_.size() <= check) checks_.emplace_back(direction());
    Standings& others = checks_[check];
    others.add(value);
    if (std::cmp_less_equal(others.size(), options_.bootstrap_count)) return true;
    const std::size_t promoted = std::max<std::size_t>(
        1, others.size() / static_cast<std::size_t>(options_.reduction_factor));
    const bool passed = !direction().better(others.at(promoted - 1), value);
    if (others.size() > kMostOfOneCheck) others.thin();
    return passed;
  }

  // Steps at least double from one check to the next, so there are at most 64 of them: 128 MiB.
  static constexpr std::size_t kMostOfOneCheck = std::size_t{1} << 18;

  const HalvingOptions options_;
  std::optional<std::int64_t> min_resource_;
  std::vector<std::int64_t> check_steps_;
  std::vector<Standings> checks_;
  std::unordered_map<std::uint64_t, std::size_t> passed_;  // checks, by running trial
};

// The multiplier and the shifts of SplitMix64.
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

class HyperbandRule final : public PruningRule {
 public:
  explicit HyperbandRule(const HyperbandOptions& options) : options_(options) {
    if (options.max_resource) make_brackets(*options.max_resource);
  }

  std::unique_ptr<PruningRule> anew(bool maximize) const override {
    HyperbandOptions options = options_;
    options.maximize = maximize;
    return std::make_unique<HyperbandRule>(options);
  }

  ReportOrder direction() const override { return {options_.maximize}; }

  bool prune(std::uint64_t trial_id, const Reports& reports) override {
    return !brackets_.empty() && bracket_of(trial_id).prune(trial_id, reports);
  }

  void finish(std::uint64_t trial_id, const Reports& reports, TrialState state) override {
    if (!brackets_.empty()) {
      bracket_of(trial_id).finish(trial_id, reports, state);
    } else if (state == TrialState::kOk && !reports.empty()) {
      make_brackets(std::max(options_.min_resource, reports.last().step));
    }
  }

 private:
  void make_brackets(std::int64_t max_resource) {
    std::int64_t step = options_.min_resource;
    std::int64_t count = 1;
    while (saturating_product(step, options_.reduction_factor) <= max_resource && count < kMost) {
      step = saturating_product(step, options_.reduction_factor);
      ++count;
    }
    for (std::int64_t bracket = 0; bracket < count; ++bracket) {
      const auto rungs = static_cast<double>(count - bracket);
      const double trials =
          std::ceil(static_cast<double>(count) *
                    std::pow(static_cast<double>(options_.reduction_factor), rungs - 1) / rungs);
      total_ += trials;
      ends_.push_back(total_);
      brackets_.emplace_back(HalvingOptions{.maximize = options_.maximize,
                                            .min_resource = options_.min_resource,
                                            .reduction_factor = options_.reduction_factor,
                                            .min_early_stopping_rate = bracket,
                                            .bootstrap_count = options_.bootstrap_count});
    }
  }

  // In proportion to the number of trials that a bracket is for.
  HalvingRule& bracket_of(std::uint64_t trial_id) {
    const double place = static_cast<double>(mixed(trial_id) >> 11) * 0x1p-53 * total_;
    const auto found = std::upper_bound(ends_.begin(), ends_.end(), place);
    const auto index = std::min<std::ptrdiff_t>(found - ends_.begin(), std::ssize(brackets_) - 1);
    return brackets_[static_cast<std::size_t>(index)];
  }

  static constexpr std::int64_t kMost = 64;  // brackets: steps that double do not go further

  const HyperbandOptions options_;
  double total_ = 0;
  std::vector<double> ends_;  // of the brackets' shares of total_
  std::deque<HalvingRule> brackets_;
};

}  // namespace

Result<std::unique_ptr<PruningRule>> make_halving_rule(const HalvingOptions& options) {
  Status checked = check_at_least("reduction_factor", options.reduction_factor, 2);
  if (checked.ok()) checked = check_at_least("min_resource", options.min_resource.value_or(1), 1);
  if (checked.ok()) {
    checked = check_at_least("min_early_stopping_rate", options.min_early_stopping_rate, 0);
  }
  if (checked.ok()) checked = check_at_least("bootstrap_count", options.bootstrap_count, 0);
  if (!checked.ok()) return failure(std::move(checked));
  return std::make_unique<HalvingRule>(options);
}

Result<std::unique_ptr<PruningRule>> make_hyperband_rule(const HyperbandOptions& options) {
  Status checked = check_at_least("reduction_factor", options.reduction_factor, 2);
  if (checked.ok()) checked = check_at_least("min_resource", options.min_resource, 1);
  if (checked.ok() && options.max_resource) {
    checked = check_at_least("max_resource", *options.max_resource, options.min_resource);
  }
  if (checked.ok()) checked = check_at_least("bootstrap_count", options.bootstrap_count, 0);
  if (!checked.ok()) return failure(std::move(checked));
  return std::make_unique<HyperbandRule>(options);
}

}  // namespace divisi::tune
