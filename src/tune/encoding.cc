#include "tune/encoding.h"

#include <algorithm>
#include <cmath>

namespace divisi::tune {

std::vector<Axis> Encoding::axes() const {
  std::vector<Axis> axes;
  for (const Space& space : spaces_) {
    Axis& axis = axes.emplace_back();
    if (raw_) {
      std::tie(axis.lower, axis.upper) = space.coordinate_bounds();
    } else if (space.kind() == Space::Kind::kFixed) {
      axis = {.category = true, .lower = 0, .upper = static_cast<double>(*space.count() - 1)};
    }
  }
  return axes;
}

bool Encoding::is_discrete(std::size_t d) const {
  return !raw_ && spaces_[d].kind() != Space::Kind::kContinuous;
}

bool Encoding::all_discrete() const {
  for (std::size_t d = 0; d < size(); ++d) {
    if (!is_discrete(d)) return false;
  }
  return true;
}

Point Encoding::from_unit(std::vector<double> unit) const {
  for (std::size_t d = 0; d < size(); ++d) {
    if (is_discrete(d)) {
      const auto count = static_cast<double>(*spaces_[d].count());
      unit[d] = coordinate(d, static_cast<std::int64_t>(std::min(unit[d] * count, count - 1)));
    } else if (raw_) {
      const auto [lower, upper] = spaces_[d].coordinate_bounds();
      unit[d] = lower + unit[d] * (upper - lower);
    }
  }
  return settled(std::move(unit));
}

double Encoding::snapped(std::size_t d, double x) const {
  return is_discrete(d) ? coordinate(d, index(d, x)) : x;
}

std::int64_t Encoding::index(std::size_t d, double x) const {
  const auto last = static_cast<double>(*spaces_[d].count() - 1);
  const double scaled = spaces_[d].kind() == Space::Kind::kFixed ? x : x * last;
  return static_cast<std::int64_t>(std::clamp(std::round(scaled), 0.0, last));
}

double Encoding::coordinate(std::size_t d, std::int64_t index) const {
  const std::int64_t last = *spaces_[d].count() - 1;
  if (spaces_[d].kind() == Space::Kind::kFixed) return static_cast<double>(index);
  return last == 0 ? 0.0 : static_cast<double>(index) / static_cast<double>(last);
}

Point Encoding::point(const std::vector<double>& values) const {
  Point point(size());
  for (std::size_t d = 0; d < size(); ++d) {
    const Space& space = spaces_[d];
    if (std::isnan(values[d])) {
      point[d] = resting(d);
      continue;
    }
    if (space.kind() == Space::Kind::kContinuous) {
      const double value = std::clamp(values[d], space.lower(), space.upper());
      point[d] = raw_ ? value : (value - space.lower()) / space.length();
      continue;
    }
    const auto last = static_cast<double>(*space.count() - 1);
    const double at = last > 0 ? std::round((values[d] - space.lower()) / space.step()) : 0;
    const double index = std::clamp(at, 0.0, last);
    // A raw coordinate stands for the point below it: the middle of its interval.
    point[d] = raw_ ? index + 0.5 : coordinate(d, static_cast<std::int64_t>(index));
  }
  return settled(std::move(point));
}

double Encoding::resting(std::size_t d) const {
  return spaces_[d].kind() == Space::Kind::kFixed ? 0.0 : snapped(d, 0.5);
}

// The index of an alternative is its coordinate, so that a point serves as values here.
Point Encoding::settled(Point point) const {
  if (!activity_.has_conditions()) return point;
  activity_.mask(point);
  for (std::size_t d = 0; d < size(); ++d) {
    if (std::isnan(point[d])) point[d] = resting(d);
  }
  return point;
}

bool Encoding::is_active(std::size_t d, const Point& point) const {
  if (!activity_.is_conditional(d)) return true;
  Point masked = point;
  activity_.mask(masked);
  return !std::isnan(masked[d]);
}

std::vector<double> Encoding::values(const Point& point) const {
  std::vector<double> values(size());
  for (std::size_t d = 0; d < size(); ++d) {
    const Space& space = spaces_[d];
    if (raw_) {
      values[d] = space.at_coordinate(point[d]);
    } else if (is_discrete(d)) {
      values[d] = space.at(index(d, point[d]));
    } else {
      values[d] =
          std::clamp(space.lower() + point[d] * space.length(), space.lower(), space.upper());
    }
  }
  activity_.mask(values);
  return values;
}

}  // namespace divisi::tune
