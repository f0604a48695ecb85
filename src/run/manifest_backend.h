// A DIJob of a manifest on this machine: `divisi run job.yaml --backend local`. The operator's plan
// decides, in the supervisor (apps/divisi/manifest_supervisor.h), which knows src/local; this side
// knows the manifest's name, the record, the log, and a socket on which the supervisor answers the
// Kubernetes API of that job.
#pragma once

#include "run/backend.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace divisi::run {

inline constexpr const char* kManifestSupervisorCommand = "manifest-supervisor";
inline constexpr const char* kManifestFile = "manifest.yaml";  // in the job's folder: the text

// JOB_FOLDER/plan.json of such a job.
struct ManifestPlan {
  std::string file{};    // as it was typed: for messages
  std::string folder{};  // absolute: for logs and volumes
  std::string guard{};   // divisi-trial, around the containers
  std::optional<std::chrono::milliseconds> timeout{};
};
json::Value to_json(const ManifestPlan& plan);
Result<ManifestPlan> manifest_plan_from(const json::Value& value);

std::unique_ptr<Backend> make_manifest_backend();

}  // namespace divisi::run
