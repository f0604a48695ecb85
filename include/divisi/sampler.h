// The engine of the tuner: search spaces, search algorithms as ask and tell, tables of results.
//
//   using namespace divisi::tune;
//   Sampler sampler = Sampler::bayes({Space::continuous(0, 1), Space::fixed(3)}, {.max_steps =
//   50}); while (std::optional<Sample> sample = sampler.ask()) {
//     sampler.tell(sample->id, TrialState::kOk, objective(sample->values));
//   }
//
// The front ends stand on this: divisi/tune.h for C++, divisi.tune for Python. docs/tuner.md.
#pragma once

#include "divisi/export.h"
#include "divisi/pareto.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace divisi::tune {

// One dimension of a search: an interval, evenly spaced points, or `count` alternatives. A plain
// value. Factories throw UsageError.
class DIVISI_API Space {
 public:
  // In the order in which the grid allocates points.
  enum class Kind {
    kFixed = 1,       // alternatives
    kSeparate = 2,    // evenly spaced points
    kContinuous = 3,  // an interval
  };

  // lower < upper, both finite.
  static Space continuous(double lower, double upper);
  // start, start + step, ... up to `end`: start <= end, step > 0, at most 2^53 points.
  static Space separate(double start, double end, double step);
  // The indices 0 .. count - 1; at least one.
  static Space fixed(std::int64_t count);

  // Which of the three.
  Kind kind() const noexcept { return kind_; }
  // The ends; of alternatives 0 and count. The upper end of a separate space is its last point.
  double lower() const noexcept { return lower_; }
  // See lower().
  double upper() const noexcept { return upper_; }
  // The distance of points; 0 for a continuous space, 1 for alternatives.
  double step() const noexcept { return step_; }
  // upper - lower.
  double length() const noexcept { return upper_ - lower_; }
  // How many points there are; nothing for a continuous space.
  std::optional<std::int64_t> count() const noexcept;
  // The point `index` of a separate space, without the noise of repeated addition (1.2, not
  // 1.2000000000000002); of alternatives the index itself. 0 <= index < count.
  double at(std::int64_t index) const noexcept;

  // `n` points spread over the space, both ends included; one point is the middle. Alternatives are
  // always all of them.
  std::vector<double> spread(std::int64_t n) const;

  // The coordinates in which engine "reference" of the Bayesian search works: a continuous space's
  // own, and [0, count] for separate points, where a coordinate stands for the point floor(x).
  std::pair<double, double> coordinate_bounds() const noexcept;
  // What the trial gets for a coordinate.
  double at_coordinate(double x) const noexcept;

  bool operator==(const Space&) const = default;  // the same kind and numbers

 private:
  Space(Kind kind, double lower, double upper, double step, std::int64_t count);

  Kind kind_;
  double lower_;
  double upper_;
  double step_;
  std::int64_t count_;  // 0: continuous
  int decimals_ = -1;   // points are rounded to so many; -1: not at all
};

// A space that is searched only while another one, its parent, has certain alternatives.
struct Condition {
  std::size_t dimension = 0;          // the place of the space
  std::size_t parent = 0;             // the place of one of alternatives
  std::vector<std::int64_t> indices;  // of the parent; of several conditions all must hold
};

// What is searched: spaces, and which of them depend on others. Where a space is inactive, its
// entry in Sample::values is NaN; a space whose parent is inactive is inactive as well.
struct SearchSpace {
  // Nothing to search: one trial.
  SearchSpace() = default;
  // Spaces that do not depend on each other.
  SearchSpace(std::initializer_list<Space> all) : spaces(all) {}
  // Spaces, and what depends on what.
  SearchSpace(std::vector<Space> all, std::vector<Condition> rules = {})
      : spaces(std::move(all)), conditions(std::move(rules)) {}

  std::vector<Space> spaces;          // in the order of Sample::values
  std::vector<Condition> conditions;  // in any order
};

// 32 random bits at a time.
using RandomWords = std::function<std::uint32_t()>;

// The generator of Python's module `random`: MT19937 seeded by an array, the words of the seed from
// the least significant one.
DIVISI_API RandomWords python_random(std::span<const std::uint32_t> seed_words);
DIVISI_API RandomWords python_random(std::uint64_t seed);

// How a trial ended.
enum class TrialState {
  kOk,      // with a value
  kFail,    // the last try failed, or the target could not be computed
  kSkip,    // the objective asked to leave it out
  kPruned,  // ended early: its reports were worse than those of others
};

// What became of a trial.
struct Outcome {
  TrialState state = TrialState::kOk;  // how it ended
  // Of the objectives, in their order. A pruned trial has its last report, or nothing.
  std::vector<double> values;
  double violation = 0;  // the sum of what exceeds constraints; 0: all of them hold
};

// One trial's point: an entry per space, in their order.
struct Sample {
  std::uint64_t id = 0;  // from 1, in the order of ask()
  // Values of continuous and separate spaces; the index of an alternative; NaN of an inactive
  // space.
  std::vector<double> values;
};

// Who chose the point of a trial.
enum class Origin {
  kSearch,  // ask() of the same search, in another process
  kUser,    // somebody: the search knows of it and has used up nothing but one step
};

// How the grid shares its budget among continuous and separate spaces.
enum class Allocation {
  kBalanced,  // equally
  kLength,    // in proportion to their numeric length, as LightTuner does
};

// For Sampler::grid.
struct GridOptions {
  std::optional<std::int64_t>
      max_steps;  // steers the number of points; no limit but for strict_budget
  Allocation allocation = Allocation::kBalanced;  // of the points
  bool strict_budget = false;                     // the number of trials stays within max_steps
};

// For Sampler::random.
struct RandomOptions {
  std::optional<std::int64_t> max_steps = std::nullopt;  // nothing: until somebody stops asking
  RandomWords words = nullptr;                           // nothing: seeded by the system
};

// What the Bayesian search maximises to choose the next point.
enum class Acquisition {
  kExpectedImprovement,       // computed as a logarithm, which has no flat regions
  kUpperConfidenceBound,      // mean + kappa * deviation
  kProbabilityOfImprovement,  // likewise a logarithm
};

// What the model assumes of trials that still run.
enum class Lie {
  kPredicted,  // the model's own mean there
  kBest,       // the best value so far
  kMean,       // the mean of all values
  kWorst,      // the worst value so far
};

// For Sampler::bayes.
struct BayesOptions {
  std::optional<std::int64_t> max_steps = std::nullopt;  // failed and skipped trials count
  bool maximize = false;                                 // whether larger values are better
  std::int64_t init_steps = 5;  // successful trials before the model is used
  // LightTuner's model: raw coordinates, one length scale, random starts, no alternatives.
  bool reference_engine = false;
  // What the next point maximises.
  Acquisition acquisition = Acquisition::kExpectedImprovement;
  double kappa = 2.576;                // of the confidence bound
  double kappa_decay = 1;              // multiplies kappa at each fit ...
  std::int64_t kappa_decay_delay = 0;  // ... after so many
  double xi = 0;                       // what an improvement must exceed
  double noise = 1e-6;                 // of reference_engine: added to the diagonal ("alpha")
  int restarts = 5;                    // of reference_engine: of the fit
  Lie pending = Lie::kPredicted;       // what is assumed of running trials
  bool impute_failures = false;        // a failed trial counts as the worst value seen
  std::uint64_t seed = 0;              // of everything random
};

// For Sampler::tpe.
struct TpeOptions {
  std::optional<std::int64_t> max_steps = std::nullopt;  // failed and skipped trials count
  bool maximize = false;                                 // whether larger values are better
  std::int64_t n_startup = 10;     // finished trials before the model is used; drawn at random
  std::int64_t n_candidates = 24;  // points compared for a suggestion, from 1
  double gamma = 0.15;             // the part of the trials that is good: above 0, below 1 ...
  std::int64_t max_good = 25;      // ... but at most so many, from 1
  double prior_weight = 1;         // of the uniform kernel; that of a trial is at most 1
  bool constant_liar = true;       // running trials count as bad
  bool impute_failures = false;    // failed trials count as the worst
  std::uint64_t seed = 0;          // of everything random
};

// For Sampler::qmc.
struct QmcOptions {
  std::optional<std::int64_t> max_steps = std::nullopt;  // nothing: until somebody stops asking
  std::uint64_t seed = 0;                                // of the scrambling
};

// For Sampler::cmaes.
struct CmaesOptions {
  std::optional<std::int64_t> max_steps = std::nullopt;  // failed and skipped trials count
  bool maximize = false;                                 // whether larger values are better
  // Results before the distribution is updated, from 4; 0: 4 + floor(3 ln n) of n numbers.
  std::int64_t population_size = 0;
  double sigma0 = 0.3;     // the first deviation, in widths of a space; above 0, at most 1
  bool active = true;      // whether bad results shrink the distribution in their direction
  bool restarts = true;    // start again elsewhere with twice the population when nothing improves
  std::uint64_t seed = 0;  // of everything random
};

// For Sampler::nsga2.
struct Nsga2Options {
  std::optional<std::int64_t> max_steps = std::nullopt;  // failed and skipped trials count
  std::vector<Direction> directions = {};                // of the objectives; at least one
  std::int64_t population_size = 50;                     // results that parents are chosen from
  double crossover_probability = 0.9;                    // otherwise a child has one parent
  double crossover_index = 15;                           // larger: children nearer to parents
  // Of each variable; nothing: one variable of a child on average.
  std::optional<double> mutation_probability = std::nullopt;
  double mutation_index = 20;  // larger: smaller changes
  std::uint64_t seed = 0;      // of everything random
};

// A search algorithm over spaces. Any thread may ask and tell; calls run one at a time.
//
// Suggestions depend on the seed and on the order of calls only. A trial without a result
// is pending; the Bayesian search keeps away from pending points.
class DIVISI_API Sampler {
 public:
  // All combinations of a few points per space, the last space varying fastest. With conditions
  // one grid for each combination of the parents' alternatives, which share the budget equally.
  // Throws UsageError: a continuous space without max_steps, alternatives that exceed a strict
  // budget; as all of these, conditions that no search can meet.
  static Sampler grid(const SearchSpace& space, const GridOptions& options);
  // Independent uniform draws. Where no space is continuous, no point comes twice, and the search
  // ends when all were given.
  static Sampler random(SearchSpace space, RandomOptions options);
  // A Gaussian process over the finished trials. Throws UsageError: alternatives under
  // reference_engine, numbers out of range.
  static Sampler bayes(SearchSpace space, const BayesOptions& options);
  // Draws where good trials are dense and bad ones are not: a multivariate tree-structured Parzen
  // estimator. Its cost per suggestion grows with the number of trials up to 2,048, not further.
  // Throws UsageError: numbers out of range.
  static Sampler tpe(SearchSpace space, const TpeOptions& options);
  // Scrambled Sobol points, which cover the space more evenly than random ones. Points of a finite
  // search come again only when nearly all were given.
  static Sampler qmc(SearchSpace space, const QmcOptions& options);
  // CMA-ES: a normal distribution that follows the better half of the results. Trials may end in
  // any order. Throws UsageError: numbers out of
  // range, conditions.
  static Sampler cmaes(SearchSpace space, const CmaesOptions& options);
  // NSGA-II: children of the best results so far, by dominance and distance, for one objective or
  // several. Throws UsageError: no direction, numbers out of range, conditions.
  static Sampler nsga2(SearchSpace space, Nsga2Options options);

  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;
  ~Sampler();

  // The next trial; nothing when the search has ended.
  std::optional<Sample> ask();
  // The end of a trial, with its target if it went well; a value that is not finite is a failure.
  // Throws UsageError: an id that is not pending.
  void tell(std::uint64_t id, TrialState state,
            double value = std::numeric_limits<double>::quiet_NaN());
  // The same of several objectives, or with constraints. Throws UsageError also: a trial that went
  // well with another number of values than objectives().
  void tell(std::uint64_t id, Outcome outcome);
  // A trial that ask() did not give, with its point: pending from now on. Trials of an earlier
  // process are adopted in the order in which it asked for them; with the same seed the search then
  // goes on as it would have there. Throws UsageError: an id that is 0 or pending, a point with
  // another number of values.
  void adopt(const Sample& sample, Origin origin = Origin::kSearch);
  // Ids up to this one belong to trials that the search does not know; ask() goes on behind them.
  void skip_ids(std::uint64_t last);
  // How many values a trial has that went well; nothing: any number, as the search does not look at
  // them.
  std::optional<std::size_t> objectives() const;
  // How many were asked for and have no result yet.
  std::size_t pending() const;

 private:
  struct State;
  explicit Sampler(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// What choose_algorithm() recommends.
struct AlgorithmChoice {
  std::string name;    // "grid", "bayes" or "tpe"
  std::string reason;  // in words, for the log
};

// The algorithm for so many trials of a search: by the budget, the number of spaces, their kinds.
DIVISI_API AlgorithmChoice choose_algorithm(const SearchSpace& space,
                                            std::optional<std::int64_t> max_steps);

// A cell of a table: empty, a whole number, a number, or text.
using Cell = std::variant<std::monostate, std::int64_t, double, std::string>;

// How a table is framed.
enum class TableStyle {
  kPsql,  // a frame and one line under the header
  kGrid,  // a line under every row, of '=' under the header
};

// The rows under their headers, as text without a newline at its end. Numbers have six digits,
// stand right and share the place of their decimal point; every row has headers.size() cells.
DIVISI_API std::string format_table(const std::vector<std::string>& headers,
                                    const std::vector<std::vector<Cell>>& rows, TableStyle style);

}  // namespace divisi::tune
