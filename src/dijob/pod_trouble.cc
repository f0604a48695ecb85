#include "dijob/pod_trouble.h"

#include "dijob/pod_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace divisi::dijob {
namespace {

constexpr std::size_t kLongestText = 300;
constexpr std::string_view kScheduled = "PodScheduled";

bool is_unschedulable(const json::Value& condition) {
  return condition.string_at({"type"}) == kScheduled &&
         condition.string_at({"status"}) == "False" &&
         condition.string_at({"reason"}) == "Unschedulable";
}

// Empty: it only takes a moment.
std::string_view kind_of_waiting(std::string_view reason) {
  for (const std::string_view image : {"ErrImagePull", "ImagePullBackOff", "InvalidImageName",
                                       "ErrImageNeverPull", "RegistryUnavailable"}) {
    if (reason == image) return "ImagePull";
  }
  for (const std::string_view container :
       {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}) {
    if (reason == container) return "Container";
  }
  return {};
}

}  // namespace

json::Value slim_conditions(const json::Value& status) {
  json::Array slim;
  for (const json::Value& each : elements(status, "conditions")) {
    json::Value& made = slim.emplace_back(json::Object{});
    for (const std::string_view key : {"type", "status"}) {
      if (const json::Value* const member = each.find(key)) made[key] = *member;
    }
    if (!is_unschedulable(each)) continue;
    made["reason"] = each.string_at({"reason"});
    made["message"] = each.string_at({"message"}).substr(0, kLongestText);
  }
  return slim;
}

std::optional<PodTrouble> read_trouble(const json::Value& pod) {
  const std::string_view phase = pod.string_at({"status", "phase"});
  const json::Value* const status = pod.find("status");
  if (status == nullptr || phase == "Succeeded" || phase == "Failed") return std::nullopt;
  for (const json::Value& condition : elements(*status, "conditions")) {
    if (!is_unschedulable(condition)) continue;
    return PodTrouble{"Unschedulable",
                      std::string(condition.string_at({"message"}).substr(0, kLongestText))};
  }
  for (const json::Value& container : elements(*status, "containerStatuses")) {
    const std::string_view reason = container.string_at({"state", "waiting", "reason"});
    const std::string_view kind = kind_of_waiting(reason);
    if (kind.empty()) continue;
    const std::string_view words = container.string_at({"state", "waiting", "message"});
    return PodTrouble{std::string(kind),
                      fmt::format("container {}: {}: {}", container.string_at({"name"}), reason,
                                  words.substr(0, kLongestText))};
  }
  return std::nullopt;
}

}  // namespace divisi::dijob
