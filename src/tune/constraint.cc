#include "tune/constraint.h"

#include "tune/expr_node.h"
#include "tune/numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace divisi::tune {
namespace {

// Of a strict comparison whose sides are equal.
constexpr double kLeastViolation = std::numeric_limits<double>::epsilon();

Result<double> finite_violation(const Expr& condition, double violation) {
  if (std::isnan(violation)) {
    return failure(Code::kInvalid, "the constraint {} is not a number", condition.text());
  }
  return std::max(violation, 0.0);
}

Result<double> of_value(const Expr& condition, const Value& value) {
  if (const auto* holds = value.get_if<bool>()) return *holds ? 0.0 : 1.0;
  const std::optional<double> number = as_number(value);
  if (!number) {
    return failure(Code::kInvalid, "the constraint {} is {}, neither a condition nor a number",
                   condition.text(), value.describe());
  }
  return finite_violation(condition, *number);
}

Result<double> of_comparison(const Expr& condition, const Record& record) {
  const Expr::Node& node = condition.node();
  DIVISI_TRY(const Value holds, evaluate(condition, record));
  DIVISI_TRY(const Value left, evaluate(node.parts[0], record));
  DIVISI_TRY(const Value right, evaluate(node.parts[1], record));
  const std::optional<double> a = as_number(left);
  const std::optional<double> b = as_number(right);
  if (a && b && (std::isnan(*a) || std::isnan(*b))) {
    return finite_violation(condition, std::numeric_limits<double>::quiet_NaN());
  }
  if (is_true(holds)) return 0.0;
  if (!a || !b || node.name == "!=") return 1.0;
  const double apart = std::abs(*a - *b);
  return apart > kLeastViolation ? apart : kLeastViolation;
}

bool is_comparison(std::string_view symbol) {
  return symbol == "==" || symbol == "!=" || symbol.starts_with('<') || symbol.starts_with('>');
}

}  // namespace

Result<double> violation_of(const Expr& condition, const Record& record) {
  const Expr::Node& node = condition.node();
  const bool binary = node.kind == Expr::Node::Kind::kBinary;
  if (binary && is_comparison(node.name)) return of_comparison(condition, record);
  if (binary && (node.name == "&" || node.name == "|")) {
    DIVISI_TRY(const double a, violation_of(node.parts[0], record));
    DIVISI_TRY(const double b, violation_of(node.parts[1], record));
    return node.name == "&" ? a + b : std::min(a, b);
  }
  DIVISI_TRY(const Value value, evaluate(condition, record));
  return of_value(condition, value);
}

}  // namespace divisi::tune
