#include "divisi/importance.h"

#include "base/status.h"
#include "tune/forest.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace divisi::tune {
namespace {

// One variable of all trials: places in the unit interval, or categories.
Result<std::vector<double>> column_of(const Space& space, std::size_t variable,
                                      const std::vector<const std::vector<double>*>& points) {
  std::vector<double> column;
  column.reserve(points.size());
  for (const std::vector<double>* point : points) {
    const double value = (*point)[variable];
    const std::optional<std::int64_t> count = space.count();
    if (space.kind() == Space::Kind::kFixed) {
      // A variable that was not active has no value: a category of its own.
      const double category = std::isnan(value) ? static_cast<double>(*count) : value;
      if (!(category >= 0 && category <= static_cast<double>(*count)) ||
          category != std::floor(category) ||
          (!std::isnan(value) && category == static_cast<double>(*count))) {
        return failure(Code::kInvalid,
                       "importance: variable {} has {} alternatives, and none is {}", variable,
                       *count, value);
      }
      column.push_back(category);
      continue;
    }
    // Evenly spaced points stand in the middle of what each stands for.
    const double half = count ? 0.5 * space.step() : 0;
    const double length = space.length() + 2 * half;
    const double place = length > 0 ? (value - space.lower() + half) / length : 0.5;
    column.push_back(std::isnan(place) ? 0.5 : std::clamp(place, 0.0, 1.0));
  }
  return column;
}

Status check_importance(const std::vector<Space>& spaces,
                        const std::vector<std::vector<double>>& points,
                        const std::vector<double>& values, const ImportanceOptions& options) {
  if (points.size() != values.size()) {
    return make_status(Code::kInvalid, "importance: {} points and {} values", points.size(),
                       values.size());
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].size() == spaces.size()) continue;
    return make_status(Code::kInvalid, "importance: point {} has {} values for {} variables", i,
                       points[i].size(), spaces.size());
  }
  if (options.trees < 1) {
    return make_status(Code::kInvalid, "importance: trees must be 1 or more, not {}",
                       options.trees);
  }
  if (!(options.best_share > 0 && options.best_share < 1)) {
    return make_status(Code::kInvalid, "importance: best_share is between 0 and 1, not {}",
                       options.best_share);
  }
  return {};
}

// The trials with a value, with values of mean 0 and deviation 1.
Result<TrialTable> table_of(const std::vector<Space>& spaces,
                            const std::vector<std::vector<double>>& points,
                            const std::vector<double>& values) {
  TrialTable table;
  std::vector<const std::vector<double>*> used;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    used.push_back(&points[i]);
    table.values.push_back(values[i]);
  }
  if (used.size() < 2) {
    return failure(Code::kInvalid, "importance needs two trials that ended well, and there are {}",
                   used.size());
  }
  for (std::size_t variable = 0; variable < spaces.size(); ++variable) {
    DIVISI_TRY(std::vector<double> column, column_of(spaces[variable], variable, used));
    std::size_t categories = 0;
    if (spaces[variable].kind() == Space::Kind::kFixed) {
      const double most = *std::ranges::max_element(column);
      categories = static_cast<std::size_t>(
          std::max(*spaces[variable].count(), static_cast<std::int64_t>(most) + 1));
    }
    table.categories.push_back(categories);
    table.columns.push_back(std::move(column));
  }
  // Squares of the largest numbers are not finite.
  const double largest =
      std::abs(*std::max_element(table.values.begin(), table.values.end(),
                                 [](double a, double b) { return std::abs(a) < std::abs(b); }));
  if (largest > 0) {
    for (double& value : table.values) value /= largest;
  }
  const auto count = static_cast<double>(used.size());
  const double mean = std::accumulate(table.values.begin(), table.values.end(), 0.0) / count;
  double squares = 0;
  for (double& value : table.values) {
    value -= mean;
    squares += value * value;
  }
  const double deviation = std::sqrt(squares / count);
  for (double& value : table.values) value = deviation > 0 ? value / deviation : 0;
  return table;
}

// The places of a variable as probabilities of cells, for all trials or for some.
class CellDistribution {
 public:
  static constexpr std::size_t kCells = 50;

  CellDistribution(const std::vector<double>& column, std::size_t categories,
                   const std::vector<std::size_t>& trials)
      : mass_(categories > 0 ? categories : kCells) {
    // One trial more, which is anywhere.
    const auto count = static_cast<double>(trials.size());
    const double prior = 1 / (count + 1);
    if (categories > 0) {
      for (const std::size_t trial : trials) mass_[static_cast<std::size_t>(column[trial])] += 1;
    } else {
      add_kernels(column, trials);
    }
    for (double& mass : mass_) {
      mass = (1 - prior) * mass / count + prior / static_cast<double>(mass_.size());
    }
  }

  // Pearson's divergence of `other` from this one.
  double divergence(const CellDistribution& other) const {
    double sum = 0;
    for (std::size_t i = 0; i < mass_.size(); ++i) {
      const double ratio = other.mass_[i] / mass_[i] - 1;
      sum += mass_[i] * ratio * ratio;
    }
    return sum;
  }

 private:
  static double normal(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

  // A normal distribution round each trial, cut at the ends; the width is Scott's rule.
  void add_kernels(const std::vector<double>& column, const std::vector<std::size_t>& trials) {
    double sum = 0;
    double squares = 0;
    for (const std::size_t trial : trials) {
      sum += column[trial];
      squares += column[trial] * column[trial];
    }
    const auto count = static_cast<double>(trials.size());
    const double deviation = std::sqrt(std::max(0.0, squares / count - sum / count * sum / count));
    const double width =
        std::max(1.059 * deviation * std::pow(count, -0.2), 1.0 / static_cast<double>(kCells));
    for (const std::size_t trial : trials) {
      const double low = normal((0 - column[trial]) / width);
      const double whole = normal((1 - column[trial]) / width) - low;
      double before = low;
      for (std::size_t i = 0; i < kCells; ++i) {
        const double edge = static_cast<double>(i + 1) / static_cast<double>(kCells);
        const double up_to = normal((edge - column[trial]) / width);
        mass_[i] += (up_to - before) / whole;
        before = up_to;
      }
    }
  }

  std::vector<double> mass_;
};

std::vector<double> divergences(const TrialTable& table, const ImportanceOptions& options) {
  std::vector<std::size_t> all(table.values.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::vector<std::size_t> best = all;
  const double sign = options.maximize ? -1 : 1;
  std::ranges::sort(best, [&](std::size_t a, std::size_t b) {
    return std::pair(sign * table.values[a], a) < std::pair(sign * table.values[b], b);
  });
  const double wanted = std::ceil(options.best_share * static_cast<double>(all.size()));
  best.resize(std::max<std::size_t>(2, static_cast<std::size_t>(wanted)));
  std::vector<double> found;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const CellDistribution of_all(table.columns[i], table.categories[i], all);
    found.push_back(of_all.divergence({table.columns[i], table.categories[i], best}));
  }
  return found;
}

}  // namespace

std::vector<double> importance(const std::vector<Space>& spaces,
                               const std::vector<std::vector<double>>& points,
                               const std::vector<double>& values,
                               const ImportanceOptions& options) {
  throw_if_failed(check_importance(spaces, points, values, options));
  const Result<TrialTable> table = table_of(spaces, points, values);
  if (!table) throw_if_failed(table.error());
  const bool all_equal = std::all_of(table->values.begin(), table->values.end(),
                                     [&](double value) { return value == table->values[0]; });
  if (all_equal) return std::vector<double>(spaces.size());
  std::vector<double> found =
      options.method == ImportanceMethod::kVariance
          ? forest_importance(*table, options.trees, python_random(options.seed))
          : divergences(*table, options);
  const double sum = std::accumulate(found.begin(), found.end(), 0.0);
  if (options.normalize && sum > 0) {
    for (double& one : found) one /= sum;
  }
  return found;
}

}  // namespace divisi::tune
