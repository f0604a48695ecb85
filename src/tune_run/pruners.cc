#include "tune_run/pruners.h"

#include "base/nearest_name.h"
#include "divisi/error.h"
#include "tune_run/option_reader.h"
#include "tune_run/study_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace divisi::tune_run {
namespace {

using tune::Pruner;

void read_percentile(OptionReader& read, tune::PercentileOptions& options) {
  read.whole("startup_trials", options.startup_trials);
  read.whole("warmup_steps", options.warmup_steps);
  read.whole("interval_steps", options.interval_steps);
  read.whole("min_trials", options.min_trials);
  read.flag("count_ended", options.count_ended);
}

Result<Pruner> make_median(OptionReader& read, bool maximize) {
  tune::PercentileOptions options{.maximize = maximize};
  read_percentile(read, options);
  if (Status status = read.finish(); !status.ok()) return failure(status);
  return Pruner::median(options);
}

Result<Pruner> make_percentile(OptionReader& read, bool maximize) {
  tune::PercentileOptions options{.maximize = maximize};
  double percentile = 25;
  read.number("percentile", percentile);
  read_percentile(read, options);
  if (Status status = read.finish(); !status.ok()) return failure(status);
  return Pruner::percentile(percentile, options);
}

Result<Pruner> make_halving(OptionReader& read, bool maximize) {
  tune::HalvingOptions options{.maximize = maximize};
  std::int64_t min_resource = *options.min_resource;
  read.whole("min_resource", min_resource);
  read.whole("reduction_factor", options.reduction_factor);
  read.whole("min_early_stopping_rate", options.min_early_stopping_rate);
  read.whole("bootstrap_count", options.bootstrap_count);
  if (Status status = read.finish(); !status.ok()) return failure(status);
  options.min_resource = min_resource;
  return Pruner::successive_halving(options);
}

Result<Pruner> make_hyperband(OptionReader& read, bool maximize) {
  tune::HyperbandOptions options{.maximize = maximize};
  std::int64_t max_resource = 0;
  read.whole("min_resource", options.min_resource);
  read.whole("max_resource", max_resource);
  read.whole("reduction_factor", options.reduction_factor);
  read.whole("bootstrap_count", options.bootstrap_count);
  if (Status status = read.finish(); !status.ok()) return failure(status);
  if (max_resource != 0) options.max_resource = max_resource;
  return Pruner::hyperband(options);
}

Result<Pruner> make_threshold(OptionReader& read, bool) {
  tune::ThresholdOptions options;
  double lower = std::nan("");
  double upper = std::nan("");
  read.number("lower", lower);
  read.number("upper", upper);
  read.whole("warmup_steps", options.warmup_steps);
  read.whole("interval_steps", options.interval_steps);
  if (Status status = read.finish(); !status.ok()) return failure(status);
  if (!std::isnan(lower)) options.lower = lower;
  if (!std::isnan(upper)) options.upper = upper;
  return Pruner::threshold(options);
}

Result<Pruner> make_patience(OptionReader& read, bool maximize) {
  tune::PatienceOptions options{.maximize = maximize};
  read.whole("patience", options.patience);
  read.number("min_delta", options.min_delta);
  if (Status status = read.finish(); !status.ok()) return failure(status);
  return Pruner::patience(options);
}

struct NamedPruner {
  std::string_view name;
  Result<Pruner> (*make)(OptionReader&, bool maximize);
};

const std::vector<NamedPruner>& pruners() {
  static const std::vector<NamedPruner> all{
      {"median", make_median},       {"percentile", make_percentile}, {"asha", make_halving},
      {"hyperband", make_hyperband}, {"threshold", make_threshold},   {"patience", make_patience}};
  return all;
}

}  // namespace

std::vector<std::string> pruner_names() {
  std::vector<std::string> names;
  for (const NamedPruner& one : pruners()) names.emplace_back(one.name);
  return names;
}

Result<Pruner> make_pruner(const NamedOptions& prune, bool maximize) {
  const auto found = std::ranges::find(pruners(), prune.name, &NamedPruner::name);
  if (found == pruners().end()) {
    const std::vector<std::string> names = pruner_names();
    return failure(Code::kInvalid, "prune: there is no '{}'{} (there are {})", prune.name,
                   did_you_mean(prune.name, names), fmt::join(names, ", "));
  }
  OptionReader read("prune " + prune.name, prune.options);
  try {
    return found->make(read, maximize);
  } catch (const UsageError& error) {
    return failure(Code::kInvalid, "prune {}: {}", prune.name, error.what());
  }
}

}  // namespace divisi::tune_run
