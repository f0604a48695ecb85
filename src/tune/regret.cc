#include "divisi/regret.h"

#include "base/status.h"
#include "tune/acquisition.h"
#include "tune/encoding.h"
#include "tune/gp_model.h"
#include "tune/proposal.h"
#include "tune/sobol.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace divisi::tune {
namespace {

constexpr std::size_t kMostTrials = 256;
constexpr int kEverywhere = 1024;  // candidates for the best point

struct Seen {
  double value;  // larger is better
  Point point;
};

// The trials that the model is made of, the best one first.
std::vector<Seen> best_trials(const Encoding& encoding,
                              const std::vector<std::vector<double>>& points,
                              const std::vector<double>& values, bool maximize) {
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) order.emplace_back(maximize ? -values[i] : values[i], i);
  }
  std::ranges::sort(order);
  if (order.size() > kMostTrials) order.resize(kMostTrials);
  std::vector<Seen> seen;
  for (const auto& [key, i] : order) seen.push_back({-key, encoding.point(points[i])});
  return seen;
}

// As wide as to hold with probability 0.9 for all points, divided by 5: the bound as it is proven
// is far too wide in practice.
double confidence_width(std::size_t dimensions, std::size_t trials) {
  const double square = static_cast<double>(trials) * static_cast<double>(trials);
  const double all = static_cast<double>(dimensions) * square * std::numbers::pi * std::numbers::pi;
  return std::sqrt(2 * std::log(all / (6 * 0.1)) / 5);
}

// The largest mean + kappa * deviation of the space.
double highest_bound(const GpModel& model, const Encoding& encoding, double kappa,
                     std::vector<Point> candidates) {
  Region region;
  for (const Axis& axis : encoding.axes()) {
    region.lower.push_back(axis.lower);
    region.upper.push_back(axis.upper);
  }
  const AcquisitionRule rule{.kind = Acquisition::kUpperConfidenceBound, .kappa = kappa};
  const Point best =
      propose(rule, model, encoding, region, candidates, {}, [](const Point&) { return false; });
  if (!best.empty()) candidates.push_back(best);
  double highest = -std::numeric_limits<double>::infinity();
  for (const Prediction& at : model.predict(candidates)) {
    highest = std::max(highest, at.mean + kappa * at.deviation);
  }
  return highest;
}

}  // namespace

double estimated_regret(const std::vector<Space>& spaces,
                        const std::vector<std::vector<double>>& points,
                        const std::vector<double>& values, const RegretOptions& options) {
  if (points.size() != values.size()) {
    throw UsageError(fmt::format("regret: {} points and {} values", points.size(), values.size()));
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].size() == spaces.size()) continue;
    throw UsageError(fmt::format("regret: point {} has {} values for {} variables", i,
                                 points[i].size(), spaces.size()));
  }
  const Encoding encoding(spaces);
  const std::vector<Seen> seen = best_trials(encoding, points, values, options.maximize);
  if (spaces.empty() || seen.size() < std::max<std::size_t>(5, 2 * spaces.size())) {
    return std::numeric_limits<double>::infinity();
  }
  if (seen.front().value == seen.back().value) return 0;
  const RandomWords words = python_random(options.seed);
  GpModel model(encoding.axes(), {});
  std::vector<Point> candidates;
  for (const Seen& one : seen) {
    model.add(one.point, one.value);
    candidates.push_back(one.point);
  }
  model.fit(40, 2, words);
  const double kappa = confidence_width(spaces.size(), seen.size());
  double sure = -std::numeric_limits<double>::infinity();
  for (const Prediction& at : model.predict(candidates)) {
    sure = std::max(sure, at.mean - kappa * at.deviation);
  }
  Sobol sobol(encoding.size(), words);
  for (int i = 0; i < kEverywhere; ++i) {
    Point point = encoding.from_unit(sobol.next());
    for (std::size_t d = 0; d < point.size(); ++d) point[d] = encoding.snapped(d, point[d]);
    candidates.push_back(std::move(point));
  }
  const double possible = highest_bound(model, encoding, kappa, std::move(candidates));
  return std::max(0.0, possible - sure) / model.unit();
}

}  // namespace divisi::tune
