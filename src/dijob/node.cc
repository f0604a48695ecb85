#include "dijob/node.h"

#include "dijob/pod_template.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace divisi::dijob {
namespace {

constexpr std::int64_t kDefaultMaxPods = 110;  // a kubelet's, where the node does not say

std::optional<std::int64_t> to_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool has_value(const json::Value& requirement, std::string_view value) {
  return std::ranges::any_of(elements(requirement, "values"), [value](const json::Value& each) {
    return each.as_string() != nullptr && *each.as_string() == value;
  });
}

bool compares(const json::Value& requirement, std::string_view value, bool greater) {
  const json::Array& values = elements(requirement, "values");
  const std::string* text = values.size() == 1 ? values.front().as_string() : nullptr;
  const auto bound = text == nullptr ? std::nullopt : to_number(*text);
  const auto number = to_number(value);
  return bound && number && (greater ? *number > *bound : *number < *bound);
}

// `value` is null where the node has no such label.
bool meets(const json::Value& requirement, const std::string* value) {
  const std::string_view how = requirement.string_at({"operator"});
  if (how == "DoesNotExist") return value == nullptr;
  if (how == "NotIn") return value == nullptr || !has_value(requirement, *value);
  if (value == nullptr) return false;
  if (how == "Exists") return true;
  if (how == "In") return has_value(requirement, *value);
  return (how == "Gt" || how == "Lt") && compares(requirement, *value, how == "Gt");
}

const std::string* label_of(const Node& node, std::string_view key) {
  const json::Value* value = node.object.find_path({"metadata", "labels", key});
  return value == nullptr ? nullptr : value->as_string();
}

bool matches_term(const Node& node, const json::Value& term) {
  const json::Array& labels = elements(term, "matchExpressions");
  const json::Array& fields = elements(term, "matchFields");
  if (labels.empty() && fields.empty()) return false;  // selects nothing, as in the API
  const auto by_label = [&](const json::Value& requirement) {
    return meets(requirement, label_of(node, requirement.string_at({"key"})));
  };
  const auto by_field = [&](const json::Value& requirement) {
    return requirement.string_at({"key"}) == "metadata.name" && meets(requirement, &node.name);
  };
  return std::ranges::all_of(labels, by_label) && std::ranges::all_of(fields, by_field);
}

bool is_selected(const Node& node, const json::Value& pod_spec) {
  const json::Value* selector = pod_spec.find("nodeSelector");
  if (selector != nullptr && selector->as_object() != nullptr) {
    for (const auto& [key, value] : *selector->as_object()) {
      const std::string* label = label_of(node, key);
      if (label == nullptr || value.as_string() == nullptr || *label != *value.as_string())
        return false;
    }
  }
  const json::Value* required = pod_spec.find_path(
      {"affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"});
  if (required == nullptr || required->is_null()) return true;
  return std::ranges::any_of(elements(*required, "nodeSelectorTerms"),
                             [&](const json::Value& term) { return matches_term(node, term); });
}

bool tolerates(const json::Value& toleration, const json::Value& taint) {
  const std::string_view effect = toleration.string_at({"effect"});
  if (!effect.empty() && effect != taint.string_at({"effect"})) return false;
  const std::string_view key = toleration.string_at({"key"});
  const bool any_value = toleration.string_at({"operator"}) == "Exists";
  if (key.empty()) return any_value;
  if (key != taint.string_at({"key"})) return false;
  return any_value || toleration.string_at({"value"}) == taint.string_at({"value"});
}

bool is_tolerated(const json::Value& taint, const json::Value& pod_spec) {
  const std::string_view effect = taint.string_at({"effect"});
  if (effect != "NoSchedule" && effect != "NoExecute") return true;
  return std::ranges::any_of(elements(pod_spec, "tolerations"),
                             [&](const json::Value& each) { return tolerates(each, taint); });
}

bool has_taint(const json::Value& object, std::string_view key) {
  const json::Value* spec = object.find("spec");
  return spec != nullptr &&
         std::ranges::any_of(elements(*spec, "taints"), [key](const json::Value& taint) {
           return taint.string_at({"key"}) == key;
         });
}

bool is_ready(const json::Value& object) {
  const json::Value* status = object.find("status");
  if (status == nullptr) return true;
  const json::Array& conditions = elements(*status, "conditions");
  const auto is_it = [](const json::Value& each) { return each.string_at({"type"}) == "Ready"; };
  const auto ready = std::ranges::find_if(conditions, is_it);
  return ready == conditions.end() || ready->string_at({"status"}) == "True";
}

}  // namespace

Node read_node(const json::Value& object) {
  Node node;
  node.name = object.string_at({"metadata", "name"});
  node.free = read_amounts(object.find_path({"status", "allocatable"}));
  node.free.emplace("pods", json::Quantity(kDefaultMaxPods));
  node.object = object;
  node.alive = is_ready(object) && object.string_at({"metadata", "deletionTimestamp"}).empty();
  node.open = node.alive && !object.bool_at({"spec", "unschedulable"}).value_or(false);
  return node;
}

bool is_unreachable(const json::Value& node) {
  return has_taint(node, "node.kubernetes.io/unreachable");
}

bool is_out_of_service(const json::Value& node) {
  return has_taint(node, "node.kubernetes.io/out-of-service");
}

bool admits(const Node& node, const json::Value& pod_spec) {
  if (!is_selected(node, pod_spec)) return false;
  const json::Value* spec = node.object.find("spec");
  return spec == nullptr ||
         std::ranges::all_of(elements(*spec, "taints"), [&](const json::Value& taint) {
           return is_tolerated(taint, pod_spec);
         });
}

}  // namespace divisi::dijob
