// What a label selector selects, and its canonical text.
#include "json/label_integer.h"
#include "json/selector.h"

#include <algorithm>
#include <optional>

namespace divisi::json {
namespace {

using Operator = LabelSelector::Operator;
using Requirement = LabelSelector::Requirement;

// `find` gives the value of a label, or nothing.
template <class Find>
bool holds(const Requirement& requirement, const Find& find) {
  const std::optional<std::string_view> value = find(requirement.key);
  const auto is_listed = [&] { return std::ranges::binary_search(requirement.values, *value); };
  switch (requirement.op) {
    case Operator::kExists: return value.has_value();
    case Operator::kDoesNotExist: return !value;
    case Operator::kIn: return value && is_listed();
    case Operator::kNotIn: return !value || !is_listed();
    case Operator::kGreater:
    case Operator::kLess: break;
  }
  const auto left = value ? label_integer(*value) : std::nullopt;
  const auto right = label_integer(requirement.values.front());
  if (!left || !right) return false;
  return requirement.op == Operator::kGreater ? *left > *right : *left < *right;
}

std::string print_requirement(const Requirement& requirement) {
  const auto& [key, op, values] = requirement;
  switch (op) {
    case Operator::kExists: return key;
    case Operator::kDoesNotExist: return "!" + key;
    case Operator::kGreater: return key + ">" + values.front();
    case Operator::kLess: return key + "<" + values.front();
    case Operator::kIn:
    case Operator::kNotIn: break;
  }
  const bool in = op == Operator::kIn;
  if (values.size() == 1) return key + (in ? "=" : "!=") + values.front();
  return fmt::format("{} {} ({})", key, in ? "in" : "notin", fmt::join(values, ","));
}

}  // namespace

bool LabelSelector::matches(const Labels& labels) const {
  const auto find = [&](std::string_view key) -> std::optional<std::string_view> {
    const auto found = labels.find(key);
    return found == labels.end() ? std::nullopt : std::optional<std::string_view>(found->second);
  };
  return !nothing_ &&
         std::ranges::all_of(requirements_, [&](const auto& each) { return holds(each, find); });
}

bool LabelSelector::matches(const Value& labels) const {
  const auto find = [&](std::string_view key) -> std::optional<std::string_view> {
    const Value* found = labels.find(key);
    if (found == nullptr || found->as_string() == nullptr) return std::nullopt;
    return *found->as_string();
  };
  return !nothing_ &&
         std::ranges::all_of(requirements_, [&](const auto& each) { return holds(each, find); });
}

std::string LabelSelector::to_string() const {
  std::string out;
  for (const Requirement& requirement : requirements_) {
    if (!out.empty()) out += ',';
    out += print_requirement(requirement);
  }
  return out;
}

}  // namespace divisi::json
