// A Gaussian process: what the finished trials say about a function at other points.
#pragma once

#include "divisi/sampler.h"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace divisi::tune {

using Point = std::vector<double>;

// How far apart two points are along one coordinate.
struct Axis {
  bool category = false;  // equal or not; otherwise the difference
  double lower = 0;
  double upper = 1;
};

struct GpOptions {
  bool shared_scale = false;    // one length scale for all coordinates
  bool learn_amplitude = true;  // otherwise 1
  bool learn_noise = true;      // otherwise `noise`
  bool priors = true;           // on all that is learned
  double noise = 1e-6;          // variance, of standardised values
  double min_scale = 0.01;
  double max_scale = 20;
};

// Mean and standard deviation at a point, in standardised values.
struct Prediction {
  double mean = 0;
  double deviation = 0;
};

// A Matern 5/2 kernel with a length scale per coordinate, an amplitude and a noise, which fit()
// chooses by their posterior. Values are standardised inside. A point that was added after a fit
// costs the square of the number of points, a fit some multiple of the cube. Not thread-safe; a
// copy is independent.
class GpModel {
 public:
  GpModel(std::vector<Axis> axes, const GpOptions& options);
  GpModel(const GpModel& other);
  GpModel& operator=(const GpModel& other);
  GpModel(GpModel&&) noexcept;
  GpModel& operator=(GpModel&&) noexcept;
  ~GpModel();

  std::size_t size() const;
  // Forgets the points and keeps the parameters.
  void clear();
  // Larger values are better, here and below.
  void add(std::span<const double> point, double value);
  // A point whose value is not known; `standardised` stands in for it and does not change how
  // values are standardised.
  void add_assumed(std::span<const double> point, double standardised);
  // Learns the parameters again, from the last ones, from the default and from `random_starts`
  // more.
  void fit(int max_iterations, int random_starts, const RandomWords& words);

  Prediction predict(std::span<const double> point) const;
  std::vector<Prediction> predict(const std::vector<Point>& points) const;
  // Also the derivatives by the coordinates; those of categories are 0.
  Prediction predict(std::span<const double> point, std::span<double> mean_gradient,
                     std::span<double> deviation_gradient) const;

  // The best and the worst value, standardised; of added values, not of assumed ones.
  double best() const;
  double worst() const;
  // What one unit of a value is in standardised units.
  double unit() const;
  // One per coordinate.
  std::vector<double> length_scales() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi::tune
