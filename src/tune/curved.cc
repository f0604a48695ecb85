#include "tune/curved.h"

#include "base/status.h"
#include "tune/numbers.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace divisi::tune {
namespace {

// Left out of the normal distribution on both sides.
constexpr double kNormalTail = 1e-9;

double curved_operand(const HyperValue::Transform& transform, std::size_t index) {
  return as_number(transform.operand.at(index)).value_or(0);
}

void check_log_bounds(const char* name, double lower, double upper) {
  if (lower > 0 && lower < upper && std::isfinite(upper)) return;
  throw UsageError(fmt::format("{}: the bounds must be positive, the lower one first: not {}, {}",
                               name, lower, upper));
}

// The multiples of `step` in the bounds, as factors; the margin forgives rounding.
std::pair<double, double> factors(double lower, double upper, double step) {
  return {std::ceil(lower / step - 1e-9), std::floor(upper / step + 1e-9)};
}

}  // namespace

double normal_quantile(double p) {
  // Newton's method on the distribution function, from a logistic approximation; the logarithm of
  // the smaller tail keeps it accurate far out.
  const bool upper = p > 0.5;
  const double tail = upper ? 1 - p : p;
  double x = std::log(tail / (1 - tail)) / 1.702;
  for (int i = 0; i < 50; ++i) {
    const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    const double step = below * std::log(below / tail) / density;
    x -= step;
    if (std::abs(step) <= 1e-15 * std::max(1.0, std::abs(x))) break;
  }
  return upper ? -x : x;
}

bool is_curved(std::string_view name) {
  return name == "qexp" || name == "intexp" || name == "normal";
}

Value curved(const HyperValue::Transform& transform, double raw) {
  const double first = curved_operand(transform, 0);
  const double second = curved_operand(transform, 1);
  if (transform.name == "normal") return Value(first + second * normal_quantile(raw));
  if (transform.name == "intexp") {
    return Value(
        static_cast<std::int64_t>(std::clamp(std::nearbyint(std::exp(raw)), first, second)));
  }
  const double step = curved_operand(transform, 2);
  const auto [least, most] = factors(first, second, step);
  const double factor = std::clamp(std::nearbyint(std::exp(raw) / step), least, most);
  // As points of a stepped space: without the noise of the multiplication.
  return Value(Space::separate(0, most * step, step).at(static_cast<std::int64_t>(factor)));
}

HyperValue qloguniform(double lower, double upper, double step) {
  check_log_bounds("qloguniform", lower, upper);
  if (!(step > 0)) {
    throw UsageError(fmt::format("qloguniform: the step must be positive, not {}", step));
  }
  const auto [least, most] = factors(lower, upper, step);
  if (least > most) {
    throw UsageError(
        fmt::format("qloguniform: no multiple of {} lies from {} to {}", step, lower, upper));
  }
  return HyperValue(Space::continuous(std::log(lower), std::log(upper)))
      .then("qexp", Value(Value::Array{Value(lower), Value(upper), Value(step)}));
}

HyperValue lograndint(double start, double end) {
  const double first = std::ceil(start);
  const double last = std::floor(end);
  if (!(first >= 1) || !(first < last)) {
    throw UsageError(fmt::format("lograndint: needs 1 <= start < end, not {}, {}", start, end));
  }
  // Half a unit beyond both ends: the first and the last number get their full share.
  return HyperValue(Space::continuous(std::log(first - 0.5), std::log(last + 0.5)))
      .then("intexp", Value(Value::Array{Value(first), Value(last)}));
}

HyperValue normal(double mu, double sigma) {
  if (!std::isfinite(mu) || !std::isfinite(sigma) || !(sigma > 0)) {
    throw UsageError(fmt::format("normal: sigma must be positive, not {}", sigma));
  }
  return HyperValue(Space::continuous(kNormalTail, 1 - kNormalTail))
      .then("normal", Value(Value::Array{Value(mu), Value(sigma)}));
}

HyperValue fixed(Value value) {
  return choice({std::move(value)});
}

}  // namespace divisi::tune
