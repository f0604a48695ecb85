// The mixture of kernels of the Parzen estimator: one product kernel per trial, in flat arrays.
#pragma once

#include "divisi/sampler.h"

#include <cstddef>
#include <span>
#include <vector>

namespace divisi::tune {

// How the kernels see a space.
struct TpeAxis {
  enum class Kind {
    kInterval,  // coordinates of [0, 1]: a truncated normal distribution
    kSteps,     // an index: the same, each step with the mass of its part of [0, 1]
    kCategory,  // an index: the trial's alternative, or any
  };
  Kind kind = Kind::kInterval;
  std::size_t count = 0;     // of indices
  bool conditional = false;  // some trials have no value, which is NaN here
};

// More steps than this are an interval: a kernel is then wider than several of them.
inline constexpr std::size_t kMaxTableSteps = 128;

// Where an axis is NaN in a trial, its kernel is uniform along it.
class TpeKernels {
 public:
  TpeKernels(std::vector<TpeAxis> axes, double prior_weight);

  std::size_t size() const { return size_; }
  // Adds the kernel of a trial; drops those from `size` on.
  void push(const std::vector<double>& point);
  void shrink(std::size_t size);
  // Of how many trials the widths of the kernels are.
  void set_trials(std::size_t trials);
  // The width of a kernel, as a part of the interval.
  double width() const { return width_; }
  // The probability of the trial's own alternative is (1 + this) over (1 + count * this).
  double category_floor() const { return category_floor_; }

  // The logarithm of the mixture of all kernels, with these weights, and of the prior kernel with
  // its own. Kernels whose weight is 0 do not count.
  double log_density(const std::vector<double>& point, std::span<const float> weights);

 private:
  void set_tables();
  void set_base(std::size_t from);
  float base_of(std::size_t axis, float coordinate) const;
  void add_intervals(const std::vector<double>& point);
  void add_conditional(std::size_t axis, double x);
  void add_discrete(std::size_t axis, double x);
  double log_prior(const std::vector<double>& point) const;

  std::vector<TpeAxis> axes_;
  double prior_weight_;
  std::size_t size_ = 0;
  std::size_t trials_ = 0;  // that the tables are for
  double width_ = 1;
  double category_floor_ = 1;
  std::vector<std::vector<float>> columns_;    // of each axis, the coordinates of the kernels
  std::vector<std::size_t> plain_intervals_;   // axes of that kind, always active
  std::vector<float> base_;                    // of each kernel, what does not depend on the point
  std::vector<float> scores_;                  // of each kernel, for the point in hand
  std::vector<float> interval_mass_;           // log, over [0, 1] in equal steps
  std::vector<std::vector<float>> step_mass_;  // log, of each axis: by distance
  std::vector<std::vector<float>> step_inside_;  // log, of each axis: by index
};

}  // namespace divisi::tune
