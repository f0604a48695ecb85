// Label selectors from their text and from their object form.
#include "json/label_integer.h"
#include "json/selector.h"

#include <algorithm>
#include <optional>
#include <tuple>

namespace divisi::json {
namespace {

using Operator = LabelSelector::Operator;
using Requirement = LabelSelector::Requirement;

// More than a URL holds; bounds the work on a text from outside.
constexpr std::size_t kMaxText = std::size_t{64} << 10;

// Sorts, drops what is there twice, and checks what the API server checks.
Status check_requirement(Requirement& requirement) {
  DIVISI_TRY_STATUS(check_label_key(requirement.key));
  for (const std::string& value : requirement.values) {
    DIVISI_TRY_STATUS(check_label_value(value).with_context(
        fmt::format("the value for label \"{}\"", requirement.key)));
  }
  const bool compares = requirement.op == Operator::kGreater || requirement.op == Operator::kLess;
  if (compares && !label_integer(requirement.values.front())) {
    return make_status(Code::kInvalid, R"(label "{}" is compared with "{}", which is no integer)",
                       requirement.key, requirement.values.front());
  }
  auto& values = requirement.values;
  std::ranges::sort(values);
  const auto repeated = std::ranges::unique(values);
  values.erase(repeated.begin(), repeated.end());
  return {};
}

// Requirements in the one order that makes equal selectors equal.
void sort_requirements(std::vector<Requirement>& requirements) {
  std::ranges::sort(requirements, [](const Requirement& a, const Requirement& b) {
    return std::tie(a.key, a.op, a.values) < std::tie(b.key, b.op, b.values);
  });
}

// Words and signs of the text form.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool at_end() {
    skip_space();
    return rest_.empty();
  }

  bool accept(std::string_view sign) {
    skip_space();
    if (!rest_.starts_with(sign)) return false;
    rest_.remove_prefix(sign.size());
    return true;
  }

  bool accept_word(std::string_view expected) {
    const std::string_view before = rest_;
    if (word() == expected) return true;
    rest_ = before;
    return false;
  }

  // Everything up to a sign or white space; may be empty.
  std::string_view word() {
    skip_space();
    const std::string_view found = rest_.substr(0, rest_.find_first_of("=!(),<> \t\r\n"));
    rest_.remove_prefix(found.size());
    return found;
  }

  std::string_view rest() const { return rest_; }

 private:
  void skip_space() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }

  std::string_view rest_;
};

class SelectorParser {
 public:
  explicit SelectorParser(std::string_view text) : text_(text), scanner_(text) {}

  Result<std::vector<Requirement>> parse() {
    std::vector<Requirement> requirements;
    if (scanner_.at_end()) return requirements;
    do {
      DIVISI_TRY(Requirement requirement, parse_requirement());
      if (const Status status = check_requirement(requirement); !status.ok()) {
        return failure(status.with_context(fmt::format("label selector \"{}\"", text_)));
      }
      requirements.push_back(std::move(requirement));
    } while (scanner_.accept(","));
    if (!scanner_.at_end()) return unexpected("a comma or the end");
    return requirements;
  }

 private:
  Result<Requirement> parse_requirement() {
    const bool negated = scanner_.accept("!");
    Requirement requirement{std::string(scanner_.word()), Operator::kExists, {}};
    if (requirement.key.empty()) return unexpected("the name of a label");
    if (negated) {
      requirement.op = Operator::kDoesNotExist;
    } else if (scanner_.accept_word("in")) {
      requirement.op = Operator::kIn;
      DIVISI_TRY(requirement.values, parse_set());
    } else if (scanner_.accept_word("notin")) {
      requirement.op = Operator::kNotIn;
      DIVISI_TRY(requirement.values, parse_set());
    } else if (const auto op = parse_sign()) {
      requirement.op = *op;
      requirement.values.emplace_back(scanner_.word());
    }
    return requirement;
  }

  std::optional<Operator> parse_sign() {
    if (scanner_.accept("==") || scanner_.accept("=")) return Operator::kIn;
    if (scanner_.accept("!=")) return Operator::kNotIn;
    if (scanner_.accept(">")) return Operator::kGreater;
    if (scanner_.accept("<")) return Operator::kLess;
    return std::nullopt;
  }

  // "(x,y)"; a place without a word is the empty value.
  Result<std::vector<std::string>> parse_set() {
    if (!scanner_.accept("(")) return unexpected("(");
    std::vector<std::string> values;
    do {
      values.emplace_back(scanner_.word());
    } while (scanner_.accept(","));
    if (!scanner_.accept(")")) return unexpected(")");
    return values;
  }

  tl::unexpected<Status> unexpected(std::string_view wanted) const {
    return failure(Code::kInvalid, "label selector \"{}\": expected {} at character {}", text_,
                   wanted, text_.size() - scanner_.rest().size() + 1);
  }

  std::string_view text_;
  Scanner scanner_;
};

Result<Requirement> read_expression(const Value& expression) {
  Requirement requirement{std::string(expression.string_at({"key"})), Operator::kExists, {}};
  const std::string_view op = expression.string_at({"operator"});
  if (op == "In") {
    requirement.op = Operator::kIn;
  } else if (op == "NotIn") {
    requirement.op = Operator::kNotIn;
  } else if (op == "DoesNotExist") {
    requirement.op = Operator::kDoesNotExist;
  } else if (op != "Exists") {
    return failure(Code::kInvalid,
                   R"(the operator "{}" for label "{}" is not In, NotIn, Exists or DoesNotExist)",
                   op, requirement.key);
  }
  const Value* list = expression.find("values");
  if (list != nullptr && !list->is_null()) {
    if (list->as_array() == nullptr) {
      return failure(Code::kInvalid, "the values for label \"{}\" are no array", requirement.key);
    }
    for (const Value& value : *list->as_array()) {
      if (value.as_string() == nullptr) {
        return failure(Code::kInvalid, "a value for label \"{}\" is {}, not a string",
                       requirement.key, value.kind());
      }
      requirement.values.push_back(*value.as_string());
    }
  }
  const bool needs_values = requirement.op == Operator::kIn || requirement.op == Operator::kNotIn;
  if (needs_values == requirement.values.empty()) {
    return failure(Code::kInvalid, "the operator {} for label \"{}\" needs {}", op, requirement.key,
                   needs_values ? "values" : "no values");
  }
  return requirement;
}

}  // namespace

Result<LabelSelector> LabelSelector::parse(std::string_view text) {
  if (text.size() > kMaxText) {
    return failure(Code::kInvalid, "a label selector of {} bytes; at most {} are read", text.size(),
                   kMaxText);
  }
  LabelSelector selector;
  DIVISI_TRY(selector.requirements_, SelectorParser(text).parse());
  sort_requirements(selector.requirements_);
  return selector;
}

Result<LabelSelector> LabelSelector::from_object(const Value& object) {
  LabelSelector selector;
  selector.nothing_ = object.is_null();
  if (selector.nothing_) return selector;
  if (object.as_object() == nullptr) {
    return failure(Code::kInvalid, "a label selector is an object, not {}", object.kind());
  }
  const Value* labels = object.find("matchLabels");
  if (labels != nullptr && !labels->is_null()) {
    if (labels->as_object() == nullptr) {
      return failure(Code::kInvalid, "matchLabels is {}, not an object", labels->kind());
    }
    for (const auto& [key, value] : *labels->as_object()) {
      if (value.as_string() == nullptr) {
        return failure(Code::kInvalid, "matchLabels has {}, not a string, for \"{}\"", value.kind(),
                       key);
      }
      selector.requirements_.push_back({key, Operator::kIn, {*value.as_string()}});
    }
  }
  const Value* expressions = object.find("matchExpressions");
  if (expressions != nullptr && !expressions->is_null()) {
    if (expressions->as_array() == nullptr) {
      return failure(Code::kInvalid, "matchExpressions is {}, not an array", expressions->kind());
    }
    for (const Value& expression : *expressions->as_array()) {
      DIVISI_TRY(Requirement requirement, read_expression(expression));
      selector.requirements_.push_back(std::move(requirement));
    }
  }
  for (Requirement& requirement : selector.requirements_) {
    if (const Status status = check_requirement(requirement); !status.ok()) {
      return failure(status.with_context("label selector"));
    }
  }
  sort_requirements(selector.requirements_);
  return selector;
}

}  // namespace divisi::json
