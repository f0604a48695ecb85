// How a search's spaces become the coordinates of the model, and back.
#pragma once

#include "divisi/sampler.h"
#include "tune/activity.h"
#include "tune/gp_model.h"

#include <vector>

namespace divisi::tune {

// The unit cube: intervals from 0 to 1, steps at index / (count - 1), alternatives as their index,
// equal or not; inactive coordinates stand still in the middle, the first alternative. Under `raw`
// (engine "reference") the coordinates of Space::coordinate_bounds.
class Encoding {
 public:
  Encoding(std::vector<Space> spaces, Activity activity, bool raw)
      : spaces_(std::move(spaces)), activity_(std::move(activity)), raw_(raw) {}
  // Without conditions.
  explicit Encoding(const std::vector<Space>& spaces)
      : Encoding(spaces, Activity::of(SearchSpace(spaces)).value(), false) {}

  std::size_t size() const { return spaces_.size(); }
  const Space& space(std::size_t d) const { return spaces_[d]; }
  std::vector<Axis> axes() const;
  // Whether the coordinate takes single values only.
  bool is_discrete(std::size_t d) const;
  bool all_discrete() const;
  // Of a point of [0, 1)^n.
  Point from_unit(std::vector<double> unit) const;
  // The nearest coordinate that a trial can have.
  double snapped(std::size_t d, double x) const;
  // The number of a discrete coordinate's value, and the coordinate of a number.
  std::int64_t index(std::size_t d, double x) const;
  double coordinate(std::size_t d, std::int64_t index) const;
  // The coordinates of a trial's values; of values outside of their spaces the nearest ones.
  Point point(const std::vector<double>& values) const;
  // The same point with every inactive coordinate where it stands.
  Point settled(Point point) const;
  // Whether the coordinate counts in this point.
  bool is_active(std::size_t d, const Point& point) const;
  // What the trial gets.
  std::vector<double> values(const Point& point) const;

 private:
  double resting(std::size_t d) const;

  std::vector<Space> spaces_;
  Activity activity_;
  bool raw_;
};

}  // namespace divisi::tune
