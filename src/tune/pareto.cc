#include "tune/pareto.h"

#include "base/status.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace divisi::tune {
namespace {

using Corners = std::vector<std::vector<double>>;

constexpr double kEndOfFront = std::numeric_limits<double>::infinity();

// Between points of a plane and the reference, by the first two coordinates.
double area_below(Corners points, const std::vector<double>& reference) {
  std::ranges::sort(points);
  double area = 0;
  double height = reference[1];
  for (const std::vector<double>& point : points) {
    if (point[1] >= height) continue;
    area += (reference[0] - point[0]) * (height - point[1]);
    height = point[1];
  }
  return area;
}

void keep_undominated(Corners& points) {
  Corners kept;
  for (std::vector<double>& point : points) {
    const auto covers = [&](const std::vector<double>& other) {
      return other == point || dominates(other, point);
    };
    if (std::ranges::any_of(kept, covers)) continue;
    std::erase_if(kept, [&](const std::vector<double>& other) { return dominates(point, other); });
    kept.push_back(std::move(point));
  }
  points = std::move(kept);
}

// Slices along the last coordinate, each with the volume of the points that reach into it.
// Every point is below the reference in every coordinate.
double volume(Corners points, const std::vector<double>& reference, std::size_t dimensions) {
  if (points.empty()) return 0;
  if (dimensions == 1) {
    return reference[0] - std::ranges::min_element(points)->front();
  }
  if (dimensions == 2) return area_below(std::move(points), reference);
  const std::size_t last = dimensions - 1;
  std::sort(points.begin(), points.end(),
            [&](const auto& a, const auto& b) { return a[last] < b[last]; });
  double sum = 0;
  Corners reaching;
  for (std::size_t i = 0; i < points.size(); ++i) {
    reaching.emplace_back(points[i].begin(), points[i].begin() + static_cast<std::ptrdiff_t>(last));
    if (last > 2) keep_undominated(reaching);
    const double end = i + 1 < points.size() ? points[i + 1][last] : reference[last];
    const double thickness = end - points[i][last];
    if (thickness > 0) sum += thickness * volume(reaching, reference, last);
  }
  return sum;
}

std::vector<double> minimised(std::vector<double> values,
                              const std::vector<Direction>& directions) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (directions[i] == Direction::kMaximize) values[i] = -values[i];
  }
  return values;
}

}  // namespace

bool dominates(std::span<const double> a, std::span<const double> b) {
  bool smaller = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] > b[i]) return false;
    smaller = smaller || a[i] < b[i];
  }
  return smaller;
}

bool dominates(const Judged& a, const Judged& b) {
  if (a.violation > 0 || b.violation > 0) return a.violation < b.violation;
  return dominates(std::span(a.values), std::span(b.values));
}

std::vector<std::size_t> front_numbers(std::span<const Judged> results) {
  const std::size_t n = results.size();
  std::vector<std::vector<std::size_t>> dominated(n);  // by each
  std::vector<std::size_t> dominators(n, 0);           // of each, less those of earlier fronts
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < n; ++b) {
      if (!dominates(results[a], results[b])) continue;
      dominated[a].push_back(b);
      ++dominators[b];
    }
  }
  std::vector<std::size_t> numbers(n, 0);
  std::vector<std::size_t> front;
  for (std::size_t i = 0; i < n; ++i) {
    if (dominators[i] == 0) front.push_back(i);
  }
  for (std::size_t number = 0; !front.empty(); ++number) {
    std::vector<std::size_t> next;
    for (const std::size_t member : front) {
      numbers[member] = number;
      for (const std::size_t other : dominated[member]) {
        if (--dominators[other] == 0) next.push_back(other);
      }
    }
    front = std::move(next);
  }
  return numbers;
}

std::vector<double> crowding_distances(std::span<const Judged> results,
                                       std::span<const std::size_t> fronts) {
  std::vector<double> distances(results.size(), 0);
  if (results.empty()) return distances;
  std::vector<std::size_t> order(results.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t objective = 0; objective < results[0].values.size(); ++objective) {
    const auto value = [&](std::size_t i) { return results[i].values[objective]; };
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
      return std::tuple(fronts[a], value(a), a) < std::tuple(fronts[b], value(b), b);
    });
    for (std::size_t first = 0; first < order.size();) {
      std::size_t end = first;
      while (end < order.size() && fronts[order[end]] == fronts[order[first]]) ++end;
      const double extent = value(order[end - 1]) - value(order[first]);
      distances[order[first]] = kEndOfFront;
      distances[order[end - 1]] = kEndOfFront;
      for (std::size_t i = first + 1; extent > 0 && i + 1 < end; ++i) {
        distances[order[i]] += (value(order[i + 1]) - value(order[i - 1])) / extent;
      }
      first = end;
    }
  }
  return distances;
}

double hypervolume(std::vector<std::vector<double>> points, const std::vector<double>& reference) {
  std::erase_if(points, [&](const std::vector<double>& point) {
    for (std::size_t i = 0; i < reference.size(); ++i) {
      if (!(point[i] < reference[i])) return true;
    }
    return false;
  });
  keep_undominated(points);
  return volume(std::move(points), reference, reference.size());
}

ParetoFront::ParetoFront(std::vector<Direction> directions) : directions_(std::move(directions)) {
  if (directions_.empty()) throw UsageError("a Pareto front needs at least one objective");
}

void ParetoFront::check(const std::vector<double>& values) const {
  if (values.size() != directions_.size()) {
    throw UsageError(fmt::format("a Pareto front of {} objectives was given {} values",
                                 directions_.size(), values.size()));
  }
  for (const double value : values) {
    if (!std::isfinite(value)) {
      throw UsageError(fmt::format("a Pareto front was given {}, which is not finite", value));
    }
  }
}

bool ParetoFront::insert(std::uint64_t id, std::vector<double> values) {
  check(values);
  const std::vector<double> compared = minimised(values, directions_);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const std::vector<double> member = minimised(members_[i].values, directions_);
    // Members do not dominate each other, so that nothing was removed before this.
    if (dominates(std::span(member), std::span(compared))) return false;
    if (dominates(std::span(compared), std::span(member))) continue;
    if (kept != i) members_[kept] = std::move(members_[i]);
    ++kept;
  }
  members_.resize(kept);
  members_.push_back({id, std::move(values)});
  return true;
}

double ParetoFront::hypervolume(const std::vector<double>& reference) const {
  check(reference);
  Corners points;
  for (const Member& member : members_) points.push_back(minimised(member.values, directions_));
  return tune::hypervolume(std::move(points), minimised(reference, directions_));
}

}  // namespace divisi::tune
