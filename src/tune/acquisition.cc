#include "tune/acquisition.h"

#include <cmath>
#include <numbers>
#include <vector>

namespace divisi::tune {
namespace {

const double kLogSqrt2Pi = 0.5 * std::log(2 * std::numbers::pi);
// Below it three terms of the asymptotic series have an error under 1e-8, and erfc() comes near its
// smallest number.
constexpr double kFarBelow = -30;

// -a / z^2 + b / z^4 - c / z^6: the asymptotic series below kFarBelow.
double tail(double z, double a, double b, double c) {
  const double square = 1 / (z * z);
  return square * (-a + square * (b - square * c));
}

// log of the normal distribution function.
double log_normal_cdf(double z) {
  if (z > kFarBelow) return std::log(0.5 * std::erfc(-z / std::numbers::sqrt2));
  return -0.5 * z * z - kLogSqrt2Pi - std::log(-z) + std::log1p(tail(z, 1, 3, 15));
}

// log of density(z) + z * distribution(z): expected improvement for deviation 1.
double log_improvement(double z) {
  if (z > kFarBelow) {
    const double density = std::exp(-0.5 * z * z - kLogSqrt2Pi);
    if (z > -1) return std::log(density + z * 0.5 * std::erfc(-z / std::numbers::sqrt2));
    // density * (1 - q): q nears 1, so take both factors apart.
    const double q = -z * 0.5 * std::erfc(-z / std::numbers::sqrt2) / density;
    return -0.5 * z * z - kLogSqrt2Pi + std::log1p(-q);
  }
  return -0.5 * z * z - kLogSqrt2Pi - 2 * std::log(-z) + std::log1p(tail(z, 3, 15, 105));
}

}  // namespace

AcquisitionSlope acquisition_slope(const AcquisitionRule& rule, const Prediction& at) {
  if (rule.kind == Acquisition::kUpperConfidenceBound) {
    return {at.mean + rule.kappa * at.deviation, 1, rule.kappa};
  }
  const double z = (at.mean - rule.best - rule.xi) / at.deviation;
  if (rule.kind == Acquisition::kProbabilityOfImprovement) {
    const double value = log_normal_cdf(z);
    const double ratio = std::exp(-0.5 * z * z - kLogSqrt2Pi - value);  // density by distribution
    return {value, ratio / at.deviation, -z * ratio / at.deviation};
  }
  const double value = log_improvement(z);
  const double ratio = std::exp(log_normal_cdf(z) - value);
  return {value + std::log(at.deviation), ratio / at.deviation, (1 - z * ratio) / at.deviation};
}

double acquisition(const AcquisitionRule& rule, const Prediction& at) {
  return acquisition_slope(rule, at).value;
}

double acquisition_at(const AcquisitionRule& rule, const GpModel& model,
                      std::span<const double> point, std::span<double> gradient) {
  std::vector<double> by_mean(point.size());
  std::vector<double> by_deviation(point.size());
  const AcquisitionSlope slope =
      acquisition_slope(rule, model.predict(point, by_mean, by_deviation));
  for (std::size_t i = 0; i < point.size(); ++i) {
    gradient[i] = slope.by_mean * by_mean[i] + slope.by_deviation * by_deviation[i];
  }
  return slope.value;
}

}  // namespace divisi::tune
