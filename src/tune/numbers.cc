#include "tune/numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

namespace divisi::tune {
namespace {

// Both as integers, if they are. A bool counts as 0 or 1.
std::optional<std::int64_t> as_integer(const Value& value) {
  if (const auto* number = value.get_if<std::int64_t>()) return *number;
  if (const auto* flag = value.get_if<bool>()) return *flag ? 1 : 0;
  return std::nullopt;
}

double floor_mod(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// Nothing: not exact in 64 bits.
std::optional<Value> integer_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) return std::nullopt;
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result) || i > 64) return std::nullopt;
    if (result == 0 || (base == 1)) break;
  }
  return Value(result);
}

// Nothing where the result is no integer or does not fit.
std::optional<Value> integer_binary(std::string_view symbol, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (symbol == "+" && !__builtin_add_overflow(a, b, &result)) return Value(result);
  if (symbol == "-" && !__builtin_sub_overflow(a, b, &result)) return Value(result);
  if (symbol == "*" && !__builtin_mul_overflow(a, b, &result)) return Value(result);
  if (symbol == "**") return integer_power(a, b);
  const bool divides = b != 0 && !(b == -1 && a == std::numeric_limits<std::int64_t>::min());
  if (symbol == "//" && divides) return Value(a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0));
  if (symbol == "%" && divides) {
    const std::int64_t rest = a % b;
    return Value(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
  }
  return std::nullopt;
}

std::optional<double> floating_binary(std::string_view symbol, double a, double b) {
  if (symbol == "+") return a + b;
  if (symbol == "-") return a - b;
  if (symbol == "*") return a * b;
  if (symbol == "/") return a / b;
  if (symbol == "//") return std::floor(a / b);
  if (symbol == "%") return floor_mod(a, b);
  if (symbol == "**") return std::pow(a, b);
  return std::nullopt;
}

std::optional<bool> compare(std::string_view symbol, int order) {
  if (symbol == "<") return order < 0;
  if (symbol == "<=") return order <= 0;
  if (symbol == ">") return order > 0;
  if (symbol == ">=") return order >= 0;
  return std::nullopt;
}

tl::unexpected<Status> no_operator(std::string_view symbol, const Value& a, const Value& b) {
  return failure(Code::kInvalid, "'{}' does not go with {} and {}", symbol, a.describe(),
                 b.describe());
}

Result<Value> apply_order(std::string_view symbol, const Value& a, const Value& b) {
  const std::optional<double> x = as_number(a);
  const std::optional<double> y = as_number(b);
  if (x && y) {
    if (std::isnan(*x) || std::isnan(*y)) return Value(false);
    return Value(*compare(symbol, *x < *y ? -1 : (*x > *y ? 1 : 0)));
  }
  const auto* s = a.get_if<std::string>();
  const auto* t = b.get_if<std::string>();
  if (s != nullptr && t != nullptr) return Value(*compare(symbol, s->compare(*t)));
  return no_operator(symbol, a, b);
}

Result<std::vector<double>> as_numbers(std::string_view name, const Value& list) {
  const auto* items = list.get_if<Value::Array>();
  if (items == nullptr) return failure(Code::kInvalid, ".{}() of {}", name, list.describe());
  std::vector<double> numbers;
  for (const Value& item : *items) {
    const std::optional<double> number = as_number(item);
    if (!number) return failure(Code::kInvalid, ".{}() over {}", name, item.describe());
    numbers.push_back(*number);
  }
  return numbers;
}

double squares(const std::vector<double>& numbers, double mean) {
  double sum = 0;
  for (const double number : numbers) sum += (number - mean) * (number - mean);
  return sum;
}

Result<Value> over_list(std::string_view name, const Value& list) {
  DIVISI_TRY(std::vector<double> numbers, as_numbers(name, list));
  const auto n = static_cast<double>(numbers.size());
  if (name == "sum") {
    Value total(0);
    for (const Value& item : *list.get_if<Value::Array>()) {
      DIVISI_TRY(total, apply_binary("+", total, item));
    }
    return total;
  }
  if (numbers.empty() || (name == "stdev" && numbers.size() < 2)) {
    return failure(Code::kInvalid, ".{}() of a list of {}", name, numbers.size());
  }
  double mean = 0;
  for (const double number : numbers) mean += number / n;
  if (name == "mean") return Value(mean);
  if (name == "stdev") return Value(std::sqrt(squares(numbers, mean) / (n - 1)));
  if (name == "std") return Value(std::sqrt(squares(numbers, mean) / n));
  const std::size_t middle = numbers.size() / 2;
  std::ranges::sort(numbers);
  if (name == "median") {
    return Value(numbers.size() % 2 == 1 ? numbers[middle]
                                         : (numbers[middle - 1] + numbers[middle]) / 2);
  }
  const auto& items = *list.get_if<Value::Array>();
  const double wanted = name == "max" ? numbers.back() : numbers.front();
  for (const Value& item : items) {
    if (as_number(item) == wanted) return item;  // an integer stays one
  }
  return Value(wanted);
}

constexpr std::array kListMethods{"sum", "mean", "stdev", "std", "median", "max", "min"};
constexpr std::array kOtherMethods{"abs", "len", "last", "isnan", "log", "exp", "sqrt"};

}  // namespace

std::optional<double> as_number(const Value& value) {
  if (const auto* number = value.get_if<double>()) return *number;
  if (const auto* large = value.get_if<std::uint64_t>()) return static_cast<double>(*large);
  const std::optional<std::int64_t> integer = as_integer(value);
  if (!integer) return std::nullopt;
  return static_cast<double>(*integer);
}

bool is_true(const Value& value) {
  if (const std::optional<double> number = as_number(value)) return *number != 0;
  if (value.is_nil()) return false;
  if (const auto* text = value.get_if<std::string>()) return !text->empty();
  if (value.holds<Value::Array>() || value.holds<Value::Map>()) return value.size() > 0;
  return true;
}

bool is_method(std::string_view name) {
  return std::ranges::find(kListMethods, name) != kListMethods.end() ||
         std::ranges::find(kOtherMethods, name) != kOtherMethods.end();
}

Result<Value> apply_binary(std::string_view symbol, const Value& a, const Value& b) {
  if (symbol == "&") return is_true(a) ? b : a;
  if (symbol == "|") return is_true(a) ? a : b;
  if (symbol == "==") return Value(a == b);
  if (symbol == "!=") return Value(!(a == b));
  if (compare(symbol, 0)) return apply_order(symbol, a, b);
  const std::optional<double> x = as_number(a);
  const std::optional<double> y = as_number(b);
  if (!x || !y) {
    const auto* s = a.get_if<std::string>();
    const auto* t = b.get_if<std::string>();
    if (symbol == "+" && s != nullptr && t != nullptr) return Value(*s + *t);
    return no_operator(symbol, a, b);
  }
  if (*y == 0 && (symbol == "/" || symbol == "//" || symbol == "%")) {
    return failure(Code::kInvalid, "division by zero: {} {} {}", a.describe(), symbol,
                   b.describe());
  }
  const std::optional<std::int64_t> i = as_integer(a);
  const std::optional<std::int64_t> j = as_integer(b);
  if (i && j && symbol != "/") {
    if (std::optional<Value> exact = integer_binary(symbol, *i, *j)) return *exact;
  }
  const std::optional<double> result = floating_binary(symbol, *x, *y);
  if (!result) return no_operator(symbol, a, b);
  return Value(*result);
}

Result<Value> apply_unary(std::string_view symbol, const Value& a) {
  if (symbol == "~") return Value(!is_true(a));
  return apply_binary(symbol, Value(0), a);
}

Result<Value> apply_method(std::string_view name, const Value& a) {
  if (std::ranges::find(kListMethods, name) != kListMethods.end()) {
    return over_list(name, a);
  }
  if (name == "len") {
    if (const auto* text = a.get_if<std::string>()) return Value(text->size());
    if (a.holds<Value::Array>() || a.holds<Value::Map>()) return Value(a.size());
    return failure(Code::kInvalid, ".len() of {}", a.describe());
  }
  if (name == "last") {
    const auto* items = a.get_if<Value::Array>();
    if (items == nullptr || items->empty()) {
      return failure(Code::kInvalid, ".last() of {}", a.describe());
    }
    return items->back();
  }
  const std::optional<double> x = as_number(a);
  if (!x) return failure(Code::kInvalid, ".{}() of {}", name, a.describe());
  if (name == "abs") {
    return *x < 0 ? apply_unary("-", a) : apply_binary("+", a, Value(0));
  }
  if (name == "isnan") return Value(std::isnan(*x));
  if (name == "exp") return Value(std::exp(*x));
  if (*x < 0 || (name == "log" && *x == 0)) {
    return failure(Code::kInvalid, "{}({}) is not a number", name, *x);
  }
  return Value(name == "log" ? std::log(*x) : std::sqrt(*x));
}

}  // namespace divisi::tune
