#include "tune/cma_distribution.h"

#include "tune/random_words.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <numbers>

namespace divisi::tune {
namespace {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

constexpr double kMinDeviation = 1e-12;  // of a coordinate of the unit cube: nothing moves below it
constexpr double kMaxDeviation = 1;      // twice the width of the cube covers all of it
constexpr double kMaxCondition = 1e14;  // of the covariance: beyond it, doubles lose the short axes

Vector vector_of(std::span<const double> values) {
  return Eigen::Map<const Vector>(values.data(), static_cast<Eigen::Index>(values.size()));
}

// The z for which a normal number is farther from 0 than z with this probability.
double two_sided_quantile(double probability) {
  double low = 0;
  double high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::numbers::sqrt2) > probability ? low : high) = middle;
  }
  return high;
}

// The weights of ranked results and the learning rates that follow from them; the formulas and
// default values are those of "The CMA Evolution Strategy: A Tutorial" (Hansen, 2016).
struct Rates {
  Vector weights;  // the better half sums up to 1, the others are 0 or negative
  Eigen::Index parents = 0;
  double selection = 0;  // the variance effective selection mass of the parents
  double path = 0;       // c_c
  double one = 0;        // c_1
  double many = 0;       // c_mu
  double sigma_path = 0;
  double damping = 0;

  Rates(double n, std::size_t population, bool active)
      : weights(static_cast<Eigen::Index>(population)),
        parents(static_cast<Eigen::Index>(population / 2)) {
    const auto size = static_cast<double>(population);
    for (Eigen::Index i = 0; i < weights.size(); ++i) {
      weights[i] = std::log((size + 1) / 2) - std::log(static_cast<double>(i) + 1);
    }
    const auto mass = [](const auto& part) {
      return part.squaredNorm() > 0 ? part.sum() * part.sum() / part.squaredNorm() : 0.0;
    };
    auto best = weights.head(parents);
    auto rest = weights.tail(weights.size() - parents);
    selection = mass(best);
    path = (4 + selection / n) / (n + 4 + 2 * selection / n);
    one = 2 / ((n + 1.3) * (n + 1.3) + selection);
    many = std::min(1 - one,
                    2 * (0.25 + selection + 1 / selection - 2) / ((n + 2) * (n + 2) + selection));
    sigma_path = (selection + 2) / (n + selection + 5);
    damping = 1 + 2 * std::max(0.0, std::sqrt((selection - 1) / (n + 1)) - 1) + sigma_path;
    const double negative = std::min(
        {1 + one / many, 1 + 2 * mass(rest) / (selection + 2), (1 - one - many) / (n * many)});
    best /= best.sum();
    if (active) {
      rest *= negative / rest.cwiseAbs().sum();
    } else {
      rest.setZero();
    }
  }
};

}  // namespace

double draw_normal(const RandomWords& words) {
  // Box and Muller; the second number is left out, so that a draw takes a fixed number of words.
  const double radius = std::sqrt(-2 * std::log(1 - draw_unit(words)));
  return radius * std::cos(2 * std::numbers::pi * draw_unit(words));
}

struct CmaDistribution::State {
  explicit State(const CmaSetup& setup)
      : n(static_cast<double>(setup.mean.size())),
        rates(std::max(n, 1.0), setup.population, setup.active),
        mean(setup.mean),
        steps(setup.steps),
        sigma(setup.sigma),
        expected_norm(std::sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))),
        step_quantile(two_sided_quantile(1 / (n * static_cast<double>(setup.population)))),
        covariance(Matrix::Identity(size(), size())),
        axes(covariance),
        lengths(Vector::Ones(size())),
        sigma_path(Vector::Zero(size())),
        covariance_path(Vector::Zero(size())) {
    set_stretch();
  }

  Eigen::Index size() const { return static_cast<Eigen::Index>(mean.size()); }

  // Of each coordinate how much more than its own deviation it is drawn with.
  void set_stretch() {
    stretch = Vector::Ones(covariance.rows());
    for (std::size_t d = 0; d < steps.size(); ++d) {
      const auto i = static_cast<Eigen::Index>(d);
      const double own = sigma * std::sqrt(covariance(i, i));
      stretch[i] = std::max(1.0, steps[d] / 2 / step_quantile / own);
    }
  }

  // The direction with the covariance taken out, by the last eigenvectors.
  Vector whitened(const Vector& direction) const {
    return axes * ((axes.transpose() * direction).array() / lengths.array()).matrix();
  }

  void learn(const Matrix& directions) {
    ++updates;
    const Vector step = directions.leftCols(rates.parents) * rates.weights.head(rates.parents);
    const Vector shift = sigma * (stretch.array() * step.array()).matrix();
    for (std::size_t d = 0; d < mean.size(); ++d) mean[d] += shift[static_cast<Eigen::Index>(d)];

    const double c = rates.sigma_path;
    sigma_path = (1 - c) * sigma_path + std::sqrt(c * (2 - c) * rates.selection) * whitened(step);
    const double norm = sigma_path.norm();
    const double settled = std::sqrt(1 - std::pow(1 - c, 2.0 * static_cast<double>(updates)));
    // Otherwise the path grows too fast while the step size does.
    const bool grows = norm / settled < (1.4 + 2 / (n + 1)) * expected_norm;
    const double p = rates.path;
    covariance_path *= 1 - p;
    if (grows) covariance_path += std::sqrt(p * (2 - p) * rates.selection) * step;

    learn_covariance(directions, grows ? 0 : p * (2 - p));
    sigma *= std::exp(std::min(1.0, c / rates.damping * (norm / expected_norm - 1)));
    limit_sigma();
    // About a tenth of the change after which old eigenvectors would be noticed.
    if (static_cast<double>(updates - decomposed) * n * (rates.one + rates.many) >= 0.5)
      decompose();
    set_stretch();
  }

  void learn_covariance(const Matrix& directions, double lost) {
    Vector weights = rates.weights;
    for (Eigen::Index i = rates.parents; i < weights.size(); ++i) {
      // A negative weight on a long direction would make the matrix indefinite.
      weights[i] *= n / std::max(whitened(directions.col(i)).squaredNorm(), 1e-12);
    }
    covariance *= 1 + rates.one * lost - rates.one - rates.many * rates.weights.sum();
    covariance += rates.one * covariance_path * covariance_path.transpose();
    covariance.noalias() += rates.many * directions * weights.asDiagonal() * directions.transpose();
  }

  void limit_sigma() {
    const double largest = sigma * std::sqrt(covariance.diagonal().maxCoeff());
    if (largest > kMaxDeviation) sigma *= kMaxDeviation / largest;
  }

  void decompose() {
    decomposed = updates;
    const Matrix symmetric = (covariance + covariance.transpose()) / 2;
    covariance = symmetric;
    const Eigen::SelfAdjointEigenSolver<Matrix> solver(covariance);
    const Vector& squares = solver.eigenvalues();
    // Eigenvalues rise. The comparison is false for what is not a number.
    const bool sound = solver.info() == Eigen::Success && squares[0] > 0 &&
                       squares[squares.size() - 1] <= kMaxCondition * squares[0];
    if (!sound) {
      degenerated = true;
      return;
    }
    axes = solver.eigenvectors();
    lengths = squares.cwiseSqrt();
  }

  const double n;
  const Rates rates;
  std::vector<double> mean;
  const std::vector<double> steps;
  double sigma;
  const double expected_norm;  // of a vector of normal numbers
  const double step_quantile;  // half a step is at most so many deviations
  Matrix covariance;
  Matrix axes;     // eigenvectors of the covariance, as columns ...
  Vector lengths;  // ... and the roots of its eigenvalues, both of the update `decomposed`
  Vector sigma_path;
  Vector covariance_path;
  Vector stretch;
  std::size_t updates = 0;
  std::size_t decomposed = 0;
  bool degenerated = false;
};

CmaDistribution::CmaDistribution(const CmaSetup& setup) : state_(std::make_unique<State>(setup)) {}
CmaDistribution::CmaDistribution(CmaDistribution&&) noexcept = default;
CmaDistribution& CmaDistribution::operator=(CmaDistribution&&) noexcept = default;
CmaDistribution::~CmaDistribution() = default;

CmaDraw CmaDistribution::draw(const RandomWords& words) const {
  const State& state = *state_;
  const std::size_t n = state.mean.size();
  Vector normal(static_cast<Eigen::Index>(n));
  for (double& z : normal) z = draw_normal(words);
  const Vector direction = state.axes * (state.lengths.array() * normal.array()).matrix();
  CmaDraw drawn{.direction = {direction.begin(), direction.end()}, .position = state.mean};
  for (std::size_t d = 0; d < n; ++d) {
    drawn.position[d] +=
        state.sigma * state.stretch[static_cast<Eigen::Index>(d)] * drawn.direction[d];
  }
  return drawn;
}

std::vector<double> CmaDistribution::direction_to(std::span<const double> position) const {
  const State& state = *state_;
  const Vector offset = vector_of(position) - vector_of(state.mean);
  Vector direction = (offset.array() / (state.sigma * state.stretch.array())).matrix();
  // The length of "Injecting External Solutions Into CMA-ES" (Hansen, 2011).
  const double longest = std::sqrt(state.n) + 2 * state.n / (state.n + 2);
  const double length = state.whitened(direction).norm();
  if (length > longest) direction *= longest / length;
  return {direction.begin(), direction.end()};
}

void CmaDistribution::update(const std::vector<std::vector<double>>& directions) {
  State& state = *state_;
  if (state.mean.empty()) return;
  Matrix columns(state.covariance.rows(), state.rates.weights.size());
  for (Eigen::Index i = 0; i < columns.cols(); ++i) {
    columns.col(i) = vector_of(directions[static_cast<std::size_t>(i)]);
  }
  state.learn(columns);
}

const std::vector<double>& CmaDistribution::mean() const {
  return state_->mean;
}

double CmaDistribution::deviation(std::size_t coordinate) const {
  const auto i = static_cast<Eigen::Index>(coordinate);
  return state_->sigma * std::sqrt(state_->covariance(i, i));
}

bool CmaDistribution::is_spent() const {
  const State& state = *state_;
  if (state.degenerated || !std::isfinite(state.sigma)) return true;
  bool continuous = false;
  for (std::size_t d = 0; d < state.mean.size(); ++d) {
    if (state.steps[d] > 0) continue;
    if (deviation(d) > kMinDeviation) return false;
    continuous = true;
  }
  return continuous || state.sigma < kMinDeviation;
}

}  // namespace divisi::tune
