// Expressions: how they are made, computed and printed.
#include "base/nearest_name.h"
#include "tune/expr_node.h"
#include "tune/numbers.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace divisi::tune {
namespace {

using Kind = Expr::Node::Kind;

// As in Python: the higher, the tighter.
constexpr int kComparison = 1;
constexpr int kSign = 6;
constexpr int kPower = 7;
constexpr int kNumber = 8;
constexpr int kTightest = 9;

struct Precedence {
  std::string_view symbol;
  int level;
};
constexpr std::array<Precedence, 15> kPrecedences{{{"==", kComparison},
                                                   {"!=", kComparison},
                                                   {"<", kComparison},
                                                   {"<=", kComparison},
                                                   {">", kComparison},
                                                   {">=", kComparison},
                                                   {"|", 2},
                                                   {"&", 3},
                                                   {"+", 4},
                                                   {"-", 4},
                                                   {"*", 5},
                                                   {"/", 5},
                                                   {"//", 5},
                                                   {"%", 5},
                                                   {"**", kPower}}};

int precedence(std::string_view symbol) {
  for (const Precedence& known : kPrecedences) {
    if (known.symbol == symbol) return known.level;
  }
  return 0;
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string floating(double number) {
  std::string text = fmt::format("{}", number);
  const bool whole = text.find_first_of(".einf") == std::string::npos;
  return whole ? text + ".0" : text;
}

std::string constant_text(const Value& value) {
  if (value.is_nil()) return "None";
  if (const auto* flag = value.get_if<bool>()) return *flag ? "True" : "False";
  if (const auto* number = value.get_if<std::int64_t>()) return fmt::format("{}", *number);
  if (const auto* number = value.get_if<double>()) return floating(*number);
  if (const auto* text = value.get_if<std::string>()) return quoted(*text);
  return "<" + value.describe() + ">";
}

// "the number 3", "the text 'abc'", "list of 3".
std::string described(const Value& value) {
  if (value.holds<bool>() || value.is_nil()) return constant_text(value);
  if (value.holds<std::string>()) return "the text " + constant_text(value);
  return as_number(value) ? "the number " + constant_text(value) : "a " + value.describe();
}

struct Printed {
  std::string text;
  int level;
};
Printed print(const Expr& expr);

std::string inside(const Expr& expr, int level) {
  Printed printed = print(expr);
  return printed.level < level ? "(" + printed.text + ")" : printed.text;
}

Printed print_binary(const Expr::Node& node) {
  const int level = precedence(node.name);
  // A comparison of comparisons would be a chain; a power binds its right side first.
  const int left = node.name == "**" || level == kComparison ? level + 1 : level;
  const int right = node.name == "**" ? level : level + 1;
  return {inside(node.parts[0], left) + " " + node.name + " " + inside(node.parts[1], right),
          level};
}

bool is_function_name(std::string_view name) {
  return name == "log" || name == "exp" || name == "sqrt";
}

Printed print(const Expr& expr) {
  const Expr::Node& node = expr.node();
  switch (node.kind) {
    case Kind::kRoot: return {node.name, kTightest};
    case Kind::kConstant: {
      const std::optional<double> number = as_number(node.constant);
      return {constant_text(node.constant), number && *number < 0 ? kSign : kNumber};
    }
    case Kind::kItem:
      return {inside(node.parts[0], kTightest) + "[" + print(node.parts[1]).text + "]", kTightest};
    case Kind::kBinary: return print_binary(node);
    case Kind::kUnary: return {node.name + inside(node.parts[0], kSign), kSign};
    case Kind::kMethod:
      if (is_function_name(node.name)) {
        return {node.name + "(" + print(node.parts[0]).text + ")", kTightest};
      }
      return {inside(node.parts[0], kTightest) + "." + node.name + "()", kTightest};
    case Kind::kWhere:
      return {"where(" + print(node.parts[0]).text + ", " + print(node.parts[1]).text + ", " +
                  print(node.parts[2]).text + ")",
              kTightest};
    case Kind::kFunction: return {"<" + node.name + ">", kTightest};
  }
  return {};
}

// Enough to see what is wrong; a result may have thousands of keys.
constexpr std::size_t kShownKeys = 10;

Status no_such_key(const Expr& expr, const Value::Map& map, const Value& key) {
  std::vector<std::string> names;
  std::vector<std::string> shown;
  for (const auto& [name, value] : map) {
    if (const auto* text = name.get_if<std::string>()) names.push_back(*text);
    if (shown.size() < kShownKeys) shown.push_back(constant_text(name));
  }
  if (shown.size() < map.size()) shown.emplace_back("...");
  const auto* wanted = key.get_if<std::string>();
  const std::string nearest = wanted == nullptr ? std::string() : did_you_mean(*wanted, names);
  return make_status(Code::kNotFound, "{}: there is no key {}{} ({})", expr.text(),
                     constant_text(key), nearest,
                     shown.empty() ? "there are no keys at all"
                                   : fmt::format("there are {}", fmt::join(shown, ", ")));
}

Result<Value> item(const Expr& expr, const Value& from, const Value& key) {
  if (const auto* map = from.get_if<Value::Map>()) {
    for (const auto& [name, value] : *map) {
      if (name == key) return value;
    }
    return failure(no_such_key(expr, *map, key));
  }
  const auto* list = from.get_if<Value::Array>();
  const auto* index = key.get_if<std::int64_t>();
  if (list == nullptr || index == nullptr) {
    return failure(Code::kInvalid, "{}: {} is {}, which has no {} {}", expr.text(),
                   expr.node().parts[0].text(), described(from), list != nullptr ? "item" : "key",
                   constant_text(key));
  }
  const auto size = static_cast<std::int64_t>(list->size());
  const std::int64_t place = *index < 0 ? *index + size : *index;
  if (place < 0 || place >= size) {
    return failure(Code::kNotFound, "{}: the list has {} items", expr.text(), size);
  }
  return (*list)[static_cast<std::size_t>(place)];
}

Result<Value> call(const Expr::Node& node, const Record& record) {
  try {
    return node.function(record);
  } catch (const std::exception& error) {
    return failure(Code::kInvalid, "<{}>: {}", node.name, error.what());
  }
}

// With the expression in front, once: the innermost part is what went wrong.
Result<Value> named(const Expr& expr, Result<Value> computed) {
  if (computed) return computed;
  return failure(computed.error().with_context(expr.text()));
}

}  // namespace

Result<Value> evaluate(const Expr& expr, const Record& record) {
  const Expr::Node& node = expr.node();
  if (node.kind == Kind::kConstant) return node.constant;
  if (node.kind == Kind::kFunction) return call(node, record);
  if (node.kind == Kind::kRoot) {
    return node.name == "R" ? record.returned : (node.name == "M" ? record.metrics : record.config);
  }
  std::vector<Value> parts;
  for (const Expr& part : node.parts) {
    DIVISI_TRY(Value value, evaluate(part, record));
    parts.push_back(std::move(value));
  }
  switch (node.kind) {
    case Kind::kItem: return item(expr, parts[0], parts[1]);
    case Kind::kBinary: return named(expr, apply_binary(node.name, parts[0], parts[1]));
    case Kind::kUnary: return named(expr, apply_unary(node.name, parts[0]));
    case Kind::kMethod: return named(expr, apply_method(node.name, parts[0]));
    default: return is_true(parts[0]) ? parts[1] : parts[2];
  }
}

Expr::Expr(Value constant)
    : Expr(ExprMaker::make(
          {.kind = Kind::kConstant, .name = {}, .constant = std::move(constant), .parts = {}})) {}

Expr Expr::root(char name) {
  return ExprMaker::make(
      {.kind = Kind::kRoot, .name = std::string(1, name), .constant = {}, .parts = {}});
}

Expr Expr::function(std::string name, std::function<Value(const Record&)> function) {
  if (!function) throw UsageError("an expression needs a function that can be called");
  return ExprMaker::make({.kind = Kind::kFunction,
                          .name = std::move(name),
                          .constant = {},
                          .parts = {},
                          .function = std::move(function)});
}

Expr Expr::parse(std::string_view text) {
  Result<Expr> parsed = parse_expr(text);
  if (!parsed) throw_if_failed(parsed.error());
  return *parsed;
}

Expr Expr::operator[](std::string_view key) const {
  return ExprMaker::make(
      {.kind = Kind::kItem, .name = {}, .constant = {}, .parts = {*this, Expr(Value(key))}});
}

Expr Expr::operator[](std::int64_t index) const {
  return ExprMaker::make(
      {.kind = Kind::kItem, .name = {}, .constant = {}, .parts = {*this, Expr(Value(index))}});
}

Expr Expr::method(std::string_view name) const {
  if (!is_method(name)) throw UsageError(fmt::format("an expression has no method {}", name));
  return ExprMaker::make(
      {.kind = Kind::kMethod, .name = std::string(name), .constant = {}, .parts = {*this}});
}

Expr Expr::binary(std::string_view symbol, const Expr& a, const Expr& b) {
  if (precedence(symbol) == 0) throw UsageError(fmt::format("there is no operator {}", symbol));
  return ExprMaker::make(
      {.kind = Kind::kBinary, .name = std::string(symbol), .constant = {}, .parts = {a, b}});
}

Expr Expr::unary(std::string_view symbol, const Expr& a) {
  if (symbol != "+" && symbol != "-" && symbol != "~") {
    throw UsageError(fmt::format("there is no sign {}", symbol));
  }
  return ExprMaker::make(
      {.kind = Kind::kUnary, .name = std::string(symbol), .constant = {}, .parts = {a}});
}

Value Expr::evaluate(const Record& record) const {
  Result<Value> value = tune::evaluate(*this, record);
  if (!value) throw UsageError(value.error().message());
  return *std::move(value);
}

std::string Expr::text() const {
  return print(*this).text;
}

bool Expr::same_as(const Expr& other) const {
  const Node& a = node();
  const Node& b = other.node();
  if (&a == &b) return true;
  const bool alike = a.kind == b.kind && a.name == b.name && a.kind != Kind::kFunction &&
                     a.constant.storage().index() == b.constant.storage().index() &&
                     a.constant == b.constant && a.parts.size() == b.parts.size();
  return alike && std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(),
                             [](const Expr& x, const Expr& y) { return x.same_as(y); });
}

}  // namespace divisi::tune
