#include "tune_run/reports.h"

#include "json/value.h"
#include "tune/expr_node.h"
#include "tune/numbers.h"
#include "tune_run/value_json.h"

#include <cmath>

namespace divisi::tune_run {
namespace {

// Python's json module writes these, which are no JSON; null stands for them.
Result<json::Value> parse_line(std::string_view line) {
  Result<json::Value> document = json::parse(line);
  if (document) return document;
  std::string text(line);
  for (const std::string_view token : {"-Infinity", "Infinity", "NaN"}) {
    for (std::size_t at = text.find(token); at != std::string::npos; at = text.find(token, at)) {
      text.replace(at, token.size(), "null");
    }
  }
  Result<json::Value> mended = json::parse(text);
  return mended ? std::move(mended) : std::move(document);
}

// A number; null is one that is not finite.
std::optional<double> number_of(const Value& value) {
  return value.is_nil() ? std::nan("") : tune::as_number(value);
}

Result<double> reported_number(const Value& value, const tune::Expr& target) {
  if (const auto number = number_of(value)) return *number;
  const Result<Value> evaluated = tune::evaluate(target, tune::Record{{}, value, {}});
  if (evaluated) {
    if (const auto number = number_of(*evaluated)) return *number;
  }
  const auto* members = value.get_if<Value::Map>();
  if (members != nullptr && members->size() == 1) {
    if (const auto number = number_of(members->front().second)) return *number;
  }
  if (!evaluated) return failure(evaluated.error());
  return failure(Code::kInvalid, "{} is {}, not a number", target.text(), evaluated->describe());
}

}  // namespace

Result<Report> parse_report(std::string_view line, const tune::Expr& target) {
  Result<json::Value> document = parse_line(line);
  if (!document) return failure(document.error());
  const auto step = document->int_at({"step"});
  if (!step || *step < 0)
    return failure(Code::kInvalid, "no \"step\" that is a whole number from 0");
  const json::Value* value = document->find("value");
  if (value == nullptr) value = document->find("values");
  if (value == nullptr) return failure(Code::kInvalid, "neither \"value\" nor \"values\"");
  DIVISI_TRY(const double number, reported_number(from_json(*value), target));
  return Report{*step, number};
}

}  // namespace divisi::tune_run
