#include "dijob/draft.h"

#include "kube/time.h"

#include <algorithm>
#include <array>
#include <utility>

namespace divisi::dijob {
namespace {

using namespace phases;
constexpr std::array kPhases{kPending,      kStarting,  kRunning, kRestarting,
                             kRescheduling, kSucceeded, kFailed};

bool is_phase(std::string_view type) {
  return std::ranges::find(kPhases, type) != kPhases.end();
}

json::Value status_of(const json::Value& object) {
  const json::Value* const status = object.find("status");
  return status != nullptr && status->as_object() != nullptr ? *status
                                                             : json::Value(json::Object{});
}

}  // namespace

Draft::Draft(const json::Value& object, WallTime now)
    : before_(status_of(object)),
      value_(before_),
      now_(now),
      generation_(object.int_at({"metadata", "generation"}).value_or(0)) {}

std::string Draft::now() const {
  return kube::rfc3339(now_);
}

json::Array& Draft::conditions() {
  json::Value& list = value_["conditions"];
  if (list.as_array() == nullptr) list = json::Array{};
  return *list.as_array();
}

json::Value* Draft::find_condition(std::string_view type) {
  for (json::Value& each : conditions()) {
    if (each.string_at({"type"}) == type) return &each;
  }
  return nullptr;
}

void Draft::enter(std::string_view phase, std::string message) {
  if (this->phase() == phase) return;
  value_["phase"] = phase;
  json::Array& all = conditions();
  std::erase_if(all, [&](const json::Value& each) { return each.string_at({"type"}) == phase; });
  for (json::Value& each : all) {
    if (is_phase(each.string_at({"type"}))) each["status"] = "False";
  }
  json::Value condition;
  condition["type"] = phase;
  condition["status"] = "True";
  condition["reason"] = "Job" + std::string(phase);
  condition["message"] = std::move(message);
  condition["lastUpdateTime"] = now();
  condition["lastTransitionTime"] = now();
  condition["observedGeneration"] = generation_;
  all.push_back(std::move(condition));
}

void Draft::set_condition(std::string_view type, bool holds, std::string_view reason,
                          std::string message) {
  const std::string_view status = holds ? "True" : "False";
  json::Value* condition = find_condition(type);
  if (condition == nullptr) {
    conditions().emplace_back(json::Object{});
    condition = &conditions().back();
    (*condition)["type"] = type;
  }
  const bool turned = condition->string_at({"status"}) != status;
  if (!turned && condition->string_at({"reason"}) == reason &&
      condition->string_at({"message"}) == message) {
    return;
  }
  (*condition)["status"] = status;
  (*condition)["reason"] = reason;
  (*condition)["message"] = std::move(message);
  (*condition)["lastUpdateTime"] = now();
  if (turned) (*condition)["lastTransitionTime"] = now();
  (*condition)["observedGeneration"] = generation_;
}

bool Draft::holds(std::string_view type) const {
  const json::Value* const list = value_.find("conditions");
  if (list == nullptr || list->as_array() == nullptr) return false;
  return std::ranges::any_of(*list->as_array(), [&](const json::Value& each) {
    return each.string_at({"type"}) == type && each.string_at({"status"}) == "True";
  });
}

int Draft::number(std::string_view field) const {
  return static_cast<int>(
      std::clamp<std::int64_t>(value_.int_at({field}).value_or(0), 0, 1'000'000'000));
}

std::optional<WallTime> Draft::time(std::string_view field) const {
  return kube::parse_time(value_.string_at({field}));
}

void Draft::set_time(std::string_view field, WallTime when) {
  value_[field] = kube::rfc3339(when);
}

bool Draft::differs() const {
  return !json::equivalent(before_, value_);
}

bool Draft::differs_in_more_than_counts() const {
  json::Value before = before_;
  json::Value after = value_;
  for (json::Value* const each : {&before, &after}) {
    for (const std::string_view count :
         {"readyReplicas", "scaledReplicas", "taskStatus", "succeeded", "observedGeneration"}) {
      each->erase(count);
    }
  }
  return !json::equivalent(before, after);
}

}  // namespace divisi::dijob
