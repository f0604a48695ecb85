// Names, labels, annotations and variables of DIJobs: one place for every word that others read.
#pragma once

#include "kube/resource.h"

#include <string>
#include <string_view>

namespace divisi::dijob {

inline constexpr std::string_view kGroup = "diengine.opendilab.org";
inline constexpr std::string_view kVersion = "v2alpha1";
const kube::Resource& dijobs();     // diengine.opendilab.org/v2alpha1
const kube::Resource& revisions();  // apps/v1 ControllerRevision: specs that were good
inline constexpr std::string_view kFieldManager = "di-operator";

namespace labels {
inline constexpr std::string_view kOperator = "diengine/operator";
inline constexpr std::string_view kOperatorValue = "di-operator";
inline constexpr std::string_view kJob = "diengine/job";
inline constexpr std::string_view kTaskType = "diengine/task-type";
inline constexpr std::string_view kTaskName = "diengine/task-name";
inline constexpr std::string_view kPod = "diengine/pod";
inline constexpr std::string_view kGroupLabel = "diengine/group";
inline constexpr std::string_view kRankLabel = "diengine/rank";  // template form
}  // namespace labels

namespace annotations {
inline constexpr std::string_view kReplicas = "diengine/replicas";
inline constexpr std::string_view kRank = "diengine/rank";
inline constexpr std::string_view kTaskRank = "diengine/task-rank";
inline constexpr std::string_view kNode = "diengine/node";
inline constexpr std::string_view kGeneration = "diengine/generation";
inline constexpr std::string_view kTemplate =
    "divisi/template";  // hash of what the pod was made of
inline constexpr std::string_view kRestarts = "divisi/restarts";  // of the job when it was made
inline constexpr std::string_view kRestartedAt = "diengine/restartedAt";
}  // namespace annotations

inline constexpr int kDefaultPort = 22270;
inline constexpr std::string_view kPortName = "di-port";
inline constexpr std::string_view kMainContainer = "di-container";
inline constexpr std::string_view kSecretVolume = "divisi-job-secret";
// Of the operator itself, in its own name space.
inline constexpr std::string_view kKeySecret = "di-operator-secret-key";
inline constexpr std::string_view kSecretFolder = "/var/run/divisi/job";
inline constexpr std::string_view kSecretFile = "/var/run/divisi/job/secret";

}  // namespace divisi::dijob
