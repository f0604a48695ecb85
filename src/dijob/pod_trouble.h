// Why a pod does not start: no node has room for it, or its image cannot be had.
#pragma once

#include "json/value.h"

#include <optional>
#include <string>

namespace divisi::dijob {

struct PodTrouble {
  std::string reason{};  // "Unschedulable", "ImagePull", "Container"
  std::string text{};    // in the words of the scheduler or the kubelet

  friend bool operator==(const PodTrouble&, const PodTrouble&) = default;
};

// Nothing for a pod that runs, has ended, or only takes a moment.
std::optional<PodTrouble> read_trouble(const json::Value& pod);

// The conditions of a pod as caches keep them: types and status, and what read_trouble() tells.
json::Value slim_conditions(const json::Value& status);

}  // namespace divisi::dijob
