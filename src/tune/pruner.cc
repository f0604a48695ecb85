// The public Pruner: running trials, one lock; failures become exceptions here.
#include "tune/pruning_rule.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <unordered_map>

namespace divisi::tune {

struct Pruner::State {
  explicit State(std::unique_ptr<PruningRule> made) : rule(std::move(made)) {}

  struct Running {
    Reports reports;
    bool pruned = false;
  };

  std::mutex mutex;  // guards all below
  std::unique_ptr<PruningRule> rule;
  std::unordered_map<std::uint64_t, Running> running;
};

bool ReportOrder::better(double a, double b) const {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a);
  return maximize ? a > b : a < b;
}

void Reports::add(std::int64_t step, double value) {
  if (!entries_.empty() && step <= last().step) return;
  const double best = entries_.empty() ? value : direction_.best(last().best, value);
  entries_.push_back({step, value, best});
  if (entries_.size() > kept_) entries_.pop_front();
}

double Reports::best_of_last(std::size_t n) const {
  double best = ReportOrder::kNone;
  for (std::size_t i = entries_.size() - std::min(n, entries_.size()); i < entries_.size(); ++i) {
    best = direction_.best(best, entries_[i].value);
  }
  return best;
}

bool Reports::check_due(std::int64_t warmup, std::int64_t interval) const {
  const std::int64_t step = last().step;
  if (step < warmup) return false;
  if (entries_.size() < 2) return true;
  const std::int64_t due = (step - warmup) / interval * interval + warmup;
  return entries_[entries_.size() - 2].step < due;
}

void Standings::add(double value) {
  const auto place =
      std::upper_bound(values_.begin(), values_.end(), value,
                       [this](double a, double b) { return direction_.better(a, b); });
  values_.insert(place, value);
}

void Standings::add_all(const std::vector<double>& values) {
  values_.insert(values_.end(), values.begin(), values.end());
  std::sort(values_.begin(), values_.end(),
            [this](double a, double b) { return direction_.better(a, b); });
}

double Standings::percentile(double percent) const {
  const double place = percent / 100 * static_cast<double>(values_.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values_.size() - 1);
  const double part = place - static_cast<double>(below);
  // Not a sum of differences: infinite values have none.
  if (part <= 0 || values_[below] == values_[above]) return values_[below];
  return values_[below] * (1 - part) + values_[above] * part;
}

void Standings::thin() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < values_.size(); i += 2) values_[kept++] = values_[i];
  values_.resize(kept);
  values_.shrink_to_fit();
}

Status check_at_least(const char* name, std::int64_t value, std::int64_t lowest) {
  if (value >= lowest) return {};
  return make_status(Code::kInvalid, "a pruner's {} must be {} or more, not {}", name, lowest,
                     value);
}

namespace {

std::unique_ptr<PruningRule> rule_of(Result<std::unique_ptr<PruningRule>> made) {
  if (!made) throw_if_failed(made.error());
  return *std::move(made);
}

}  // namespace

Pruner::Pruner(std::unique_ptr<State> state) : state_(std::move(state)) {}
Pruner::Pruner(Pruner&&) noexcept = default;
Pruner& Pruner::operator=(Pruner&&) noexcept = default;
Pruner::~Pruner() = default;

Pruner Pruner::none() {
  return Pruner(std::make_unique<State>(make_no_rule()));
}

Pruner Pruner::median(const PercentileOptions& options) {
  return percentile(50, options);
}

Pruner Pruner::percentile(double percentile, const PercentileOptions& options) {
  return Pruner(std::make_unique<State>(rule_of(make_percentile_rule(percentile, options))));
}

Pruner Pruner::successive_halving(const HalvingOptions& options) {
  return Pruner(std::make_unique<State>(rule_of(make_halving_rule(options))));
}

Pruner Pruner::hyperband(const HyperbandOptions& options) {
  return Pruner(std::make_unique<State>(rule_of(make_hyperband_rule(options))));
}

Pruner Pruner::threshold(const ThresholdOptions& options) {
  return Pruner(std::make_unique<State>(rule_of(make_threshold_rule(options))));
}

Pruner Pruner::patience(const PatienceOptions& options) {
  return Pruner(std::make_unique<State>(rule_of(make_patience_rule(options, nullptr))));
}

Pruner Pruner::patience(const PatienceOptions& options, const Pruner& other) {
  std::unique_ptr<PruningRule> asked;
  {
    const std::lock_guard lock(other.state_->mutex);
    asked = other.state_->rule->anew(options.maximize);
  }
  return Pruner(std::make_unique<State>(rule_of(make_patience_rule(options, std::move(asked)))));
}

Pruner Pruner::anew(bool maximize) const {
  const std::lock_guard lock(state_->mutex);
  return Pruner(std::make_unique<State>(state_->rule->anew(maximize)));
}

void Pruner::report(std::uint64_t trial_id, std::int64_t step, double value) {
  if (step < 0) {
    throw UsageError(
        fmt::format("trial {} reports for step {}: steps count from 0", trial_id, step));
  }
  const std::lock_guard lock(state_->mutex);
  const PruningRule& rule = *state_->rule;
  const auto [place, added] = state_->running.try_emplace(
      trial_id, State::Running{Reports(rule.direction(), rule.looks_back())});
  place->second.reports.add(step, value);
}

bool Pruner::should_prune(std::uint64_t trial_id) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->running.find(trial_id);
  if (found == state_->running.end()) return false;
  State::Running& trial = found->second;
  trial.pruned = trial.pruned || state_->rule->prune(trial_id, trial.reports);
  return trial.pruned;
}

void Pruner::finish(std::uint64_t trial_id, TrialState state) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->running.find(trial_id);
  if (found == state_->running.end()) {
    const Reports nothing(state_->rule->direction(), 1);
    state_->rule->finish(trial_id, nothing, state);
    return;
  }
  state_->rule->finish(trial_id, found->second.reports, state);
  state_->running.erase(found);
}

}  // namespace divisi::tune
