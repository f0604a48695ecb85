// Reads an expression: a recursive descent over the Python subset of docs/tuner.md.
#include "tune/expr_node.h"
#include "tune/numbers.h"

#include <array>
#include <cctype>
#include <charconv>

namespace divisi::tune {
namespace {

constexpr std::size_t kMaxText = 10000;
constexpr int kMaxDepth = 100;  // of parentheses and signs: the reader calls itself

class ExprReader {
 public:
  explicit ExprReader(std::string_view text) : text_(text) {}

  Result<Expr> read() {
    if (text_.size() > kMaxText) {
      return failure(Code::kInvalid, "an expression of {} characters; {} are the limit",
                     text_.size(), kMaxText);
    }
    DIVISI_TRY(Expr whole, comparison());
    skip_blanks();
    if (place_ < text_.size()) return problem("unexpected text");
    return whole;
  }

 private:
  using Level = Result<Expr> (ExprReader::*)();

  tl::unexpected<Status> problem(std::string_view what) const {
    return failure(Code::kInvalid, "{} at character {} of the expression {}", what, place_ + 1,
                   text_);
  }

  void skip_blanks() {
    while (place_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[place_])) != 0) {
      ++place_;
    }
  }

  bool take(std::string_view symbol) {
    skip_blanks();
    if (!text_.substr(place_).starts_with(symbol)) return false;
    // "*" is not the beginning of "**", nor "<" of "<=".
    const std::string_view after = text_.substr(place_ + symbol.size());
    if ((symbol == "*" || symbol == "/") && after.starts_with(symbol)) return false;
    if ((symbol == "<" || symbol == ">") && after.starts_with("=")) return false;
    place_ += symbol.size();
    return true;
  }

  template <std::size_t N>
  std::string_view take_any(const std::array<std::string_view, N>& symbols) {
    for (const std::string_view symbol : symbols) {
      if (take(symbol)) return symbol;
    }
    return {};
  }

  // Operators of one level, from the left.
  template <std::size_t N>
  Result<Expr> from_left(Level tighter, const std::array<std::string_view, N>& symbols) {
    DIVISI_TRY(Expr left, (this->*tighter)());
    while (true) {
      const std::string_view symbol = take_any(symbols);
      if (symbol.empty()) return left;
      DIVISI_TRY(const Expr right, (this->*tighter)());
      left = Expr::binary(symbol, left, right);
    }
  }

  Result<Expr> comparison() {
    constexpr std::array<std::string_view, 6> kSymbols{"==", "!=", "<=", ">=", "<", ">"};
    const bool was_logical = std::exchange(logical_, false);
    DIVISI_TRY(Expr left, logical_or());
    const std::string_view symbol = take_any(kSymbols);
    if (symbol.empty()) {
      logical_ = was_logical;
      return left;
    }
    const bool mixed = logical_;
    DIVISI_TRY(const Expr right, logical_or());
    if (mixed || logical_ || !take_any(kSymbols).empty()) {
      return problem(
          "& and | bind tighter than comparisons, and comparisons make no chains: put each one in "
          "parentheses, as in (R['a'] > 1) & (R['b'] > 2);");
    }
    logical_ = was_logical;
    return Expr::binary(symbol, left, right);
  }

  Result<Expr> logical_or() { return noting(&ExprReader::logical_and, "|"); }
  Result<Expr> logical_and() { return noting(&ExprReader::sum, "&"); }

  // As from_left, and remembers that the operator was there outside of parentheses.
  Result<Expr> noting(Level tighter, std::string_view symbol) {
    DIVISI_TRY(Expr left, (this->*tighter)());
    while (take(symbol)) {
      DIVISI_TRY(const Expr right, (this->*tighter)());
      left = Expr::binary(symbol, left, right);
      logical_ = true;
    }
    return left;
  }

  Result<Expr> sum() {
    return from_left(&ExprReader::product, std::array<std::string_view, 2>{"+", "-"});
  }
  Result<Expr> product() {
    return from_left(&ExprReader::sign, std::array<std::string_view, 4>{"*", "//", "/", "%"});
  }

  Result<Expr> sign() {
    const std::string_view symbol = take_any(std::array<std::string_view, 3>{"-", "+", "~"});
    if (symbol.empty()) return power();
    if (++depth_ > kMaxDepth) return problem("too deep");
    DIVISI_TRY(const Expr operand, sign());
    --depth_;
    const bool number = operand.node().kind == Expr::Node::Kind::kConstant &&
                        as_number(operand.node().constant) && symbol == "-";
    if (!number) return Expr::unary(symbol, operand);
    DIVISI_TRY(Value negated, apply_unary("-", operand.node().constant));
    return Expr(std::move(negated));
  }

  Result<Expr> power() {
    DIVISI_TRY(Expr base, with_tail());
    if (!take("**")) return base;
    DIVISI_TRY(const Expr exponent, sign());
    return Expr::binary("**", base, exponent);
  }

  // What follows an atom: [key] and .method().
  Result<Expr> with_tail() {
    DIVISI_TRY(Expr head, atom());
    while (true) {
      if (take("[")) {
        DIVISI_TRY(const Expr key, nested());
        if (!take("]")) return problem("] is missing");
        head = ExprMaker::make(
            {.kind = Expr::Node::Kind::kItem, .name = {}, .constant = {}, .parts = {head, key}});
      } else if (take(".")) {
        const std::string name = word();
        if (!is_method(name) || !take("(") || !take(")")) return problem("not a method");
        head = head.method(name);
      } else {
        return head;
      }
    }
  }

  Result<Expr> nested() {
    if (++depth_ > kMaxDepth) return problem("too deep");
    const bool outside = std::exchange(logical_, false);
    DIVISI_TRY(Expr inner, comparison());
    logical_ = outside;
    --depth_;
    return inner;
  }

  std::string word() {
    const std::size_t start = place_;
    while (place_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[place_])) != 0 || text_[place_] == '_')) {
      ++place_;
    }
    return std::string(text_.substr(start, place_ - start));
  }

  Result<Expr> atom() {
    skip_blanks();
    if (place_ == text_.size()) return problem("something is missing");
    const char first = text_[place_];
    if (take("(")) {
      DIVISI_TRY(Expr inner, nested());
      if (!take(")")) return problem(") is missing");
      return inner;
    }
    if (first == '\'' || first == '"') return string_literal(first);
    if (std::isdigit(static_cast<unsigned char>(first)) != 0 || first == '.') return number();
    const std::string name = word();
    if (name == "R" || name == "M" || name == "C") return Expr::root(name[0]);
    if (name == "True" || name == "False") return Expr(name == "True");
    if (name == "None") return Expr(Value());
    if (name == "log" || name == "exp" || name == "sqrt" || name == "where") return function(name);
    return problem("only R, M, C, literals and the functions of the language are known;");
  }

  Result<Expr> function(const std::string& name) {
    std::vector<Expr> arguments;
    if (!take("(")) return problem("( is missing");
    do {
      DIVISI_TRY(Expr argument, nested());
      arguments.push_back(std::move(argument));
    } while (take(","));
    if (!take(")")) return problem(") is missing");
    if (arguments.size() != (name == "where" ? 3U : 1U))
      return problem("wrong number of arguments");
    if (name != "where") return arguments[0].method(name);
    return ExprMaker::make({.kind = Expr::Node::Kind::kWhere,
                            .name = {},
                            .constant = {},
                            .parts = std::move(arguments)});
  }

  Result<Expr> string_literal(char quote) {
    std::string value;
    for (++place_; place_ < text_.size() && text_[place_] != quote; ++place_) {
      char c = text_[place_];
      if (c == '\\' && place_ + 1 < text_.size()) {
        c = text_[++place_];
        if (c == 'n') c = '\n';
      }
      value += c;
    }
    if (place_ == text_.size()) return problem("the string does not end");
    ++place_;
    return Expr(Value(std::move(value)));
  }

  Result<Expr> number() {
    const char* begin = text_.data() + place_;
    const char* end = text_.data() + text_.size();
    std::int64_t whole = 0;
    const auto as_whole = std::from_chars(begin, end, whole);
    double floating = 0;
    const auto as_floating = std::from_chars(begin, end, floating);
    if (as_floating.ec != std::errc()) return problem("not a number");
    place_ += static_cast<std::size_t>(as_floating.ptr - begin);
    if (as_whole.ec == std::errc() && as_whole.ptr == as_floating.ptr) return Expr(Value(whole));
    return Expr(Value(floating));
  }

  std::string_view text_;
  std::size_t place_ = 0;
  int depth_ = 0;
  bool logical_ = false;  // an & or | was read at this level of parentheses
};

}  // namespace

Result<Expr> parse_expr(std::string_view text) {
  return ExprReader(text).read();
}

}  // namespace divisi::tune
