// The fluent front for C++, and the run: workers that ask, call the objective, and tell.
#include "base/status.h"
#include "divisi/tune.h"
#include "tune/constraint.h"
#include "tune/expr_node.h"
#include "tune/numbers.h"
#include "tune/tuner_study.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <random>
#include <thread>

namespace divisi::tune {
namespace {

struct Target {
  Expr expr;
  std::string name;
  Direction direction;
};

}  // namespace

struct Tuner::Plan {
  ReportingObjective objective;
  enum class Algorithm {
    kNone,
    kGrid,
    kRandom,
    kBayes,
    kTpe,
    kQmc,
    kCmaes,
    kNsga2,
    kAutomatic
  } algorithm = Algorithm::kNone;
  GridOptions grid;
  std::optional<std::uint64_t> random_seed = std::nullopt;
  BayesOptions bayes;
  TpeOptions tpe;
  QmcOptions qmc;
  CmaesOptions cmaes;
  Nsga2Options nsga2;
  std::optional<std::int64_t> max_steps = std::nullopt;
  int max_workers = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  int max_tries = 3;
  int rank = 5;
  std::vector<Target> targets;
  std::vector<Expr> constraints;
  std::vector<Expr> stops;
  std::optional<int> patience = std::nullopt;
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
  std::vector<std::pair<std::string, Expr>> concerns;
  std::optional<Structure> structure = std::nullopt;
  std::function<void(const Trial&)> listener = nullptr;
  std::optional<Pruner> pruner = std::nullopt;
  std::optional<TunerStorage> storage = std::nullopt;
  bool resume = false;
  std::vector<Trial> ranked;  // of the last run
  std::vector<Trial> pareto;  // likewise

  bool maximize() const { return targets.front().direction == Direction::kMaximize; }

  std::vector<Direction> directions() const {
    std::vector<Direction> all;
    for (const Target& target : targets) all.push_back(target.direction);
    return all;
  }

  Algorithm chosen(const SearchSpace& space) const {
    if (algorithm != Algorithm::kAutomatic) return algorithm;
    const std::string name = choose_algorithm(space, max_steps).name;
    return name == "grid" ? Algorithm::kGrid
                          : (name == "bayes" ? Algorithm::kBayes : Algorithm::kTpe);
  }

  // The options of an algorithm, with what all have in common.
  template <class Options>
  Options completed(Options options) const {
    options.max_steps = max_steps;
    if constexpr (requires { options.maximize; }) options.maximize = maximize();
    if constexpr (requires { options.directions; }) options.directions = directions();
    return options;
  }

  // Of an algorithm that has one. A random search without a seed gets one.
  std::optional<std::uint64_t> seed() const {
    switch (algorithm) {
      case Algorithm::kBayes: return bayes.seed;
      case Algorithm::kTpe:
      case Algorithm::kAutomatic: return tpe.seed;
      case Algorithm::kQmc: return qmc.seed;
      case Algorithm::kCmaes: return cmaes.seed;
      case Algorithm::kNsga2: return nsga2.seed;
      case Algorithm::kRandom: break;
      default: return std::nullopt;
    }
    if (random_seed) return random_seed;
    std::random_device device;
    return std::uint64_t{device()} << 32U | device();
  }

  // The study of this plan, which then has its seed; nothing without storage.
  std::unique_ptr<TunerStudy> open_study() {
    if (!storage) return nullptr;
    storage->resume = resume;
    constexpr const char* kNames[] = {"none", "grid",  "random", "bayes",    "tpe",
                                      "qmc",  "cmaes", "nsga2",  "automatic"};
    std::vector<bool> larger;
    std::vector<std::string> texts;
    for (const Target& target : targets) {
      larger.push_back(target.direction == Direction::kMaximize);
      texts.push_back(target.expr.text());
    }
    auto study = std::make_unique<TunerStudy>(*storage, *structure,
                                              kNames[static_cast<std::size_t>(algorithm)],
                                              std::move(larger), std::move(texts), seed());
    if (algorithm == Algorithm::kRandom && !random_seed) random_seed = study->seed();
    return study;
  }

  Sampler sampler() const {
    SearchSpace space;
    for (const HyperValue& value : structure->flatten()) space.spaces.push_back(value.space());
    switch (chosen(space)) {
      case Algorithm::kGrid: return Sampler::grid(std::move(space), completed(grid));
      case Algorithm::kBayes: return Sampler::bayes(std::move(space), completed(bayes));
      case Algorithm::kTpe: return Sampler::tpe(std::move(space), completed(tpe));
      case Algorithm::kQmc: return Sampler::qmc(std::move(space), completed(qmc));
      case Algorithm::kCmaes: return Sampler::cmaes(std::move(space), completed(cmaes));
      case Algorithm::kNsga2: return Sampler::nsga2(std::move(space), completed(nsga2));
      default: break;
    }
    RandomOptions options{.max_steps = max_steps};
    if (random_seed) options.words = python_random(*random_seed);
    return Sampler::random(std::move(space), std::move(options));
  }
};

namespace {

using Clock = std::chrono::steady_clock;

int from_one(const char* name, int n) {
  if (n < 1) throw UsageError(fmt::format("{} must be 1 or more, not {}", name, n));
  return n;
}

// What a run needs of the plan, and what its workers share.
struct SearchSetup {
  const ReportingObjective& objective;
  const Structure& structure;
  const std::vector<Target>& targets;
  const std::vector<Expr>& constraints;
  const std::vector<Expr>& stops;
  const std::function<void(const Trial&)>& listener;
  int max_tries;
  std::optional<int> patience;
  std::optional<Clock::time_point> deadline;
  Pruner* pruner;  // or null
};

class Search {
 public:
  Search(const SearchSetup& setup, Sampler sampler, RankList ranking,
         std::vector<Direction> directions, TunerStudy* study)
      : setup_(setup),
        study_(study),
        sampler_(std::move(sampler)),
        ranking_(std::move(ranking)),
        front_(std::move(directions)) {}

  void run(int workers) {
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < workers; ++i) threads.emplace_back([this] { work(); });
    }
    if (error_) std::rethrow_exception(error_);
  }

  const std::vector<Trial>& ranked() const { return ranking_.trials(); }

  std::vector<Trial> pareto() const {
    if (setup_.targets.size() == 1) {
      const bool found = !ranked().empty() && is_candidate(ranked().front());
      return found ? std::vector{ranked().front()} : std::vector<Trial>{};
    }
    std::vector<Trial> trials;
    for (const ParetoFront::Member& member : front_.members()) {
      trials.push_back(undominated_.at(member.id));
    }
    return trials;
  }

 private:
  void work() {
    while (is_open()) {
      const std::optional<Sample> sample = next();
      if (!sample || !is_open()) return;
      Trial trial;
      trial.id = sample->id;
      attempt(*sample, trial);
      finish(trial);
    }
  }

  // The next trial; nothing as well when the study cannot be written, which ends the search.
  std::optional<Sample> next() {
    if (study_ == nullptr) return sampler_.ask();
    try {
      return study_->ask(sampler_);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      fail();
      return std::nullopt;
    }
  }

  // With the mutex, inside of a handler: its exception ends the search.
  void fail() {
    if (!error_) error_ = std::current_exception();
    open_ = false;
  }

  // A pruned trial has its last report as its value.
  static Outcome outcome_of(const Trial& trial) {
    Outcome outcome{trial.state, trial.values, trial.violation};
    if (trial.state == TrialState::kPruned) outcome.values = {trial.value};
    return outcome;
  }

  // Whether the end of the trial is known.
  bool tell(const Trial& trial) {
    if (study_ == nullptr) {
      sampler_.tell(trial.id, outcome_of(trial));
      return true;
    }
    try {
      study_->tell(trial);
      return true;
    } catch (...) {
      fail();
      return false;
    }
  }

  bool is_open() {
    const std::lock_guard lock(mutex_);
    if (setup_.deadline && Clock::now() >= *setup_.deadline) open_ = false;
    return open_;
  }

  // Calls the objective until a try does not fail.
  void attempt(const Sample& sample, Trial& trial) {
    try {
      trial.record.config = setup_.structure.config(sample.values);
    } catch (const UsageError& error) {
      trial.error = error.what();
      return;
    }
    while (trial.tries < setup_.max_tries && trial.state == TrialState::kFail) {
      ++trial.tries;
      const Clock::time_point started = Clock::now();
      call_objective(trial);
      const double seconds = std::chrono::duration<double>(Clock::now() - started).count();
      trial.record.metrics = Value(Value::Map{{Value("time"), Value(seconds)}});
    }
  }

  void call_objective(Trial& trial) {
    TrialHandle handle(trial.id, trial.tries, setup_.pruner);
    try {
      trial.record.returned = setup_.objective(trial.record.config, handle);
      trial.state = TrialState::kOk;
    } catch (const Skip& skip) {
      trial.state = TrialState::kSkip;
      trial.error = skip.what();
    } catch (const Pruned& pruned) {
      trial.state = TrialState::kPruned;
      trial.error = pruned.what();
      trial.value = handle.last_report();
    } catch (const std::exception& error) {
      trial.error = error.what();
    } catch (...) {
      trial.error = "the objective threw something that is not an exception";
    }
    if (setup_.pruner != nullptr) setup_.pruner->finish(trial.id, trial.state);
  }

  // Targets, constraints and stop conditions; a trial without them has failed.
  Result<bool> judge(Trial& trial) const {
    for (const Target& target : setup_.targets) {
      DIVISI_TRY(const Value computed, evaluate(target.expr, trial.record));
      const std::optional<double> value = as_number(computed);
      if (!value) {
        return failure(Code::kInvalid, "the target {} is {}, not a number", target.expr.text(),
                       computed.describe());
      }
      trial.values.push_back(*value);
    }
    trial.value = trial.values.front();
    for (const Expr& constraint : setup_.constraints) {
      DIVISI_TRY(const double violation, violation_of(constraint, trial.record));
      trial.violation += violation;
    }
    bool stop = false;
    for (const Expr& condition : setup_.stops) {
      DIVISI_TRY(const Value met, evaluate(condition, trial.record));
      stop = is_true(met) || stop;
    }
    return stop;
  }

  // One trial at a time: the algorithm, the rank list, the listener, the stop conditions.
  void finish(Trial& trial) {
    const std::lock_guard lock(mutex_);
    bool stop = false;
    if (trial.state == TrialState::kOk) {
      const Result<bool> judged = judge(trial);
      if (judged) {
        stop = *judged;
      } else {
        trial.state = TrialState::kFail;
        trial.error = judged.error().message();
        trial.values.clear();
      }
    }
    if (!tell(trial)) return;
    ++since_best_;
    if (trial.state == TrialState::kOk && rank(trial)) since_best_ = 0;
    if (stop || (setup_.patience && since_best_ >= *setup_.patience)) open_ = false;
    if (!setup_.listener || error_) return;
    try {
      setup_.listener(trial);
    } catch (...) {
      error_ = std::current_exception();
      open_ = false;
    }
  }

  // Whether the trial is better than all before; of several targets, whether none dominates it.
  bool rank(const Trial& trial) {
    const bool best = ranking_.insert(trial);
    if (setup_.targets.size() == 1 || !is_candidate(trial)) return best;
    if (!front_.insert(trial.id, trial.values)) return false;
    undominated_.emplace(trial.id, trial);
    std::erase_if(undominated_, [&](const auto& entry) {
      return std::none_of(front_.members().begin(), front_.members().end(),
                          [&](const auto& member) { return member.id == entry.first; });
    });
    return true;
  }

  static bool is_candidate(const Trial& trial) {
    return trial.violation == 0 && std::all_of(trial.values.begin(), trial.values.end(),
                                               [](double value) { return std::isfinite(value); });
  }

  const SearchSetup& setup_;
  TunerStudy* const study_;  // null: trials are not kept
  Sampler sampler_;

  std::mutex mutex_;  // guards all below
  RankList ranking_;
  ParetoFront front_;                           // of several targets
  std::map<std::uint64_t, Trial> undominated_;  // its trials
  int since_best_ = 0;
  bool open_ = true;
  std::exception_ptr error_;
};

Cell cell_of(const Value& value) {
  if (value.is_nil()) return {};
  if (const auto* whole = value.get_if<std::int64_t>()) return *whole;
  if (const auto* flag = value.get_if<bool>()) return std::string(*flag ? "True" : "False");
  if (const std::optional<double> number = as_number(value)) return *number;
  if (const auto* text = value.get_if<std::string>()) return *text;
  return value.describe();
}

}  // namespace

RankList::RankList(std::size_t capacity, bool maximize)
    : RankList(capacity,
               std::vector<Direction>{maximize ? Direction::kMaximize : Direction::kMinimize}) {}

RankList::RankList(std::size_t capacity, std::vector<Direction> directions)
    : capacity_(capacity), directions_(std::move(directions)) {}

bool RankList::insert(const Trial& trial) {
  // Smaller is better. NaN is larger than every number, so that it comes last in both directions.
  struct Key {
    bool nan = false;
    double violation = 0;
    std::vector<double> values;
    auto operator<=>(const Key&) const = default;
  };
  const auto key = [this](const Trial& one) {
    Key made{.violation = one.violation, .values = {one.value}};
    made.values.insert(made.values.end(), one.values.begin() + (one.values.empty() ? 0 : 1),
                       one.values.end());
    for (std::size_t i = 0; i < made.values.size(); ++i) {
      const bool larger = i < directions_.size() && directions_[i] == Direction::kMaximize;
      made.nan = made.nan || std::isnan(made.values[i]);
      made.values[i] = std::isnan(made.values[i]) ? 0 : (larger ? -made.values[i] : made.values[i]);
    }
    return made;
  };
  const auto place =
      std::upper_bound(trials_.begin(), trials_.end(), trial,
                       [&](const Trial& a, const Trial& b) { return key(a) < key(b); });
  const bool best = place == trials_.begin();
  trials_.insert(place, trial);
  if (trials_.size() > capacity_) trials_.pop_back();
  return best;
}

void TrialHandle::report(std::int64_t step, double value) {
  if (step < 0) throw UsageError(fmt::format("a report for step {}: steps count from 0", step));
  last_report_ = value;
  if (pruner_ != nullptr) pruner_->report(id_, step, value);
}

bool TrialHandle::should_prune() {
  return pruner_ != nullptr && pruner_->should_prune(id_);
}

Tuner::Tuner(Objective objective)
    : Tuner(objective ? ReportingObjective(
                            [called = std::move(objective)](const Value& config, TrialHandle&) {
                              return called(config);
                            })
                      : nullptr) {}

Tuner::Tuner(ReportingObjective objective) : plan_(std::make_unique<Plan>()) {
  if (!objective) throw UsageError("tune needs an objective that can be called");
  plan_->objective = std::move(objective);
}
Tuner::Tuner(Tuner&&) noexcept = default;
Tuner& Tuner::operator=(Tuner&&) noexcept = default;
Tuner::~Tuner() = default;

Tuner& Tuner::grid(GridOptions options) {
  plan_->algorithm = Plan::Algorithm::kGrid;
  plan_->grid = options;
  return *this;
}

Tuner& Tuner::random(std::optional<std::uint64_t> seed) {
  plan_->algorithm = Plan::Algorithm::kRandom;
  plan_->random_seed = seed;
  return *this;
}

Tuner& Tuner::bayes(BayesOptions options) {
  plan_->algorithm = Plan::Algorithm::kBayes;
  plan_->bayes = options;
  return *this;
}
Tuner& Tuner::tpe(TpeOptions options) {
  plan_->algorithm = Plan::Algorithm::kTpe;
  plan_->tpe = options;
  return *this;
}
Tuner& Tuner::qmc(QmcOptions options) {
  plan_->algorithm = Plan::Algorithm::kQmc;
  plan_->qmc = options;
  return *this;
}
Tuner& Tuner::automatic(std::uint64_t seed) {
  plan_->algorithm = Plan::Algorithm::kAutomatic;
  plan_->grid = {};
  plan_->bayes = {.seed = seed};
  plan_->tpe = {.seed = seed};
  return *this;
}

Tuner& Tuner::cmaes(CmaesOptions options) {
  plan_->algorithm = Plan::Algorithm::kCmaes;
  plan_->cmaes = options;
  return *this;
}

Tuner& Tuner::nsga2(Nsga2Options options) {
  plan_->algorithm = Plan::Algorithm::kNsga2;
  plan_->nsga2 = std::move(options);
  return *this;
}

Tuner& Tuner::max_steps(std::optional<std::int64_t> n) {
  plan_->max_steps = n;
  return *this;
}

Tuner& Tuner::max_workers(int n) {
  plan_->max_workers = from_one("max_workers", n);
  return *this;
}

Tuner& Tuner::max_tries(int n) {
  plan_->max_tries = from_one("max_tries", n);
  return *this;
}

Tuner& Tuner::rank(int n) {
  plan_->rank = from_one("rank", n);
  return *this;
}

Tuner& Tuner::maximize(Expr target, std::string name) {
  minimize(std::move(target), std::move(name));
  plan_->targets.back().direction = Direction::kMaximize;
  return *this;
}

Tuner& Tuner::minimize(Expr target, std::string name) {
  if (!plan_->targets.empty()) {
    throw UsageError(
        "maximize or minimize was called already: also_maximize and also_minimize add targets");
  }
  plan_->targets.push_back({std::move(target), std::move(name), Direction::kMinimize});
  return *this;
}

Tuner& Tuner::also_maximize(Expr target, std::string name) {
  also_minimize(std::move(target), std::move(name));
  plan_->targets.back().direction = Direction::kMaximize;
  return *this;
}

Tuner& Tuner::also_minimize(Expr target, std::string name) {
  if (plan_->targets.empty()) {
    throw UsageError("a further target needs a first one: call maximize or minimize before");
  }
  if (name.empty()) name = fmt::format("target_{}", plan_->targets.size() + 1);
  plan_->targets.push_back({std::move(target), std::move(name), Direction::kMinimize});
  return *this;
}

Tuner& Tuner::subject_to(Expr condition) {
  plan_->constraints.push_back(std::move(condition));
  return *this;
}

Tuner& Tuner::stop_when(Expr condition) {
  plan_->stops.push_back(std::move(condition));
  return *this;
}

Tuner& Tuner::no_improvement(int trials) {
  plan_->patience = from_one("no_improvement", trials);
  return *this;
}

Tuner& Tuner::timeout(std::chrono::milliseconds limit) {
  plan_->timeout = limit;
  return *this;
}

Tuner& Tuner::concern(Expr value, std::string name) {
  plan_->concerns.emplace_back(std::move(name), std::move(value));
  return *this;
}

Tuner& Tuner::prune(Pruner pruner) {
  plan_->pruner = std::move(pruner);
  return *this;
}

Tuner& Tuner::spaces(Structure structure) {
  plan_->structure = std::move(structure);
  return *this;
}

Tuner& Tuner::storage(std::string url, std::string name) {
  plan_->storage = TunerStorage{.url = std::move(url), .name = std::move(name)};
  return *this;
}

Tuner& Tuner::resume(bool resume) {
  plan_->resume = resume;
  return *this;
}

Tuner& Tuner::on_trial(std::function<void(const Trial&)> listener) {
  plan_->listener = std::move(listener);
  return *this;
}

std::optional<Best> Tuner::run() {
  Plan& plan = *plan_;
  if (plan.algorithm == Plan::Algorithm::kNone) {
    throw UsageError(
        "no algorithm: call grid, random, bayes, tpe, qmc, cmaes, nsga2 or automatic before run");
  }
  if (plan.targets.empty()) {
    throw UsageError("nothing to optimize: call maximize or minimize before run");
  }
  if (!plan.structure) throw UsageError("nothing to search: call spaces before run");
  std::optional<Clock::time_point> deadline;
  if (plan.timeout) deadline = Clock::now() + *plan.timeout;
  std::optional<Pruner> pruner;
  if (plan.pruner) pruner = plan.pruner->anew(plan.maximize());
  const SearchSetup setup{plan.objective, *plan.structure,
                          plan.targets,   plan.constraints,
                          plan.stops,     plan.listener,
                          plan.max_tries, plan.patience,
                          deadline,       pruner ? &*pruner : nullptr};
  // Wrong settings leave no study behind.
  if (plan.sampler().objectives().value_or(plan.targets.size()) != plan.targets.size()) {
    throw UsageError(fmt::format(
        "{} targets, and this algorithm knows one: nsga2, random, qmc and grid take several",
        plan.targets.size()));
  }
  const std::unique_ptr<TunerStudy> study = plan.open_study();
  const auto capacity = static_cast<std::size_t>(plan.rank);
  Search search(setup, plan.sampler(), RankList(capacity, plan.directions()), plan.directions(),
                study.get());
  search.run(plan.max_workers);
  plan.ranked = study ? study->ranked(search.ranked(), capacity) : search.ranked();
  plan.pareto = study ? study->pareto() : search.pareto();
  if (plan.ranked.empty() || plan.ranked.front().violation > 0) return std::nullopt;
  const Trial& best = plan.ranked.front();
  return Best{best.record.config, best.record.returned, best.record.metrics, best.id};
}

std::vector<Trial> Tuner::pareto() const {
  return plan_->pareto;
}

std::string Tuner::table() const {
  const Plan& plan = *plan_;
  std::vector<std::string> headers{"#"};
  if (plan.structure) {
    for (std::string& name : plan.structure->names()) headers.push_back(std::move(name));
  }
  for (const Target& target : plan.targets) headers.push_back(target.name);
  if (!plan.constraints.empty()) headers.emplace_back("violation");
  for (const auto& [name, expr] : plan.concerns) headers.push_back(name);
  std::vector<std::vector<Cell>> rows;
  for (const Trial& trial : plan.ranked) {
    std::vector<Cell>& row = rows.emplace_back();
    row.emplace_back(static_cast<std::int64_t>(trial.id));
    for (const Value& value : plan.structure->variables(trial.record.config)) {
      row.push_back(cell_of(value));
    }
    for (const double value : trial.values) row.emplace_back(value);
    if (!plan.constraints.empty()) row.emplace_back(trial.violation);
    for (const auto& [name, expr] : plan.concerns) {
      row.push_back(cell_of(evaluate(expr, trial.record).value_or(Value())));
    }
  }
  return format_table(headers, rows, TableStyle::kPsql);
}

}  // namespace divisi::tune
