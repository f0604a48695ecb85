#include "tune/box_minimizer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace divisi::tune {
namespace {

constexpr double kArmijo = 1e-4;        // the usual demand on the decrease of a step
constexpr int kMaxHalvings = 25;        // a step below 1e-7 of the first changes nothing
constexpr double kSmallChange = 1e-10;  // relative; smaller ones are rounding

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

class BoxMinimizer {
 public:
  BoxMinimizer(const Smooth& function, std::span<const double> lower, std::span<const double> upper,
               std::vector<double>& x)
      : function_(function),
        lower_(lower),
        upper_(upper),
        x_(x),
        n_(x.size()),
        gradient_(n_),
        direction_(n_),
        inverse_(n_ * n_) {
    for (std::size_t i = 0; i < n_; ++i) x_[i] = std::clamp(x_[i], lower_[i], upper_[i]);
    value_ = function_(x_, gradient_);
    forget_curvature();
  }

  double run(int max_iterations) {
    for (int i = 0; i < max_iterations && std::isfinite(value_); ++i) {
      if (!step()) break;
    }
    return value_;
  }

 private:
  void forget_curvature() {
    std::ranges::fill(inverse_, 0.0);
    double norm = 0;
    for (std::size_t i = 0; i < n_; ++i) norm = std::max(norm, std::abs(gradient_[i]));
    // The first step moves at most a tenth of a unit box.
    const double scale = norm > 0 ? 0.1 / std::max(norm, 0.1) : 1;
    for (std::size_t i = 0; i < n_; ++i) inverse_[i * n_ + i] = scale;
    fresh_ = true;
  }

  bool is_free(std::size_t i) const {
    return !((x_[i] <= lower_[i] && gradient_[i] > 0) || (x_[i] >= upper_[i] && gradient_[i] < 0));
  }

  // False when every direction leads out of the box or uphill.
  bool find_direction() {
    for (std::size_t i = 0; i < n_; ++i) {
      direction_[i] = 0;
      if (!is_free(i)) continue;
      for (std::size_t j = 0; j < n_; ++j) {
        if (is_free(j)) direction_[i] -= inverse_[i * n_ + j] * gradient_[j];
      }
    }
    return dot(direction_, gradient_) < 0;
  }

  bool step() {
    if (!find_direction()) {
      if (fresh_) return false;
      forget_curvature();
      if (!find_direction()) return false;
    }
    std::vector<double> trial(n_);
    std::vector<double> gradient(n_);
    double length = 1;
    for (int halving = 0; halving < kMaxHalvings; ++halving, length /= 2) {
      double expected = 0;
      for (std::size_t i = 0; i < n_; ++i) {
        trial[i] = std::clamp(x_[i] + length * direction_[i], lower_[i], upper_[i]);
        expected += gradient_[i] * (trial[i] - x_[i]);
      }
      const double value = function_(trial, gradient);
      if (!(value <= value_ + kArmijo * expected)) continue;
      const double gained = value_ - value;
      learn_curvature(trial, gradient);
      x_ = trial;
      gradient_ = gradient;
      value_ = value;
      return gained > kSmallChange * (1 + std::abs(value_));
    }
    if (fresh_) return false;
    forget_curvature();
    return true;
  }

  void learn_curvature(const std::vector<double>& trial, const std::vector<double>& gradient) {
    std::vector<double> s(n_);
    std::vector<double> y(n_);
    for (std::size_t i = 0; i < n_; ++i) {
      s[i] = trial[i] - x_[i];
      y[i] = gradient[i] - gradient_[i];
    }
    const double sy = dot(s, y);
    if (!(sy > 1e-12 * std::sqrt(dot(s, s) * dot(y, y))) || sy <= 0) return;
    if (fresh_) {
      for (std::size_t i = 0; i < n_; ++i) inverse_[i * n_ + i] = sy / dot(y, y);
      fresh_ = false;
    }
    std::vector<double> hy(n_, 0.0);
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t j = 0; j < n_; ++j) hy[i] += inverse_[i * n_ + j] * y[j];
    }
    const double factor = (sy + dot(y, hy)) / (sy * sy);
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t j = 0; j < n_; ++j) {
        inverse_[i * n_ + j] += factor * s[i] * s[j] - (hy[i] * s[j] + s[i] * hy[j]) / sy;
      }
    }
  }

  const Smooth& function_;
  std::span<const double> lower_;
  std::span<const double> upper_;
  std::vector<double>& x_;
  std::size_t n_;
  std::vector<double> gradient_;
  std::vector<double> direction_;
  std::vector<double> inverse_;  // approximates the inverse of the second derivatives, n by n
  double value_ = 0;
  bool fresh_ = true;  // inverse_ holds no curvature yet
};

}  // namespace

double minimize_in_box(const Smooth& function, std::span<const double> lower,
                       std::span<const double> upper, int max_iterations, std::vector<double>& x) {
  return BoxMinimizer(function, lower, upper, x).run(max_iterations);
}

}  // namespace divisi::tune
