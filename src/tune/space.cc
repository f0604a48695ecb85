#include "base/status.h"
#include "divisi/sampler.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

namespace divisi::tune {
namespace {

// Indices stay exact as doubles.
constexpr double kMaxPoints = 9007199254740992.0;
// More digits than this are no decimal that somebody wrote.
constexpr int kMaxDecimals = 12;

// Digits after the point in the shortest text of `value`; -1 when it has none that is short.
int decimals_of(double value) {
  std::array<char, 64> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (end.ec != std::errc()) return -1;
  const std::string_view digits(text.data(), static_cast<std::size_t>(end.ptr - text.data()));
  const std::size_t point = digits.find('.');
  if (point == std::string_view::npos) return 0;
  const auto count = static_cast<int>(digits.size() - point - 1);
  return count <= kMaxDecimals ? count : -1;
}

double round_half_even(double value) {
  return std::nearbyint(value);  // the default rounding mode, which nothing here changes
}

}  // namespace

Space::Space(Kind kind, double lower, double upper, double step, std::int64_t count)
    : kind_(kind), lower_(lower), upper_(upper), step_(step), count_(count) {}

Space Space::continuous(double lower, double upper) {
  if (!std::isfinite(lower) || !std::isfinite(upper) || !(lower < upper)) {
    throw UsageError(fmt::format(
        "a continuous space needs two finite bounds, the lower one first: not {} and {}", lower,
        upper));
  }
  if (!std::isfinite(upper - lower)) {
    throw UsageError(
        fmt::format("the distance of the bounds {} and {} is not finite", lower, upper));
  }
  return {Kind::kContinuous, lower, upper, 0, 0};
}

Space Space::separate(double start, double end, double step) {
  if (!std::isfinite(start) || !std::isfinite(end) || !(start <= end)) {
    throw UsageError(fmt::format(
        "a stepped space needs a finite start and an end not below it: not {} and {}", start, end));
  }
  if (!std::isfinite(step) || !(step > 0)) {
    throw UsageError(fmt::format("the step of a space must be positive and finite: not {}", step));
  }
  const double quotient = (end - start) / step;
  if (!(quotient < kMaxPoints)) {
    throw UsageError(fmt::format("{} to {} in steps of {}: too many points", start, end, step));
  }
  // A quotient a hair below a whole number still means that point.
  const double last = std::floor(quotient + 1e-9 * std::max(1.0, std::abs(quotient)));
  Space space(Kind::kSeparate, start, start, step, static_cast<std::int64_t>(last) + 1);
  const int start_decimals = decimals_of(start);
  const int step_decimals = decimals_of(step);
  if (start_decimals >= 0 && step_decimals >= 0) {
    space.decimals_ = std::max(start_decimals, step_decimals);
  }
  space.upper_ = space.at(space.count_ - 1);
  return space;
}

Space Space::fixed(std::int64_t count) {
  if (count < 1) {
    throw UsageError(fmt::format("a space of alternatives needs at least one: not {}", count));
  }
  return {Kind::kFixed, 0, static_cast<double>(count), 1, count};
}

std::optional<std::int64_t> Space::count() const noexcept {
  if (kind_ == Kind::kContinuous) return std::nullopt;
  return count_;
}

double Space::at(std::int64_t index) const noexcept {
  if (kind_ == Kind::kFixed) return static_cast<double>(index);
  const double value = lower_ + static_cast<double>(index) * step_;
  if (decimals_ < 0) return value;
  const double scale = std::pow(10.0, decimals_);
  const double scaled = std::round(value * scale);
  // Above 2^53 a scaled value has no whole digits to round to.
  return std::abs(scaled) < kMaxPoints ? scaled / scale : value;
}

std::vector<double> Space::spread(std::int64_t n) const {
  std::vector<double> points;
  if (kind_ == Kind::kFixed) n = count_;
  if (n <= 0) return points;
  if (kind_ != Kind::kContinuous) n = std::min(n, count_);
  points.reserve(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const double part = n == 1 ? 0.5 : static_cast<double>(i) / static_cast<double>(n - 1);
    if (kind_ == Kind::kContinuous) {
      points.push_back(n == 1 ? (lower_ + upper_) / 2
                              : (i == n - 1 ? upper_ : lower_ + part * length()));
    } else if (n == count_) {
      points.push_back(at(i));
    } else if (n == 1) {
      points.push_back(at((count_ - 1) / 2));
    } else {
      const double place =
          static_cast<double>(i) * static_cast<double>(count_ - 1) / static_cast<double>(n - 1);
      points.push_back(at(static_cast<std::int64_t>(round_half_even(place))));
    }
  }
  return points;
}

std::pair<double, double> Space::coordinate_bounds() const noexcept {
  if (kind_ == Kind::kContinuous) return {lower_, upper_};
  return {0.0, static_cast<double>(count_)};
}

double Space::at_coordinate(double x) const noexcept {
  if (kind_ == Kind::kContinuous) return x;
  const double index = std::clamp(std::floor(x), 0.0, static_cast<double>(count_ - 1));
  return at(static_cast<std::int64_t>(index));
}

}  // namespace divisi::tune
