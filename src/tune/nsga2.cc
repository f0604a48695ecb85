// NSGA-II without generations: each result enters the population at once, and the worst one leaves.
#include "tune/algorithm.h"
#include "tune/encoding.h"
#include "tune/pareto.h"
#include "tune/random_words.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace divisi::tune {
namespace {

constexpr double kAlike = 1e-14;  // coordinates this near to each other have no crossover
constexpr int kTriesForNewPoint = 20;

class Nsga2 final : public Algorithm {
 public:
  Nsga2(std::vector<Space> spaces, Nsga2Options options)
      : options_(std::move(options)),
        encoding_(spaces),
        mutation_(options_.mutation_probability.value_or(
            1 / std::max(1.0, static_cast<double>(encoding_.size())))) {}

  std::optional<std::vector<double>> next(std::uint64_t id) override {
    if (options_.max_steps && emitted_ >= *options_.max_steps) return std::nullopt;
    ++emitted_;
    const RandomWords words = trial_words(options_.seed, id);
    const bool start = static_cast<std::int64_t>(points_.size()) < options_.population_size;
    std::vector<double> values = encoding_.values(new_point(words, start));
    // As a process that adopts the trial would see it.
    pending_.emplace(id, encoding_.point(values));
    return values;
  }

  void adopt(std::uint64_t id, const std::vector<double>& values, Origin) override {
    ++emitted_;
    pending_.emplace(id, encoding_.point(values));
  }

  void finish(std::uint64_t id, const Outcome& outcome) override {
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    Point point = std::move(found->second);
    pending_.erase(found);
    if (outcome.state != TrialState::kOk) return;  // nobody's parent
    points_.push_back(std::move(point));
    Judged& judged = judged_.emplace_back();
    judged.values = outcome.values;
    judged.violation = outcome.violation;
    for (std::size_t i = 0; i < judged.values.size(); ++i) {
      if (options_.directions[i] == Direction::kMaximize) judged.values[i] = -judged.values[i];
    }
    order();
    if (static_cast<std::int64_t>(points_.size()) > options_.population_size) remove_worst();
  }

  std::optional<std::size_t> objectives() const override { return options_.directions.size(); }

 private:
  void order() {
    fronts_ = front_numbers(judged_);
    crowding_ = crowding_distances(judged_, fronts_);
  }

  bool is_better(std::size_t a, std::size_t b) const {
    return std::pair(fronts_[a], -crowding_[a]) < std::pair(fronts_[b], -crowding_[b]);
  }

  void remove_worst() {
    std::size_t worst = 0;
    for (std::size_t i = 1; i < points_.size(); ++i) {
      if (!is_better(i, worst)) worst = i;  // of equal ones the later
    }
    const auto at = static_cast<std::ptrdiff_t>(worst);
    points_.erase(points_.begin() + at);
    judged_.erase(judged_.begin() + at);
    order();
  }

  // A point that the population and running trials do not have, if one is found.
  Point new_point(const RandomWords& words, bool start) const {
    Point point;
    for (int i = 0; i < kTriesForNewPoint; ++i) {
      point = start || i > kTriesForNewPoint / 2 ? uniform_point(words) : child(words);
      if (!is_known(point)) break;
    }
    return point;
  }

  bool is_known(const Point& point) const {
    return std::ranges::find(points_, point) != points_.end() ||
           std::any_of(pending_.begin(), pending_.end(),
                       [&](const auto& entry) { return entry.second == point; });
  }

  Point uniform_point(const RandomWords& words) const {
    std::vector<double> unit(encoding_.size());
    for (double& x : unit) x = draw_unit(words);
    return encoding_.from_unit(std::move(unit));
  }

  // The better one of two.
  const Point& parent(const RandomWords& words) const {
    const auto n = static_cast<std::int64_t>(points_.size());
    const auto a = static_cast<std::size_t>(draw_below(words, n));
    const auto b = static_cast<std::size_t>(draw_below(words, n));
    return points_[is_better(b, a) ? b : a];
  }

  Point child(const RandomWords& words) const {
    Point point = parent(words);
    const Point& other = parent(words);
    const bool crossed = draw_unit(words) < options_.crossover_probability;
    for (std::size_t d = 0; d < point.size(); ++d) {
      if (crossed && draw_unit(words) < 0.5) point[d] = crossover(words, d, point[d], other[d]);
      if (draw_unit(words) < mutation_) point[d] = mutated(words, d, point[d]);
    }
    return point;
  }

  bool is_category(std::size_t d) const { return encoding_.space(d).kind() == Space::Kind::kFixed; }

  // Simulated binary crossover with bounds (Deb and Agrawal); of alternatives one of the two.
  double crossover(const RandomWords& words, std::size_t d, double a, double b) const {
    const bool swapped = draw_unit(words) < 0.5;
    if (is_category(d)) return swapped ? b : a;
    const double low = std::min(a, b);
    const double high = std::max(a, b);
    if (high - low < kAlike) return a;
    const double u = draw_unit(words);
    const double exponent = options_.crossover_index + 1;
    const auto spread = [&](double to_bound) {
      const double alpha = 2 - std::pow(1 + 2 * to_bound / (high - low), -exponent);
      return u * alpha <= 1 ? std::pow(u * alpha, 1 / exponent)
                            : std::pow(1 / (2 - u * alpha), 1 / exponent);
    };
    const double middle = (low + high) / 2;
    const double half = (high - low) / 2;
    const double made = swapped ? middle + spread(1 - high) * half : middle - spread(low) * half;
    return encoding_.snapped(d, std::clamp(made, 0.0, 1.0));
  }

  // Polynomial mutation with bounds (Deb); at least one step, and another alternative.
  double mutated(const RandomWords& words, std::size_t d, double x) const {
    const std::int64_t count = encoding_.space(d).count().value_or(0);
    if (count == 1) return x;
    if (is_category(d)) {
      const auto other = static_cast<double>(draw_below(words, count - 1));
      return other < x ? other : other + 1;
    }
    const double u = draw_unit(words);
    const double exponent = options_.mutation_index + 1;
    const double shift =
        u < 0.5 ? std::pow(2 * u + (1 - 2 * u) * std::pow(1 - x, exponent), 1 / exponent) - 1
                : 1 - std::pow(2 * (1 - u) + (2 * u - 1) * std::pow(x, exponent), 1 / exponent);
    const double moved = encoding_.snapped(d, std::clamp(x + shift, 0.0, 1.0));
    if (count == 0 || moved != x) return moved;
    const std::int64_t index = encoding_.index(d, x);
    const std::int64_t next = index + (shift < 0 ? -1 : 1);
    return encoding_.coordinate(d, next < 0 || next >= count ? 2 * index - next : next);
  }

  const Nsga2Options options_;
  const Encoding encoding_;
  const double mutation_;
  std::int64_t emitted_ = 0;
  std::map<std::uint64_t, Point> pending_;
  // The population, in the order of results:
  std::vector<Point> points_;
  std::vector<Judged> judged_;
  std::vector<std::size_t> fronts_;
  std::vector<double> crowding_;
};

bool is_probability(double p) {
  return p >= 0 && p <= 1;
}

}  // namespace

Result<std::unique_ptr<Algorithm>> make_nsga2(std::vector<Space> spaces, Nsga2Options options) {
  if (options.directions.empty()) {
    return failure(Code::kInvalid, "nsga2 needs the direction of at least one objective");
  }
  if (options.population_size < 2 || options.population_size > 10000) {
    return failure(Code::kInvalid, "the population size of nsga2 must be 2 to 10000: {}",
                   options.population_size);
  }
  const double mutation = options.mutation_probability.value_or(0);
  if (!is_probability(options.crossover_probability) || !is_probability(mutation)) {
    return failure(Code::kInvalid,
                   "probabilities of nsga2 must be 0 to 1: crossover {}, mutation {}",
                   options.crossover_probability, mutation);
  }
  const bool finite =
      std::isfinite(options.crossover_index) && std::isfinite(options.mutation_index);
  if (!finite || options.crossover_index < 0 || options.mutation_index < 0) {
    return failure(Code::kInvalid,
                   "indices of nsga2 must not be negative: crossover {}, mutation {}",
                   options.crossover_index, options.mutation_index);
  }
  return std::make_unique<Nsga2>(std::move(spaces), std::move(options));
}

}  // namespace divisi::tune
