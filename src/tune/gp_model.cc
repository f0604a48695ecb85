// The only source that sees Eigen: compiling its templates takes seconds.
#include "tune/gp_model.h"

#include "base/status.h"
#include "tune/box_minimizer.h"
#include "tune/random_words.h"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace divisi::tune {
namespace {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;
using Index = Eigen::Index;

const double kSqrt5 = std::sqrt(5.0);
// Parameters are learned from at most so many points: their number hardly changes the result, and
// the time grows with its cube.
constexpr std::size_t kFitPoints = 256;
constexpr double kMinVariance = 1e-12;  // of a prediction: what rounding leaves near known points

// Priors, all of logarithms. Values are standardised and coordinates are in the unit cube.
struct Prior {
  double mean;
  double deviation;
};
const Prior kScalePrior{std::log(0.5), 0.8};
const Prior kAmplitudePrior{std::log(1.0), 1.5};
const Prior kNoisePrior{std::log(1e-6), 3.0};
const double kMinAmplitude = std::log(0.05);
const double kMaxAmplitude = std::log(100.0);
const double kMinNoise = std::log(1e-8);
const double kMaxNoise = std::log(0.3);

Index as_index(std::size_t size) {
  return static_cast<Index>(size);
}

// The kernel's part that the distance decides, and its derivative by half the squared distance.
struct Matern {
  double value;
  double slope;  // negative
};
Matern matern(double squared) {
  const double r = std::sqrt(squared) * kSqrt5;
  const double decay = std::exp(-r);
  return {(1 + r + 5.0 / 3.0 * squared) * decay, -5.0 / 3.0 * (1 + r) * decay};
}

struct Parameters {
  std::vector<double> log_scale;  // per coordinate, or one
  double log_amplitude = 0;
  double log_noise = 0;
};

}  // namespace

struct GpModel::State {
  State(std::vector<Axis> of_points, const GpOptions& chosen)
      : axes(std::move(of_points)), options(chosen) {
    parameters.log_scale.assign(options.shared_scale ? 1 : axes.size(), kScalePrior.mean);
    if (!options.priors) parameters.log_scale.assign(parameters.log_scale.size(), 0.0);
    parameters.log_noise = std::log(options.noise);
    use_parameters();
  }

  std::size_t size() const { return values.size() + assumed.size(); }
  const double* row(std::size_t i) const { return points.data() + i * axes.size(); }

  void use_parameters() {
    inverse_scale.resize(axes.size());
    for (std::size_t d = 0; d < axes.size(); ++d) {
      const double log_scale = parameters.log_scale[options.shared_scale ? 0 : d];
      inverse_scale[d] = std::exp(-log_scale);
    }
    amplitude = std::exp(parameters.log_amplitude);
    noise = std::exp(parameters.log_noise);
  }

  // The squared difference along a coordinate, before scaling.
  double difference(std::size_t d, double a, double b) const {
    if (axes[d].category) return a == b ? 0.0 : 1.0;
    return (a - b) * (a - b);
  }

  double squared_distance(const double* a, const double* b) const {
    double sum = 0;
    for (std::size_t d = 0; d < axes.size(); ++d) {
      sum += difference(d, a[d], b[d]) * inverse_scale[d] * inverse_scale[d];
    }
    return sum;
  }

  double kernel(const double* a, const double* b) const {
    return amplitude * matern(squared_distance(a, b)).value;
  }

  // Adds the last row of the factor for the point `n`.
  void extend_factor() {
    const std::size_t n = factored;
    if (as_index(n) == factor.rows()) {
      const Index capacity = std::max<Index>(16, factor.rows() * 2);
      factor.conservativeResize(capacity, capacity);
    }
    const Index last = as_index(n);
    double rest = amplitude + noise;
    if (n > 0) {
      Vector k(last);
      for (std::size_t i = 0; i < n; ++i) k[as_index(i)] = kernel(row(n), row(i));
      factor.topLeftCorner(last, last).triangularView<Eigen::Lower>().solveInPlace(k);
      factor.row(last).head(last) = k.transpose();
      rest -= k.squaredNorm();
    }
    factor(last, last) = std::sqrt(std::max(rest, noise * 0.5));
    ++factored;
  }

  // With new parameters the whole factor is computed again.
  void rebuild() {
    factored = 0;
    const std::size_t n = size();
    Matrix k(as_index(n), as_index(n));
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < i; ++j) k(as_index(i), as_index(j)) = kernel(row(i), row(j));
      k(as_index(i), as_index(i)) = amplitude + noise;
    }
    const Eigen::LLT<Matrix> llt(k);
    if (llt.info() == Eigen::Success) {
      factor = llt.matrixL();
      factored = n;
    } else {
      while (factored < n) extend_factor();  // bounded below, so it cannot fail
    }
  }

  // Weights of the prediction, for the values as they are now.
  void update_weights() {
    standardise();
    const std::size_t n = size();
    while (factored < n) extend_factor();
    weights.resize(as_index(n));
    for (std::size_t i = 0; i < values.size(); ++i) {
      weights[as_index(i)] = (values[i] - mean) * per_unit;
    }
    for (std::size_t i = 0; i < assumed.size(); ++i) {
      weights[as_index(values.size() + i)] = assumed[i];
    }
    const auto lower = factor.topLeftCorner(as_index(n), as_index(n));
    lower.triangularView<Eigen::Lower>().solveInPlace(weights);
    lower.triangularView<Eigen::Lower>().transpose().solveInPlace(weights);
  }

  void standardise() {
    mean = 0;
    per_unit = 1;
    if (values.empty()) return;
    const auto n = static_cast<double>(values.size());
    mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
    double squares = 0;
    for (const double value : values) squares += (value - mean) * (value - mean);
    const double deviation = std::sqrt(squares / n);
    if (deviation > 0 && std::isfinite(1 / deviation)) per_unit = 1 / deviation;
  }

  const std::vector<Axis> axes;
  const GpOptions options;
  Parameters parameters;
  // From the parameters:
  std::vector<double> inverse_scale;
  double amplitude = 1;
  double noise = 1e-6;

  std::vector<double> points;   // row by row, assumed ones last
  std::vector<double> values;   // as given
  std::vector<double> assumed;  // standardised
  double mean = 0;
  double per_unit = 1;

  Matrix factor;             // Cholesky, lower; may have room for more rows
  std::size_t factored = 0;  // rows that are filled
  Vector weights;
};

namespace {

// The posterior of the parameters over some of a model's points, as a function to minimise.
class FitProblem {
 public:
  FitProblem(const std::vector<Axis>& axes, const GpOptions& options, Matrix points, Vector values)
      : axes_(axes), options_(options), x_(std::move(points)), y_(std::move(values)) {}

  std::size_t scales() const { return options_.shared_scale ? 1 : axes_.size(); }

  double operator()(std::span<const double> theta, std::span<double> gradient) const {
    const Index n = x_.cols();
    std::vector<double> inverse_square(axes_.size());
    for (std::size_t d = 0; d < axes_.size(); ++d) {
      inverse_square[d] = std::exp(-2 * theta[options_.shared_scale ? 0 : d]);
    }
    const std::size_t at_amplitude = scales();
    const double amplitude = std::exp(theta[at_amplitude]);
    const double noise = std::exp(theta[at_amplitude + 1]);

    Matrix k(n, n);
    Matrix slope(n, n);
    for (Index j = 0; j < n; ++j) {
      k(j, j) = amplitude + noise;
      for (Index i = j + 1; i < n; ++i) {
        double squared = 0;
        for (std::size_t d = 0; d < axes_.size(); ++d) {
          squared += difference(d, i, j) * inverse_square[d];
        }
        const Matern m = matern(squared);
        k(i, j) = amplitude * m.value;
        slope(i, j) = amplitude * m.slope;
      }
    }
    const Eigen::LLT<Matrix> llt(k);
    if (llt.info() != Eigen::Success) return std::numeric_limits<double>::infinity();
    const Vector alpha = llt.solve(y_);
    const double log_determinant = llt.matrixLLT().diagonal().array().log().sum();
    double value = 0.5 * y_.dot(alpha) + log_determinant;
    const Matrix inverse = llt.solve(Matrix::Identity(n, n));

    std::ranges::fill(gradient, 0.0);
    for (Index j = 0; j < n; ++j) {
      const double diagonal = inverse(j, j) - alpha[j] * alpha[j];
      gradient[at_amplitude] += 0.5 * diagonal * amplitude;
      gradient[at_amplitude + 1] += 0.5 * diagonal * noise;
      for (Index i = j + 1; i < n; ++i) {
        const double w = inverse(i, j) - alpha[i] * alpha[j];
        gradient[at_amplitude] += w * k(i, j);
        const double ws = w * slope(i, j);
        for (std::size_t d = 0; d < axes_.size(); ++d) {
          gradient[options_.shared_scale ? 0 : d] -= ws * difference(d, i, j) * inverse_square[d];
        }
      }
    }
    if (options_.priors) add_priors(theta, gradient, value);
    if (!options_.learn_amplitude) gradient[at_amplitude] = 0;
    if (!options_.learn_noise) gradient[at_amplitude + 1] = 0;
    return value;
  }

  // The box of the parameters; what is not learned has no width.
  void bounds(const Parameters& now, std::vector<double>& lower, std::vector<double>& upper) const {
    lower.assign(scales(), std::log(options_.min_scale));
    upper.assign(scales(), std::log(options_.max_scale));
    lower.push_back(options_.learn_amplitude ? kMinAmplitude : now.log_amplitude);
    upper.push_back(options_.learn_amplitude ? kMaxAmplitude : now.log_amplitude);
    lower.push_back(options_.learn_noise ? kMinNoise : now.log_noise);
    upper.push_back(options_.learn_noise ? kMaxNoise : now.log_noise);
  }

 private:
  double difference(std::size_t d, Index i, Index j) const {
    const double a = x_(as_index(d), i);
    const double b = x_(as_index(d), j);
    if (axes_[d].category) return a == b ? 0.0 : 1.0;
    return (a - b) * (a - b);
  }

  void add_priors(std::span<const double> theta, std::span<double> gradient, double& value) const {
    const auto add = [&](std::size_t i, const Prior& prior) {
      const double z = (theta[i] - prior.mean) / prior.deviation;
      value += 0.5 * z * z;
      gradient[i] += z / prior.deviation;
    };
    for (std::size_t i = 0; i < scales(); ++i) add(i, kScalePrior);
    add(scales(), kAmplitudePrior);
    add(scales() + 1, kNoisePrior);
  }

  const std::vector<Axis>& axes_;
  const GpOptions& options_;
  Matrix x_;  // a column per point
  Vector y_;
};

// Which points the parameters are learned from: all, or the best half and an even choice of the
// rest.
std::vector<std::size_t> fit_points(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (values.size() <= kFitPoints) return order;
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return std::pair(-values[a], a) < std::pair(-values[b], b);
  });
  std::vector<std::size_t> chosen(order.begin(), order.begin() + kFitPoints / 2);
  const std::size_t rest = order.size() - kFitPoints / 2;
  for (std::size_t i = 0; i < kFitPoints / 2; ++i) {
    chosen.push_back(order[kFitPoints / 2 + i * rest / (kFitPoints / 2)]);
  }
  return chosen;
}

}  // namespace

GpModel::GpModel(std::vector<Axis> axes, const GpOptions& options)
    : state_(std::make_unique<State>(std::move(axes), options)) {}
GpModel::GpModel(const GpModel& other) : state_(std::make_unique<State>(*other.state_)) {}
GpModel& GpModel::operator=(const GpModel& other) {
  if (this != &other) state_ = std::make_unique<State>(*other.state_);
  return *this;
}
GpModel::GpModel(GpModel&&) noexcept = default;
GpModel& GpModel::operator=(GpModel&&) noexcept = default;
GpModel::~GpModel() = default;

std::size_t GpModel::size() const {
  return state_->size();
}

void GpModel::clear() {
  state_->points.clear();
  state_->values.clear();
  state_->assumed.clear();
  state_->factored = 0;
}

void GpModel::add(std::span<const double> point, double value) {
  DIVISI_CHECK(state_->assumed.empty(), "known values come before assumed ones");
  state_->points.insert(state_->points.end(), point.begin(), point.end());
  state_->values.push_back(value);
  state_->update_weights();
}

void GpModel::add_assumed(std::span<const double> point, double standardised) {
  state_->points.insert(state_->points.end(), point.begin(), point.end());
  state_->assumed.push_back(standardised);
  state_->update_weights();
}

void GpModel::fit(int max_iterations, int random_starts, const RandomWords& words) {
  State& state = *state_;
  if (state.values.empty()) return;
  state.standardise();
  const std::vector<std::size_t> chosen = fit_points(state.values);
  Matrix x(as_index(state.axes.size()), as_index(chosen.size()));
  Vector y(as_index(chosen.size()));
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    for (std::size_t d = 0; d < state.axes.size(); ++d) {
      x(as_index(d), as_index(i)) = state.row(chosen[i])[d];
    }
    y[as_index(i)] = (state.values[chosen[i]] - state.mean) * state.per_unit;
  }
  const FitProblem problem(state.axes, state.options, std::move(x), std::move(y));
  std::vector<double> lower;
  std::vector<double> upper;
  problem.bounds(state.parameters, lower, upper);

  std::vector<double> now = state.parameters.log_scale;
  now.push_back(state.parameters.log_amplitude);
  now.push_back(state.parameters.log_noise);
  std::vector<std::vector<double>> starts{now};
  for (int i = 0; i < random_starts; ++i) {
    std::vector<double> start = now;
    for (std::size_t d = 0; d < problem.scales(); ++d) {
      // The first of them is the default; the others lie around it.
      const double shift = i == 0 ? 0 : (draw_unit(words) - 0.5) * 4;
      start[d] = state.options.priors ? kScalePrior.mean + shift
                                      : lower[d] + draw_unit(words) * (upper[d] - lower[d]);
    }
    if (state.options.learn_amplitude) start[problem.scales()] = 0;
    if (state.options.learn_noise) start[problem.scales() + 1] = kNoisePrior.mean;
    starts.push_back(std::move(start));
  }
  double best = std::numeric_limits<double>::infinity();
  for (std::vector<double>& start : starts) {
    const double value = minimize_in_box(problem, lower, upper, max_iterations, start);
    if (value < best) {
      best = value;
      now = start;
    }
  }
  state.parameters.log_noise = now.back();
  now.pop_back();
  state.parameters.log_amplitude = now.back();
  now.pop_back();
  state.parameters.log_scale = now;
  state.use_parameters();
  state.rebuild();
  state.update_weights();
}

Prediction GpModel::predict(std::span<const double> point) const {
  return predict(std::vector<Point>{Point(point.begin(), point.end())}).front();
}

std::vector<Prediction> GpModel::predict(const std::vector<Point>& points) const {
  const State& state = *state_;
  const Index n = as_index(state.size());
  Matrix k(n, as_index(points.size()));
  for (std::size_t c = 0; c < points.size(); ++c) {
    for (std::size_t i = 0; i < state.size(); ++i) {
      k(as_index(i), as_index(c)) = state.kernel(state.row(i), points[c].data());
    }
  }
  const Vector means = k.transpose() * state.weights;
  state.factor.topLeftCorner(n, n).triangularView<Eigen::Lower>().solveInPlace(k);
  std::vector<Prediction> predictions(points.size());
  for (std::size_t c = 0; c < points.size(); ++c) {
    const double variance = state.amplitude - k.col(as_index(c)).squaredNorm();
    predictions[c] = {means[as_index(c)], std::sqrt(std::max(variance, kMinVariance))};
  }
  return predictions;
}

Prediction GpModel::predict(std::span<const double> point, std::span<double> mean_gradient,
                            std::span<double> deviation_gradient) const {
  const State& state = *state_;
  const Index n = as_index(state.size());
  const std::size_t dimensions = state.axes.size();
  Vector k(n);
  Vector slope(n);
  for (std::size_t i = 0; i < state.size(); ++i) {
    const Matern m = matern(state.squared_distance(state.row(i), point.data()));
    k[as_index(i)] = state.amplitude * m.value;
    slope[as_index(i)] = state.amplitude * m.slope;
  }
  const double mean = k.dot(state.weights);
  const auto lower = state.factor.topLeftCorner(n, n).triangularView<Eigen::Lower>();
  lower.solveInPlace(k);
  const double variance = std::max(state.amplitude - k.squaredNorm(), kMinVariance);
  const double deviation = std::sqrt(variance);
  state.factor.topLeftCorner(n, n).triangularView<Eigen::Lower>().transpose().solveInPlace(k);
  for (std::size_t d = 0; d < dimensions; ++d) {
    mean_gradient[d] = 0;
    deviation_gradient[d] = 0;
    if (state.axes[d].category) continue;
    const double scale = state.inverse_scale[d] * state.inverse_scale[d];
    double variance_gradient = 0;
    for (std::size_t i = 0; i < state.size(); ++i) {
      const double change = slope[as_index(i)] * (point[d] - state.row(i)[d]) * scale;
      mean_gradient[d] += change * state.weights[as_index(i)];
      variance_gradient -= 2 * change * k[as_index(i)];
    }
    deviation_gradient[d] = variance_gradient / (2 * deviation);
  }
  return {mean, deviation};
}

double GpModel::best() const {
  const State& state = *state_;
  return (*std::ranges::max_element(state.values) - state.mean) * state.per_unit;
}

double GpModel::worst() const {
  const State& state = *state_;
  return (*std::ranges::min_element(state.values) - state.mean) * state.per_unit;
}

double GpModel::unit() const {
  return state_->per_unit;
}

std::vector<double> GpModel::length_scales() const {
  std::vector<double> scales;
  for (const double inverse : state_->inverse_scale) scales.push_back(1 / inverse);
  return scales;
}

}  // namespace divisi::tune
