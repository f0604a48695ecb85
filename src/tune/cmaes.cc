// CMA-ES for trials that end in any order: generations, categories, restarts.
#include "tune/algorithm.h"
#include "tune/cma_distribution.h"
#include "tune/encoding.h"
#include "tune/random_words.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <tuple>

namespace divisi::tune {
namespace {

// Of the frequencies of categories in the better half, how much a generation counts.
constexpr double kCategoryRate = 0.2;
// A trial is drawn from the learned frequencies in all of its categories with this probability;
// otherwise some category is drawn evenly, so that none dies out.
constexpr double kFaithful = 0.73;
// Twice the population at each restart, up to this many results per update.
constexpr std::size_t kMaxPopulation = std::size_t{1} << 16U;
// Values that differ by less than this part of all differences seen are equal.
constexpr double kFlat = 1e-12;

// Into [0, 1] as mirrors at both ends would: the search sees a function without bounds.
double folded(double x) {
  const double inside = std::abs(std::remainder(x, 2.0));
  return std::min(inside, 1.0);
}

// Of all x that fold to the same coordinate, the one that is nearest to `center`.
double nearest_image(double coordinate, double center) {
  const double plain = coordinate + 2 * std::round((center - coordinate) / 2);
  const double mirrored = -coordinate + 2 * std::round((center + coordinate) / 2);
  return std::abs(plain - center) <= std::abs(mirrored - center) ? plain : mirrored;
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// How the results of a generation are ordered: those that went well and are feasible, pruned ones,
// infeasible ones, failed ones; within each by violation and value.
struct Standing {
  int group = 0;
  double violation = 0;
  double value = 0;  // smaller is better

  auto operator<=>(const Standing&) const = default;
};

// The frequencies of one variable's alternatives among good results.
class Category {
 public:
  Category(std::size_t dimension, std::size_t count, std::size_t categories)
      : dimension_(dimension),
        even_(1 - std::pow(kFaithful, 1 / static_cast<double>(categories))),
        frequencies_(count, 1 / static_cast<double>(count)) {}

  std::size_t dimension() const { return dimension_; }

  std::size_t draw(const RandomWords& words) const {
    double rest = draw_unit(words);
    const double share = even_ / static_cast<double>(frequencies_.size());
    std::size_t index = 0;
    while (index + 1 < frequencies_.size()) {
      rest -= (1 - even_) * frequencies_[index] + share;
      if (rest < 0) break;
      ++index;
    }
    return index;
  }

  void learn(const std::vector<std::size_t>& good) {
    for (double& frequency : frequencies_) frequency *= 1 - kCategoryRate;
    for (const std::size_t index : good) {
      frequencies_[index] += kCategoryRate / static_cast<double>(good.size());
    }
  }

  void forget() {
    frequencies_.assign(frequencies_.size(), 1 / static_cast<double>(frequencies_.size()));
  }

 private:
  std::size_t dimension_;
  double even_;  // the probability of an even draw
  std::vector<double> frequencies_;
};

// A trial without a result.
struct Asked {
  std::size_t run = 0;
  std::optional<std::size_t> generation = std::nullopt;  // nothing: not drawn from one
  CmaDraw numbers;                                       // the position only, if not drawn
  std::vector<std::size_t> categories;
};

struct Ended {
  std::uint64_t id = 0;
  Standing standing;
  std::vector<double> direction;
  std::vector<std::size_t> categories;
};

class Cmaes final : public Algorithm {
 public:
  Cmaes(std::vector<Space> spaces, const CmaesOptions& options)
      : options_(options),
        encoding_(spaces),
        numbers_(numbers_of(encoding_)),
        categories_(categories_of(encoding_)),
        population_(first_population(options, numbers_.size())),
        distribution_(setup(std::vector<double>(numbers_.size(), 0.5))) {}

  std::optional<std::vector<double>> next(std::uint64_t id) override {
    if (options_.max_steps && emitted_ >= *options_.max_steps) return std::nullopt;
    ++emitted_;
    Asked asked = draw(id);
    std::vector<double> values = encoding_.values(point_of(asked));
    pending_.emplace(id, std::move(asked));
    return values;
  }

  void adopt(std::uint64_t id, const std::vector<double>& values, Origin origin) override {
    ++emitted_;
    if (origin == Origin::kSearch) {
      // The draw of the other process, if it had the same seed and the same results.
      Asked asked = draw(id);
      if (encoding_.values(point_of(asked)) == values) {
        pending_.emplace(id, std::move(asked));
        return;
      }
    }
    pending_.emplace(id, asked_of(values));
  }

  void finish(std::uint64_t id, const Outcome& outcome) override {
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    Asked asked = std::move(found->second);
    pending_.erase(found);
    // Skipped trials say nothing; those of a run that was given up would lead back to it.
    if (outcome.state == TrialState::kSkip || asked.run != run_) return;
    ended_.push_back({.id = id,
                      .standing = standing_of(outcome),
                      .direction = direction_of(asked),
                      .categories = std::move(asked.categories)});
    if (ended_.size() == population_) end_generation();
  }

 private:
  // Dimensions that are numbers and have more than one value.
  static std::vector<std::size_t> numbers_of(const Encoding& encoding) {
    std::vector<std::size_t> numbers;
    for (std::size_t d = 0; d < encoding.size(); ++d) {
      const Space& space = encoding.space(d);
      const bool single = space.count() && *space.count() == 1;
      if (space.kind() != Space::Kind::kFixed && !single) numbers.push_back(d);
    }
    return numbers;
  }

  static std::vector<Category> categories_of(const Encoding& encoding) {
    std::vector<std::size_t> dimensions;
    for (std::size_t d = 0; d < encoding.size(); ++d) {
      if (encoding.space(d).kind() == Space::Kind::kFixed) dimensions.push_back(d);
    }
    std::vector<Category> categories;
    for (const std::size_t d : dimensions) {
      const auto count = static_cast<std::size_t>(*encoding.space(d).count());
      categories.emplace_back(d, count, dimensions.size());
    }
    return categories;
  }

  static std::size_t first_population(const CmaesOptions& options, std::size_t numbers) {
    if (options.population_size > 0) return static_cast<std::size_t>(options.population_size);
    const double n = std::max(static_cast<double>(numbers), 1.0);
    return 4 + static_cast<std::size_t>(3 * std::log(n));
  }

  CmaSetup setup(std::vector<double> mean) const {
    std::vector<double> steps;
    for (const std::size_t d : numbers_) {
      const std::optional<std::int64_t> count = encoding_.space(d).count();
      steps.push_back(count ? 1 / static_cast<double>(*count - 1) : 0);
    }
    return {.population = population_,
            .sigma = options_.sigma0,
            .active = options_.active,
            .mean = std::move(mean),
            .steps = std::move(steps)};
  }

  Asked draw(std::uint64_t id) const {
    const RandomWords words = trial_words(options_.seed, id);
    Asked asked{.run = run_,
                .generation = generation_,
                .numbers = distribution_.draw(words),
                .categories = {}};
    for (const Category& category : categories_) asked.categories.push_back(category.draw(words));
    return asked;
  }

  Asked asked_of(const std::vector<double>& values) const {
    const Point point = encoding_.point(values);
    Asked asked{.run = run_, .numbers = {}, .categories = {}};
    for (const std::size_t d : numbers_) asked.numbers.position.push_back(point[d]);
    for (const Category& category : categories_) {
      asked.categories.push_back(static_cast<std::size_t>(point[category.dimension()]));
    }
    return asked;
  }

  Point point_of(const Asked& asked) const {
    Point point(encoding_.size(), 0);
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      point[numbers_[i]] = folded(asked.numbers.position[i]);
    }
    for (std::size_t i = 0; i < categories_.size(); ++i) {
      point[categories_[i].dimension()] = static_cast<double>(asked.categories[i]);
    }
    return point;
  }

  // What the distribution learns from. A trial of an earlier generation, and one that somebody else
  // chose, counts as seen from where the distribution is now.
  std::vector<double> direction_of(Asked& asked) const {
    if (asked.generation == generation_) return std::move(asked.numbers.direction);
    const std::vector<double>& center = distribution_.mean();
    for (std::size_t i = 0; i < center.size(); ++i) {
      asked.numbers.position[i] = nearest_image(folded(asked.numbers.position[i]), center[i]);
    }
    return distribution_.direction_to(asked.numbers.position);
  }

  Standing standing_of(const Outcome& outcome) const {
    if (outcome.values.empty()) return {.group = 3};
    const double value = options_.maximize ? -outcome.values.front() : outcome.values.front();
    switch (outcome.state) {
      case TrialState::kOk:
        return {
            .group = outcome.violation > 0 ? 2 : 0, .violation = outcome.violation, .value = value};
      case TrialState::kPruned: return {.group = 1, .violation = 0, .value = value};
      default: return {.group = 3};
    }
  }

  void end_generation() {
    std::vector<Ended> ended = std::move(ended_);
    ended_.clear();
    std::ranges::sort(ended, [](const Ended& a, const Ended& b) {
      return std::tie(a.standing, a.id) < std::tie(b.standing, b.id);
    });
    if (ended.front().standing.group == 3) return;  // all failed: there is no order to learn from
    std::vector<std::vector<double>> directions;
    for (Ended& one : ended) directions.push_back(std::move(one.direction));
    distribution_.update(directions);
    for (std::size_t i = 0; i < categories_.size(); ++i) {
      std::vector<std::size_t> good;
      for (std::size_t k = 0; k < ended.size() / 2; ++k) good.push_back(ended[k].categories[i]);
      categories_[i].learn(good);
    }
    ++generation_;
    remember(ended);
    if (options_.restarts && (distribution_.is_spent() || stagnates())) restart();
  }

  void remember(const std::vector<Ended>& ranked) {
    for (const Ended& one : ranked) {
      if (one.standing.group != 0) break;
      lowest_ = std::min(lowest_, one.standing.value);
      highest_ = std::max(highest_, one.standing.value);
    }
    if (ranked.front().standing.group != 0) return;
    bests_.push_back(ranked.front().standing.value);
    if (bests_.size() > window()) bests_.pop_front();
  }

  // Generations that are looked at; more for many numbers, which take longer.
  std::size_t window() const { return 120 + 30 * numbers_.size() / population_; }

  // Whether the best values of generations do not change, or do not get better.
  bool stagnates() const {
    const std::size_t few = 10 + 30 * numbers_.size() / population_;
    if (bests_.size() < few) return false;
    const auto last = bests_.end() - static_cast<std::ptrdiff_t>(few);
    const auto [low, high] = std::minmax_element(last, bests_.end());
    if (*high - *low <= kFlat * (highest_ - lowest_)) return true;
    if (bests_.size() < window()) return false;
    const auto part = static_cast<std::ptrdiff_t>(bests_.size() * 3 / 10);
    return median_of({bests_.end() - part, bests_.end()}) >=
           median_of({bests_.begin(), bests_.begin() + part});
  }

  void restart() {
    ++run_;
    generation_ = 0;
    bests_.clear();
    lowest_ = std::numeric_limits<double>::infinity();
    highest_ = -lowest_;
    population_ = std::min(population_ * 2, std::max(kMaxPopulation, population_));
    const RandomWords words =
        trial_words(options_.seed, ~std::uint64_t{run_});  // no trial's number
    std::vector<double> mean;
    for (std::size_t i = 0; i < numbers_.size(); ++i) mean.push_back(draw_unit(words));
    distribution_ = CmaDistribution(setup(std::move(mean)));
    for (Category& category : categories_) category.forget();
  }

  const CmaesOptions options_;
  const Encoding encoding_;
  const std::vector<std::size_t> numbers_;
  std::vector<Category> categories_;
  std::size_t population_;
  CmaDistribution distribution_;
  std::int64_t emitted_ = 0;
  std::size_t run_ = 0;         // restarts so far
  std::size_t generation_ = 0;  // updates of this run so far
  std::map<std::uint64_t, Asked> pending_;
  std::vector<Ended> ended_;                                 // of this generation
  std::deque<double> bests_;                                 // of the last generations of this run
  double lowest_ = std::numeric_limits<double>::infinity();  // of all values of this run
  double highest_ = -std::numeric_limits<double>::infinity();
};

}  // namespace

Result<std::unique_ptr<Algorithm>> make_cmaes(std::vector<Space> spaces,
                                              const CmaesOptions& options) {
  if (options.population_size != 0 &&
      (options.population_size < 4 ||
       options.population_size > static_cast<std::int64_t>(kMaxPopulation))) {
    return failure(Code::kInvalid, "the population size of cmaes must be 4 to {}, or 0: {}",
                   kMaxPopulation, options.population_size);
  }
  if (!(options.sigma0 > 0 && options.sigma0 <= 1)) {
    return failure(Code::kInvalid, "sigma0 of cmaes must be above 0 and at most 1: {}",
                   options.sigma0);
  }
  return std::make_unique<Cmaes>(std::move(spaces), options);
}

}  // namespace divisi::tune
