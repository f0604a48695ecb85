// The tuner: searches for the settings under which a function does best.
//
//   using namespace divisi::tune;
//   const auto objective = [](const Value& config) -> Value {
//     return train(config.at("lr").as<double>());
//   };
//   std::optional<Best> best = tune(objective).bayes().max_steps(50).max_workers(4)
//       .maximize(R).spaces({{"lr", pow(10, uniform(-5, -1))}}).run();
//
// divisi/sampler.h has the algorithms themselves, as ask and tell. docs/tuner.md.
#pragma once

#include "divisi/coder.h"
#include "divisi/export.h"
#include "divisi/pruner.h"
#include "divisi/sampler.h"
#include "divisi/value.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace divisi::tune {

// --- what is searched ---

// A space and the arithmetic that follows a draw. Immutable; operators give a new one over the same
// space. Numbers behave as Python's: `/` of integers is not rounded, floor_div and mod follow the
// sign of the divisor.
class DIVISI_API HyperValue {
 public:
  // One step of the arithmetic: an operator with its other operand, left or right of it.
  struct Transform {
    std::string name;            // "+", "//", "int", "choice", "exp", ...
    Value operand;               // the other operand
    bool operand_first = false;  // whether it stands left of the value
  };

  // A space and what follows.
  explicit HyperValue(Space space, std::vector<Transform> transforms = {});

  // What is drawn from.
  const Space& space() const noexcept { return space_; }
  // In their order.
  const std::vector<Transform>& transforms() const noexcept { return transforms_; }
  // What the draw `raw` becomes; an index for alternatives. Throws UsageError: division by zero.
  Value value(double raw) const;
  // With a further transform at the end.
  HyperValue then(std::string name, Value operand = {}, bool operand_first = false) const;

 private:
  Space space_;
  std::vector<Transform> transforms_;
};

// As Python does it.
DIVISI_API HyperValue operator+(const HyperValue& a, double b);
DIVISI_API HyperValue operator+(double a, const HyperValue& b);
// As Python does it.
DIVISI_API HyperValue operator-(const HyperValue& a, double b);
DIVISI_API HyperValue operator-(double a, const HyperValue& b);
DIVISI_API HyperValue operator-(const HyperValue& a);
// As Python does it.
DIVISI_API HyperValue operator*(const HyperValue& a, double b);
DIVISI_API HyperValue operator*(double a, const HyperValue& b);
// As Python does it.
DIVISI_API HyperValue operator/(const HyperValue& a, double b);
DIVISI_API HyperValue operator/(double a, const HyperValue& b);
// Likewise.
DIVISI_API HyperValue pow(const HyperValue& base, double exponent);
DIVISI_API HyperValue pow(double base, const HyperValue& exponent);

// The constructors of divisi.tune; they throw UsageError as docs/tuner.md says. A number between.
DIVISI_API HyperValue uniform(double lower, double upper);
// One of start, start + step, ... up to end.
DIVISI_API HyperValue quniform(double start, double end, double step);
// A whole number, both ends included.
DIVISI_API HyperValue randint(double start, double end);
// One of the alternatives.
DIVISI_API HyperValue choice(Value::Array alternatives);
// A number whose logarithm is uniform.
DIVISI_API HyperValue loguniform(double lower, double upper);
// The same, rounded to a multiple of step between the bounds.
DIVISI_API HyperValue qloguniform(double lower, double upper, double step);
// A whole number whose logarithm is about uniform, both ends included; start is at least 1.
DIVISI_API HyperValue lograndint(double start, double end);
// Normally distributed; never infinite, because the outermost 1e-9 on both sides are left out.
DIVISI_API HyperValue normal(double mu, double sigma);
// A dimension with one value.
DIVISI_API HyperValue fixed(Value value);

// Nested maps and lists with hyper values at some leaves; other leaves are constants.
class DIVISI_API Structure {
 public:
  using Entry = std::pair<std::string, Structure>;  // of a map

  Structure(HyperValue value);
  Structure(Value constant);
  // A map, in the order written: {{"policy", {{"gamma", uniform(0.95, 1)}}}}.
  Structure(std::initializer_list<Entry> entries);
  // The same of a vector. Throws UsageError: a key that is there twice.
  static Structure map(std::vector<Entry> entries);
  // A list.
  static Structure list(std::vector<Structure> items);
  Structure(const Structure&);
  Structure& operator=(const Structure&);
  Structure(Structure&&) noexcept;
  Structure& operator=(Structure&&) noexcept;
  ~Structure();

  // The hyper values: entries of a map by key, items by position, depth first.
  std::vector<HyperValue> flatten() const;
  // The names of the same in the order written: "policy.gamma", "layers.0".
  std::vector<std::string> names() const;
  // The names of flatten(), in its order.
  std::vector<std::string> flat_names() const;
  // The structure with values in their place, one for each of flatten(). Throws UsageError.
  Value config(const std::vector<double>& raw) const;
  // The values of names() in a configuration; nil for one that is not there.
  std::vector<Value> variables(const Value& config) const;

 private:
  struct Node;
  explicit Structure(std::unique_ptr<Node> node);
  std::unique_ptr<Node> node_;
};

// --- results ---

// What an expression is computed from.
struct Record {
  Value config;    // what the objective was given
  Value returned;  // what it gave back
  Value metrics;   // a map: "time", in seconds
};

// A computation over a result that is not there yet: R["reward"] - 0.1 * M["time"] > 3. Data: it
// prints itself, is parsed from text, and does nothing until evaluate().
class DIVISI_API Expr {
 public:
  // A constant.
  Expr(Value constant);
  Expr(double constant) : Expr(Value(constant)) {}
  Expr(int constant) : Expr(Value(constant)) {}
  Expr(bool constant) : Expr(Value(constant)) {}
  Expr(const char* constant) : Expr(Value(constant)) {}
  // 'R', 'M' or 'C'.
  static Expr root(char name);
  // A function of the whole record; printed in angle brackets.
  static Expr function(std::string name, std::function<Value(const Record&)> function);
  // The language of docs/tuner.md: R, M, C, literals, operators and methods as in Python. Throws
  // UsageError, which names the place.
  static Expr parse(std::string_view text);

  // An item of a map or a list.
  Expr operator[](std::string_view key) const;
  Expr operator[](const char* key) const { return (*this)[std::string_view(key)]; }
  Expr operator[](std::int64_t index) const;
  Expr operator[](int index) const { return (*this)[std::int64_t{index}]; }
  // abs len sum mean stdev std median max min last isnan; log, exp, sqrt. Throws UsageError.
  Expr method(std::string_view name) const;
  // An operator as it is written in Python: + - * / // % ** == != < <= > >= & |.
  static Expr binary(std::string_view symbol, const Expr& a, const Expr& b);
  static Expr unary(std::string_view symbol, const Expr& a);  // + - ~

  // Throws UsageError that names the part that has no value.
  Value evaluate(const Record& record) const;
  // As Python writes it.
  std::string text() const;
  // Whether the two are the same expression, not whether their values are.
  bool same_as(const Expr& other) const;

  struct Node;  // internal
  const Node& node() const noexcept { return *node_; }

 private:
  friend struct ExprMaker;
  explicit Expr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

// The operator, once there is a result.
inline Expr operator+(const Expr& a, const Expr& b) {
  return Expr::binary("+", a, b);
}
// The operator, once there is a result.
inline Expr operator-(const Expr& a, const Expr& b) {
  return Expr::binary("-", a, b);
}
// The operator, once there is a result.
inline Expr operator*(const Expr& a, const Expr& b) {
  return Expr::binary("*", a, b);
}
// The operator, once there is a result.
inline Expr operator/(const Expr& a, const Expr& b) {
  return Expr::binary("/", a, b);
}
// The operator, once there is a result.
inline Expr operator%(const Expr& a, const Expr& b) {
  return Expr::binary("%", a, b);
}
// The operator, once there is a result.
inline Expr operator==(const Expr& a, const Expr& b) {
  return Expr::binary("==", a, b);
}
// The operator, once there is a result.
inline Expr operator!=(const Expr& a, const Expr& b) {
  return Expr::binary("!=", a, b);
}
// The operator, once there is a result.
inline Expr operator<(const Expr& a, const Expr& b) {
  return Expr::binary("<", a, b);
}
// The operator, once there is a result.
inline Expr operator<=(const Expr& a, const Expr& b) {
  return Expr::binary("<=", a, b);
}
// The operator, once there is a result.
inline Expr operator>(const Expr& a, const Expr& b) {
  return Expr::binary(">", a, b);
}
// The operator, once there is a result.
inline Expr operator>=(const Expr& a, const Expr& b) {
  return Expr::binary(">=", a, b);
}
// Both sides are evaluated.
inline Expr operator&(const Expr& a, const Expr& b) {
  return Expr::binary("&", a, b);
}
// Both sides are evaluated.
inline Expr operator|(const Expr& a, const Expr& b) {
  return Expr::binary("|", a, b);
}
inline Expr operator-(const Expr& a) {
  return Expr::unary("-", a);
}
// Not.
inline Expr operator~(const Expr& a) {
  return Expr::unary("~", a);
}

// NOLINTBEGIN(readability-identifier-naming): the names of the documents
// What the objective returned.
inline const Expr R = Expr::root('R');
// The metrics: M["time"].
inline const Expr M = Expr::root('M');
// The configuration.
inline const Expr C = Expr::root('C');
// NOLINTEND(readability-identifier-naming)

// A trial that has ended.
struct Trial {
  std::uint64_t id = 0;                  // from 1
  TrialState state = TrialState::kFail;  // how it ended
  Record record;                         // configuration, return value, metrics
  double value = 0;                      // of the target; of a pruned trial its last report
  std::vector<double> values = {};       // of all targets; its first one is `value`
  double violation = 0;                  // of the constraints; 0: all of them hold
  int tries = 0;                         // calls of the objective
  std::string error;                     // why it failed, or was skipped
};

// The best trials so far, at most `capacity`; of equal ones the earlier comes first, and a value
// that is not a number comes last. A trial that violates a constraint comes behind all that do not,
// and of two such ones that with the smaller violation is better. With several targets the first
// one counts, then the second, and so on.
class DIVISI_API RankList {
 public:
  // `maximize`: whether larger values are better.
  RankList(std::size_t capacity, bool maximize);
  // Of several targets.
  RankList(std::size_t capacity, std::vector<Direction> directions);
  // Whether it is the best now.
  bool insert(const Trial& trial);
  // The best one first.
  const std::vector<Trial>& trials() const noexcept { return trials_; }

 private:
  std::size_t capacity_;
  std::vector<Direction> directions_;
  std::vector<Trial> trials_;
};

// Thrown by an objective to leave its trial out: no retry, no result.
class DIVISI_API Skip : public std::exception {
 public:
  // The reason is Trial::error.
  explicit Skip(std::string reason = {}) : reason_(std::move(reason)) {}
  // The reason.
  const char* what() const noexcept override { return reason_.c_str(); }

 private:
  std::string reason_;
};

// Thrown by an objective whose trial is not worth finishing: no retry, no result.
class DIVISI_API Pruned : public std::exception {
 public:
  // Says that the trial was pruned.
  const char* what() const noexcept override { return "the trial was pruned"; }
};

// The best trial of a search.
struct Best {
  Value config;                // what the objective was given
  Value returned;              // what it gave back
  Value metrics;               // "time", in seconds
  std::uint64_t trial_id = 0;  // its number
};

// --- the search ---

// Returns figures for a configuration. Called from several threads if max_workers is above 1.
using Objective = std::function<Value(const Value& config)>;

// The trial that an objective is running: what it reports, and whether it should go on. Belongs to
// the call of the objective, whose threads may share it.
class DIVISI_API TrialHandle {
 public:
  // By the tuner. `pruner` may be null.
  TrialHandle(std::uint64_t id, int attempt, Pruner* pruner)
      : id_(id), attempt_(attempt), pruner_(pruner) {}

  // The number of the trial, from 1.
  std::uint64_t id() const noexcept { return id_; }
  // Which try of the trial this is, from 1.
  int attempt() const noexcept { return attempt_; }
  // What the trial has reached at a step, from 0. Throws UsageError: a negative step.
  void report(std::int64_t step, double value);
  // Whether the trial should end now: throw Pruned{}. Always false without Tuner::prune.
  bool should_prune();
  // The value of the last report; not a number before the first.
  double last_report() const noexcept { return last_report_.load(); }

 private:
  std::uint64_t id_;
  int attempt_;
  Pruner* pruner_;
  std::atomic<double> last_report_ = std::numeric_limits<double>::quiet_NaN();
};

// The same for an objective that reports while it runs, and may throw Pruned.
using ReportingObjective = std::function<Value(const Value& config, TrialHandle& trial)>;

// A search that is being described; run() carries it out. Not thread-safe.
class DIVISI_API Tuner {
 public:
  // Of a function that can be called; otherwise UsageError.
  explicit Tuner(Objective objective);
  // Of one that reports while it runs.
  explicit Tuner(ReportingObjective objective);
  Tuner(Tuner&&) noexcept;
  Tuner& operator=(Tuner&&) noexcept;
  ~Tuner();

  // The algorithm; the last call counts. max_steps and the direction come from the tuner.
  Tuner& grid(GridOptions options = {});
  // Of Python's generator with that seed, or of the system's randomness.
  Tuner& random(std::optional<std::uint64_t> seed = std::nullopt);
  // See BayesOptions.
  Tuner& bayes(BayesOptions options = {});
  // See TpeOptions.
  Tuner& tpe(TpeOptions options = {});
  // See QmcOptions.
  Tuner& qmc(QmcOptions options = {});
  // The one that choose_algorithm() recommends, with this seed.
  Tuner& automatic(std::uint64_t seed = 0);
  // See CmaesOptions.
  Tuner& cmaes(CmaesOptions options = {});
  // See Nsga2Options; the directions come from the tuner as well.
  Tuner& nsga2(Nsga2Options options = {});

  // Trials; nothing is without limit.
  Tuner& max_steps(std::optional<std::int64_t> n);
  Tuner& max_workers(int n);  // from 1; default: as many as there are cores
  Tuner& max_tries(int n);    // from 1; default 3
  Tuner& rank(int n);         // from 1; default 5
  // Exactly one of the two, once.
  Tuner& maximize(Expr target, std::string name = "target");
  // The smaller, the better.
  Tuner& minimize(Expr target, std::string name = "target");
  // A further target, a column of the table behind those before; without a name "target_2" and so
  // on. nsga2 looks for all of them; random and grid do not look at results.
  Tuner& also_maximize(Expr target, std::string name = {});
  // Likewise; the smaller, the better.
  Tuner& also_minimize(Expr target, std::string name = {});
  // What a result must meet: a comparison, a truth value, or a number that must not be above 0;
  // of several, all. Results that do not come behind those that do.
  Tuner& subject_to(Expr condition);
  Tuner& stop_when(Expr condition);                 // several are or-ed
  Tuner& no_improvement(int trials);                // stop after so many without a better one
  Tuner& timeout(std::chrono::milliseconds limit);  // no new trials after that
  Tuner& concern(Expr value, std::string name);     // a further column of the table
  // Ends trials early whose reports are worse than those of others, in the direction of the target.
  Tuner& prune(Pruner pruner);
  // What is searched.
  Tuner& spaces(Structure structure);
  // Keeps all trials in a study: divisi/study.h says where one can live.
  Tuner& storage(std::string url, std::string name = "study");
  // Goes on with that study if it exists. Several processes that do this share the work.
  Tuner& resume(bool resume = true);
  // Called for every trial that has ended, one at a time, before the next one may start. What it
  // throws ends the search.
  Tuner& on_trial(std::function<void(const Trial&)> listener);

  // Searches, and returns the best trial: of several targets, that of pareto() which is best by the
  // first one. Nothing when no trial ended well and met the constraints. Throws UsageError: no
  // target or no spaces, settings that do not fit; and what a listener threw.
  std::optional<Best> run();
  // The trials of the last run that no other one dominates: none is better in one target and
  // nowhere worse. In the order in which they ended; only such that meet the constraints. With one
  // target the best one.
  std::vector<Trial> pareto() const;
  // The best trials of the last run as a table.
  std::string table() const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

// A search over this function.
inline Tuner tune(Objective objective) {
  return Tuner(std::move(objective));
}
// A search over a function that reports while it runs: it takes a TrialHandle& as well.
template <class Function>
  requires std::is_invocable_r_v<Value, Function&, const Value&, TrialHandle&>
Tuner tune(Function objective) {
  return Tuner(ReportingObjective(std::move(objective)));
}

}  // namespace divisi::tune
