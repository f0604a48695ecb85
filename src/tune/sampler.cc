// The public Sampler: ids, pending trials, one lock; failures become exceptions here.
#include "tune/algorithm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <unordered_set>

namespace divisi::tune {

struct Sampler::State {
  State(std::size_t spaces, std::unique_ptr<Algorithm> running)
      : dimensions(spaces), algorithm(std::move(running)) {}

  const std::size_t dimensions;

  std::mutex mutex;  // guards all below
  std::unique_ptr<Algorithm> algorithm;
  std::uint64_t last_id = 0;  // the largest one
  std::unordered_set<std::uint64_t> pending;
};

namespace {

std::unique_ptr<Algorithm> taken(Result<std::unique_ptr<Algorithm>> made) {
  if (!made) throw_if_failed(made.error());
  return *std::move(made);
}

void check_steps(const std::optional<std::int64_t>& max_steps) {
  if (max_steps && *max_steps < 0) {
    throw UsageError(fmt::format("max_steps must not be negative: {}", *max_steps));
  }
}

void check_values(std::uint64_t id, const Outcome& outcome, std::optional<std::size_t> wanted) {
  if (outcome.state != TrialState::kOk || !wanted || outcome.values.size() == *wanted) return;
  throw UsageError(
      fmt::format("trial {} has {} values for {} objective{}: nsga2, random and grid "
                  "take several",
                  id, outcome.values.size(), *wanted, *wanted == 1 ? "" : "s"));
}

void check_unconditional(const char* name, const SearchSpace& space) {
  if (space.conditions.empty()) return;
  throw UsageError(fmt::format(
      "{} does not know variables that depend on others: use tpe, bayes, random, qmc or grid",
      name));
}

}  // namespace

Sampler::Sampler(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;
Sampler::~Sampler() = default;

Sampler Sampler::grid(const SearchSpace& space, const GridOptions& options) {
  check_steps(options.max_steps);
  const std::size_t dimensions = space.spaces.size();
  return Sampler(std::make_unique<State>(dimensions, taken(make_grid(space, options))));
}

Sampler Sampler::random(SearchSpace space, RandomOptions options) {
  check_steps(options.max_steps);
  const std::size_t dimensions = space.spaces.size();
  return Sampler(std::make_unique<State>(dimensions,
                                         taken(make_random(std::move(space), std::move(options)))));
}

Sampler Sampler::bayes(SearchSpace space, const BayesOptions& options) {
  check_steps(options.max_steps);
  const std::size_t dimensions = space.spaces.size();
  return Sampler(std::make_unique<State>(dimensions, taken(make_bayes(std::move(space), options))));
}

Sampler Sampler::tpe(SearchSpace space, const TpeOptions& options) {
  check_steps(options.max_steps);
  const std::size_t dimensions = space.spaces.size();
  return Sampler(std::make_unique<State>(dimensions, taken(make_tpe(std::move(space), options))));
}

Sampler Sampler::qmc(SearchSpace space, const QmcOptions& options) {
  check_steps(options.max_steps);
  const std::size_t dimensions = space.spaces.size();
  return Sampler(std::make_unique<State>(dimensions, taken(make_qmc(std::move(space), options))));
}

Sampler Sampler::cmaes(SearchSpace space, const CmaesOptions& options) {
  check_steps(options.max_steps);
  check_unconditional("cmaes", space);
  const std::size_t dimensions = space.spaces.size();
  return Sampler(
      std::make_unique<State>(dimensions, taken(make_cmaes(std::move(space.spaces), options))));
}

Sampler Sampler::nsga2(SearchSpace space, Nsga2Options options) {
  check_steps(options.max_steps);
  check_unconditional("nsga2", space);
  const std::size_t dimensions = space.spaces.size();
  return Sampler(std::make_unique<State>(
      dimensions, taken(make_nsga2(std::move(space.spaces), std::move(options)))));
}

std::optional<Sample> Sampler::ask() {
  const std::lock_guard lock(state_->mutex);
  std::optional<std::vector<double>> values = state_->algorithm->next(state_->last_id + 1);
  if (!values) return std::nullopt;
  state_->pending.insert(++state_->last_id);
  return Sample{.id = state_->last_id, .values = *std::move(values)};
}

void Sampler::tell(std::uint64_t id, TrialState state, double value) {
  tell(id, {.state = state, .values = {value}});
}

void Sampler::tell(std::uint64_t id, Outcome outcome) {
  const std::lock_guard lock(state_->mutex);
  check_values(id, outcome, state_->algorithm->objectives());
  if (state_->pending.erase(id) == 0) {
    const bool known = id != 0 && id <= state_->last_id;
    throw UsageError(
        fmt::format("trial {} {}", id, known ? "has its result already" : "was never asked for"));
  }
  const bool finite =
      !outcome.values.empty() && std::all_of(outcome.values.begin(), outcome.values.end(),
                                             [](double value) { return std::isfinite(value); });
  if (!finite) {
    if (outcome.state == TrialState::kOk) outcome.state = TrialState::kFail;
    outcome.values.clear();
  }
  if (std::isnan(outcome.violation)) outcome.violation = std::numeric_limits<double>::infinity();
  outcome.violation = std::max(outcome.violation, 0.0);
  state_->algorithm->finish(id, outcome);
}

void Sampler::adopt(const Sample& sample, Origin origin) {
  const std::lock_guard lock(state_->mutex);
  if (sample.values.size() != state_->dimensions) {
    throw UsageError(fmt::format("trial {} has {} values for {} variables", sample.id,
                                 sample.values.size(), state_->dimensions));
  }
  if (sample.id == 0 || !state_->pending.insert(sample.id).second) {
    throw UsageError(fmt::format("trial {} cannot be adopted: {}", sample.id,
                                 sample.id == 0 ? "ids begin at 1" : "it is running here"));
  }
  state_->last_id = std::max(state_->last_id, sample.id);
  state_->algorithm->adopt(sample.id, sample.values, origin);
}

void Sampler::skip_ids(std::uint64_t last) {
  const std::lock_guard lock(state_->mutex);
  state_->last_id = std::max(state_->last_id, last);
}

std::optional<std::size_t> Sampler::objectives() const {
  const std::lock_guard lock(state_->mutex);
  return state_->algorithm->objectives();
}

std::size_t Sampler::pending() const {
  const std::lock_guard lock(state_->mutex);
  return state_->pending.size();
}

}  // namespace divisi::tune
