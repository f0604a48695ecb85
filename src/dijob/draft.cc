#include "dijob/draft.h"

#include "json/patch.h"
#include "kube/time.h"

#include <fmt/format.h>

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

Draft::Draft(const json::Value& object, const PhaseRules& rules, WallTime now)
    : before_(status_of(object)),
      read_(read_job_status(object)),
      status_(read_),
      rules_(rules),
      now_(now),
      generation_(object.int_at({"metadata", "generation"}).value_or(0)) {}

std::string Draft::now() const {
  return kube::rfc3339(now_);
}

json::Value* Draft::find_condition(std::string_view type) {
  const auto found = std::ranges::find_if(status_.conditions, [&](const json::Value& each) {
    return each.string_at({"type"}) == type;
  });
  return found == status_.conditions.end() ? nullptr : &*found;
}

void Draft::enter(std::string_view phase, std::string message) {
  if (this->phase() == phase) return;
  status_.phase = phase;
  json::Array& all = status_.conditions;
  std::erase_if(all, [&](const json::Value& each) { return each.string_at({"type"}) == phase; });
  if (rules_.one_holds) {
    for (json::Value& each : all) {
      if (is_phase(each.string_at({"type"}))) each["status"] = "False";
    }
  } else if (json::Value* const running = terminal() ? find_condition(kRunning) : nullptr) {
    (*running)["status"] = "False";
    (*running)["lastUpdateTime"] = now();
    (*running)["lastTransitionTime"] = now();
  }
  json::Value condition;
  condition["type"] = phase;
  condition["status"] = "True";
  condition["reason"] = fmt::format("{}{}", rules_.reason, phase);
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
    condition = &status_.conditions.emplace_back(json::Object{});
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

void Draft::tell_waiting(const std::vector<WaitingPod>& pods) {
  constexpr std::string_view kType = "PodsWaiting";
  if (pods.empty()) {
    if (holds(kType)) set_condition(kType, false, "PodsStarted", "");
    return;
  }
  const json::Value* const told = find_condition(kType);
  if (told != nullptr && holds(kType) && std::ranges::any_of(pods, [&](const WaitingPod& each) {
        return told->string_at({"reason"}) == each.trouble.reason;
      })) {
    return;
  }
  const WaitingPod& first = pods.front();
  set_condition(kType, true, first.trouble.reason,
                fmt::format("pod {} does not start: {}", first.name, first.trouble.text));
}

bool Draft::holds(std::string_view type) const {
  return std::ranges::any_of(status_.conditions, [&](const json::Value& each) {
    return each.string_at({"type"}) == type && each.string_at({"status"}) == "True";
  });
}

bool Draft::knows(std::string_view type) const {
  return std::ranges::any_of(status_.conditions, [&](const json::Value& each) {
    return each.string_at({"type"}) == type;
  });
}

json::Value Draft::value() const {
  return write_job_status(status_, read_, before_);
}

bool Draft::differs() const {
  return !json::equivalent(before_, value());
}

bool Draft::differs_in_more_than_counts() const {
  json::Value before = before_;
  json::Value after = value();
  erase_counts(before);
  erase_counts(after);
  return !json::equivalent(before, after);
}

json::Value Draft::changes() const {
  return json::make_merge_patch(before_, value());
}

}  // namespace divisi::dijob
