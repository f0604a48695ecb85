#include "tune/tpe_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

namespace divisi::tune {
namespace {

constexpr std::size_t kMassBins = 512;
constexpr double kPriorWidth = 1;
// The width of a kernel: kWidth * n^(-1 / (d + 4)) of the interval, and for few trials not below
// kFewTrials / (n + 2). About a third of what other estimators take; chosen on the functions of
// bench/tune, and confirmed on others.
constexpr double kWidth = 0.07;
constexpr double kFewTrials = 0.3;
constexpr double kMinWidth = 0.01;
constexpr float kNever = -1e30F;   // the score of a kernel that does not count
constexpr float kNegligible = 25;  // a kernel so far below the largest adds nothing

double normal_cdf(double x) {
  return 0.5 * std::erfc(-x / std::numbers::sqrt2);
}

// Of a normal distribution, the part between two places.
double mass_between(double lower, double upper, double mean, double width) {
  const double a = (lower - mean) / width;
  const double b = (upper - mean) / width;
  // In the tail the difference is taken where numbers are small.
  return a > 0 ? normal_cdf(-a) - normal_cdf(-b) : normal_cdf(b) - normal_cdf(a);
}

float log_of(double mass) {
  return static_cast<float>(std::log(std::max(mass, 1e-30)));
}

// Widths change in steps, so that the tables serve many trials: the five highest bits.
std::size_t rounded(std::size_t trials) {
  const auto bits = static_cast<std::size_t>(std::bit_width(trials));
  return bits <= 5 ? trials : trials >> (bits - 5) << (bits - 5);
}

}  // namespace

TpeKernels::TpeKernels(std::vector<TpeAxis> axes, double prior_weight)
    : axes_(std::move(axes)),
      prior_weight_(prior_weight),
      columns_(axes_.size()),
      interval_mass_(kMassBins + 1),
      step_mass_(axes_.size()),
      step_inside_(axes_.size()) {
  for (std::size_t d = 0; d < axes_.size(); ++d) {
    if (axes_[d].kind == TpeAxis::Kind::kInterval && !axes_[d].conditional) {
      plain_intervals_.push_back(d);
    }
    if (axes_[d].kind == TpeAxis::Kind::kSteps) {
      step_mass_[d].resize(axes_[d].count);
      step_inside_[d].resize(axes_[d].count);
    }
  }
  set_tables();
}

void TpeKernels::push(const std::vector<double>& point) {
  for (std::size_t d = 0; d < axes_.size(); ++d) {
    columns_[d].push_back(static_cast<float>(point[d]));
  }
  base_.push_back(0);
  scores_.push_back(0);
  ++size_;
  set_base(size_ - 1);
}

void TpeKernels::shrink(std::size_t size) {
  size_ = std::min(size, size_);
  for (std::vector<float>& column : columns_) column.resize(size_);
  base_.resize(size_);
  scores_.resize(size_);
}

void TpeKernels::set_trials(std::size_t trials) {
  category_floor_ = prior_weight_ / static_cast<double>(trials + 1);
  if (rounded(trials) == trials_) return;
  trials_ = rounded(trials);
  set_tables();
  set_base(0);
}

void TpeKernels::set_tables() {
  const auto n = static_cast<double>(std::max<std::size_t>(trials_, 1));
  const auto d = static_cast<double>(axes_.size());
  width_ = std::max({kWidth * std::pow(n, -1 / (d + 4)), kFewTrials / (n + 2), kMinWidth});
  for (std::size_t i = 0; i <= kMassBins; ++i) {
    const double mean = static_cast<double>(i) / static_cast<double>(kMassBins);
    interval_mass_[i] = log_of(mass_between(0, 1, mean, width_));
  }
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    if (axes_[axis].kind != TpeAxis::Kind::kSteps) continue;
    const auto count = static_cast<double>(axes_[axis].count);
    for (std::size_t i = 0; i < axes_[axis].count; ++i) {
      const double place = static_cast<double>(i) / count;
      const double half = 0.5 / count;
      step_mass_[axis][i] = log_of(mass_between(place - half, place + half, 0, width_));
      step_inside_[axis][i] = log_of(mass_between(0, 1, place + half, width_));
    }
  }
}

// What the truncation of an axis adds to the logarithm of a kernel.
float TpeKernels::base_of(std::size_t axis, float coordinate) const {
  if (axes_[axis].kind == TpeAxis::Kind::kSteps) {
    return -step_inside_[axis][static_cast<std::size_t>(coordinate)];
  }
  const float place = coordinate * static_cast<float>(kMassBins);
  const auto bin = std::min(static_cast<std::size_t>(place), kMassBins - 1);
  const float part = place - static_cast<float>(bin);
  const float mass = interval_mass_[bin] * (1 - part) + interval_mass_[bin + 1] * part;
  constexpr double kHalfLogTwoPi = 0.91893853320467274;
  return -mass - static_cast<float>(std::log(width_) + kHalfLogTwoPi);
}

void TpeKernels::set_base(std::size_t from) {
  std::fill(base_.begin() + static_cast<std::ptrdiff_t>(from), base_.end(), 0.0F);
  for (std::size_t d = 0; d < axes_.size(); ++d) {
    if (axes_[d].kind == TpeAxis::Kind::kCategory || axes_[d].conditional) continue;
    for (std::size_t k = from; k < size_; ++k) base_[k] += base_of(d, columns_[d][k]);
  }
}

// The squared distances along the axes that every trial has, four at a time: the scores are read
// and written less often.
void TpeKernels::add_intervals(const std::vector<double>& point) {
  const auto scale = static_cast<float>(-0.5 / (width_ * width_));
  float* const scores = scores_.data();
  std::ranges::fill(scores_, 0.0F);
  std::size_t i = 0;
  for (; i + 4 <= plain_intervals_.size(); i += 4) {
    const float* const a = columns_[plain_intervals_[i]].data();
    const float* const b = columns_[plain_intervals_[i + 1]].data();
    const float* const c = columns_[plain_intervals_[i + 2]].data();
    const float* const d = columns_[plain_intervals_[i + 3]].data();
    const auto xa = static_cast<float>(point[plain_intervals_[i]]);
    const auto xb = static_cast<float>(point[plain_intervals_[i + 1]]);
    const auto xc = static_cast<float>(point[plain_intervals_[i + 2]]);
    const auto xd = static_cast<float>(point[plain_intervals_[i + 3]]);
    for (std::size_t k = 0; k < size_; ++k) {
      scores[k] += (xa - a[k]) * (xa - a[k]) + (xb - b[k]) * (xb - b[k]) +
                   (xc - c[k]) * (xc - c[k]) + (xd - d[k]) * (xd - d[k]);
    }
  }
  for (; i < plain_intervals_.size(); ++i) {
    const float* const a = columns_[plain_intervals_[i]].data();
    const auto x = static_cast<float>(point[plain_intervals_[i]]);
    for (std::size_t k = 0; k < size_; ++k) scores[k] += (x - a[k]) * (x - a[k]);
  }
  const float* const base = base_.data();
  for (std::size_t k = 0; k < size_; ++k) scores[k] = base[k] + scale * scores[k];
}

// An interval that some trials do not have.
void TpeKernels::add_conditional(std::size_t axis, double x) {
  const auto at = static_cast<float>(x);
  const auto scale = static_cast<float>(-0.5 / (width_ * width_));
  for (std::size_t k = 0; k < size_; ++k) {
    const float mean = columns_[axis][k];
    if (std::isnan(mean)) continue;  // uniform over [0, 1]
    scores_[k] += scale * (at - mean) * (at - mean) + base_of(axis, mean);
  }
}

void TpeKernels::add_discrete(std::size_t axis, double x) {
  const auto at = static_cast<float>(x);
  const auto count = static_cast<double>(axes_[axis].count);
  const float* const column = columns_[axis].data();
  float* const scores = scores_.data();
  if (axes_[axis].kind == TpeAxis::Kind::kCategory) {
    const double all = 1 + count * category_floor_;
    const float same = log_of((1 + category_floor_) / all);
    const float other = log_of(category_floor_ / all);
    for (std::size_t k = 0; k < size_; ++k) scores[k] += column[k] == at ? same : other;
  } else {
    const std::vector<float>& mass = step_mass_[axis];
    for (std::size_t k = 0; k < size_; ++k) {
      if (std::isnan(column[k])) continue;
      scores[k] += mass[static_cast<std::size_t>(std::abs(column[k] - at))];
    }
  }
  if (!axes_[axis].conditional) return;
  const float uniform = log_of(1 / count);
  const bool is_category = axes_[axis].kind == TpeAxis::Kind::kCategory;
  const float wrong = is_category ? log_of(category_floor_ / (1 + count * category_floor_)) : 0;
  for (std::size_t k = 0; k < size_; ++k) {
    if (std::isnan(column[k])) {
      scores[k] += uniform - wrong;
    } else if (!is_category) {
      scores[k] += base_of(axis, column[k]);
    }
  }
}

double TpeKernels::log_prior(const std::vector<double>& point) const {
  static const double inside = mass_between(0, 1, 0.5, kPriorWidth);
  double sum = 0;
  for (std::size_t d = 0; d < axes_.size(); ++d) {
    if (std::isnan(point[d])) continue;
    const auto count = static_cast<double>(axes_[d].count);
    if (axes_[d].kind == TpeAxis::Kind::kCategory) {
      sum -= std::log(count);
      continue;
    }
    const bool is_steps = axes_[d].kind == TpeAxis::Kind::kSteps;
    // The density at the middle of a step, by its width: the prior is nearly flat.
    const double x = is_steps ? (point[d] + 0.5) / count : point[d];
    sum += -0.5 * (x - 0.5) * (x - 0.5) / (kPriorWidth * kPriorWidth) -
           std::log(kPriorWidth * std::sqrt(2 * std::numbers::pi) * inside);
    if (is_steps) sum -= std::log(count);
  }
  return sum;
}

double TpeKernels::log_density(const std::vector<double>& point, std::span<const float> weights) {
  add_intervals(point);
  for (std::size_t d = 0; d < axes_.size(); ++d) {
    if (std::isnan(point[d])) continue;
    if (axes_[d].kind != TpeAxis::Kind::kInterval) {
      add_discrete(d, point[d]);
    } else if (axes_[d].conditional) {
      add_conditional(d, point[d]);
    }
  }
  float largest = kNever;
  for (std::size_t k = 0; k < size_; ++k) {
    scores_[k] = weights[k] > 0 ? scores_[k] : kNever;
    largest = std::max(largest, scores_[k]);
  }
  const double prior = log_prior(point);
  const double top = std::max(prior, static_cast<double>(largest));
  double sum = prior_weight_ * std::exp(prior - top);
  double total = prior_weight_;
  const auto shift = static_cast<float>(top);
  for (std::size_t k = 0; k < size_; ++k) {
    total += weights[k];
    const float score = scores_[k] - shift;
    if (score > -kNegligible) sum += static_cast<double>(weights[k] * std::exp(score));
  }
  return top + std::log(sum / total);
}

}  // namespace divisi::tune
