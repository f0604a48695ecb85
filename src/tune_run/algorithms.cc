#include "tune_run/algorithms.h"

#include "base/nearest_name.h"
#include "tune_run/option_reader.h"
#include "tune_run/population.h"
#include "tune_run/study_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace divisi::tune_run {
namespace {

using tune::Sampler;

OptionReader reader_of(const StudyPlan& plan) {
  return {"algorithm " + plan.algorithm.name, plan.algorithm.options};
}

Result<Sampler> make_grid(const StudyPlan& plan) {
  tune::GridOptions options;
  std::size_t allocation = 0;
  std::uint64_t unused_seed = 0;
  OptionReader read = reader_of(plan);
  read.one_of("allocation", {"balanced", "length"}, allocation);
  read.flag("strict_budget", options.strict_budget);
  read.seed("seed", unused_seed);  // a grid has nothing random
  if (Status status = read.finish(); !status.ok()) return failure(status);
  options.allocation = allocation == 0 ? tune::Allocation::kBalanced : tune::Allocation::kLength;
  options.max_steps = plan.max_steps;
  return Sampler::grid(plan.space.spaces(), options);
}

Result<Sampler> make_random(const StudyPlan& plan) {
  tune::RandomOptions options{.max_steps = plan.max_steps};
  std::uint64_t seed = 0;
  OptionReader read = reader_of(plan);
  if (read.seed("seed", seed)) options.words = tune::python_random(seed);
  if (Status status = read.finish(); !status.ok()) return failure(status);
  return Sampler::random(plan.space.spaces(), std::move(options));
}

Result<Sampler> make_bayes(const StudyPlan& plan) {
  tune::BayesOptions options;
  std::size_t acquisition = 0;
  std::size_t pending = 0;
  OptionReader read = reader_of(plan);
  read.seed("seed", options.seed);
  read.whole("init_steps", options.init_steps);
  read.one_of("acq", {"ei", "ucb", "poi"}, acquisition);
  read.number("kappa", options.kappa);
  read.number("kappa_decay", options.kappa_decay);
  read.whole("kappa_decay_delay", options.kappa_decay_delay);
  read.number("xi", options.xi);
  read.one_of("pending", {"predicted", "best", "mean", "worst"}, pending);
  read.flag("impute_failures", options.impute_failures);
  if (Status status = read.finish(); !status.ok()) return failure(status);
  options.acquisition = static_cast<tune::Acquisition>(acquisition);
  options.pending = static_cast<tune::Lie>(pending);
  options.max_steps = plan.max_steps;
  options.maximize = plan.targets.front().maximize;
  return Sampler::bayes(plan.space.spaces(), options);
}

Result<Sampler> make_tpe(const StudyPlan& plan) {
  tune::TpeOptions options;
  OptionReader read = reader_of(plan);
  read.seed("seed", options.seed);
  read.whole("n_startup", options.n_startup);
  read.whole("n_candidates", options.n_candidates);
  read.number("gamma", options.gamma);
  read.whole("max_good", options.max_good);
  read.number("prior_weight", options.prior_weight);
  read.flag("constant_liar", options.constant_liar);
  read.flag("impute_failures", options.impute_failures);
  if (Status status = read.finish(); !status.ok()) return failure(status);
  options.max_steps = plan.max_steps;
  options.maximize = plan.targets.front().maximize;
  return Sampler::tpe(plan.space.spaces(), options);
}

Result<Sampler> make_qmc(const StudyPlan& plan) {
  tune::QmcOptions options{.max_steps = plan.max_steps};
  OptionReader read = reader_of(plan);
  read.seed("seed", options.seed);
  if (Status status = read.finish(); !status.ok()) return failure(status);
  return Sampler::qmc(plan.space.spaces(), options);
}

Result<Sampler> make_cmaes(const StudyPlan& plan) {
  tune::CmaesOptions options;
  OptionReader read = reader_of(plan);
  read.seed("seed", options.seed);
  read.whole("population_size", options.population_size);
  read.number("sigma0", options.sigma0);
  read.flag("active", options.active);
  read.flag("restarts", options.restarts);
  if (Status status = read.finish(); !status.ok()) return failure(status);
  options.max_steps = plan.max_steps;
  options.maximize = plan.targets.front().maximize;
  return Sampler::cmaes(plan.space.spaces(), options);
}

Result<Sampler> make_nsga2(const StudyPlan& plan) {
  tune::Nsga2Options options;
  double mutation = std::numeric_limits<double>::quiet_NaN();  // not given
  OptionReader read = reader_of(plan);
  read.seed("seed", options.seed);
  read.whole("population_size", options.population_size);
  read.number("crossover_probability", options.crossover_probability);
  read.number("crossover_index", options.crossover_index);
  read.number("mutation_probability", mutation);
  read.number("mutation_index", options.mutation_index);
  if (Status status = read.finish(); !status.ok()) return failure(status);
  if (!std::isnan(mutation)) options.mutation_probability = mutation;
  options.max_steps = plan.max_steps;
  for (const auto& target : plan.targets) {
    options.directions.push_back(target.maximize ? tune::Direction::kMaximize
                                                 : tune::Direction::kMinimize);
  }
  return Sampler::nsga2(plan.space.spaces(), std::move(options));
}

// Its first generation: the others follow from what trials reach, and are asked of a Population.
Result<Sampler> make_pbt(const StudyPlan& plan) {
  DIVISI_TRY(const tune::PbtOptions options, read_population_options(plan));
  const tune::Pbt checked(plan.space.spaces(), options);
  return Sampler::random(plan.space.spaces(), {.max_steps = options.population,
                                               .words = tune::python_random(options.seed)});
}

// The one that fits the targets, the budget and the variables.
Result<Sampler> make_auto(const StudyPlan& plan) {
  StudyPlan chosen = plan;
  chosen.algorithm.name = plan.targets.size() > 1
                              ? "nsga2"
                              : tune::choose_algorithm(plan.space.spaces(), plan.max_steps).name;
  return make_sampler(chosen);
}

struct NamedAlgorithm {
  std::string_view name;
  Result<Sampler> (*make)(const StudyPlan&);
  bool many_targets;  // whether it uses more than the first one
};

const std::vector<NamedAlgorithm>& algorithms() {
  static const std::vector<NamedAlgorithm> all{
      {"random", make_random, true}, {"grid", make_grid, true}, {"qmc", make_qmc, true},
      {"bayes", make_bayes, false},  {"tpe", make_tpe, false},  {"cmaes", make_cmaes, false},
      {"nsga2", make_nsga2, true},   {"pbt", make_pbt, false},  {"auto", make_auto, true}};
  return all;
}

}  // namespace

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (const NamedAlgorithm& one : algorithms()) names.emplace_back(one.name);
  return names;
}

Result<Sampler> make_sampler(const StudyPlan& plan) {
  const std::string& name = plan.algorithm.name;
  const auto found = std::ranges::find(algorithms(), name, &NamedAlgorithm::name);
  if (found == algorithms().end()) {
    const std::vector<std::string> names = algorithm_names();
    return failure(Code::kInvalid, "algorithm: there is no '{}'{} (there are {})", name,
                   did_you_mean(name, names), fmt::join(names, ", "));
  }
  if (plan.targets.size() > 1 && !found->many_targets) {
    return failure(Code::kInvalid, "algorithm {} has one target, not {}", name,
                   plan.targets.size());
  }
  try {
    return found->make(plan);
  } catch (const UsageError& error) {
    return failure(Code::kInvalid, "algorithm {}: {}", name, error.what());
  }
}

}  // namespace divisi::tune_run
