// The inside of an expression.
#pragma once

#include "base/status.h"
#include "divisi/tune.h"

#include <memory>
#include <string>
#include <vector>

namespace divisi::tune {

struct Expr::Node {
  enum class Kind { kRoot, kConstant, kItem, kBinary, kUnary, kMethod, kWhere, kFunction };
  Kind kind = Kind::kConstant;
  std::string name;  // root, symbol, method, function
  Value constant;
  std::vector<Expr> parts;
  std::function<Value(const Record&)> function = nullptr;
};

// Makes expressions of nodes; for expr.cc and the parser.
struct ExprMaker {
  static Expr make(Expr::Node node) {
    return Expr(std::make_shared<const Expr::Node>(std::move(node)));
  }
};

Result<Value> evaluate(const Expr& expr, const Record& record);
Result<Expr> parse_expr(std::string_view text);

}  // namespace divisi::tune
