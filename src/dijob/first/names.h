// Names, labels and ports of first-generation (v1alpha1) DIJobs: the words that others read.
#pragma once

#include "kube/resource.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace divisi::dijob::first {

inline constexpr std::string_view kApiVersion = "diengine.opendilab.org/v1alpha1";
const kube::Resource& aggregator_configs();

// What a pod of such a job does. A DDP learner is one pod of a logical learner behind an
// aggregator.
enum class Role { kCoordinator, kCollector, kLearner, kAggregator, kDdpLearner };
inline constexpr Role kRoles[] = {Role::kCoordinator, Role::kCollector, Role::kLearner,
                                  Role::kAggregator, Role::kDdpLearner};

std::string_view role_name(Role role);  // "ddp-learner": label value and part of pod names
std::optional<Role> find_role(std::string_view name);
std::string_view status_key(Role role);     // of status.replicaStatus: "Coordinator"; DDP: ""
std::string_view port_variable(Role role);  // "COLLECTOR_PORT"
int default_port(Role role);

namespace labels {
inline constexpr std::string_view kGroup = "group-name";
inline constexpr std::string_view kGroupValue = "diengine.opendilab.org";
inline constexpr std::string_view kJob = "dijob-name";
inline constexpr std::string_view kController = "controller-name";
inline constexpr std::string_view kControllerValue = "di-operator";
inline constexpr std::string_view kRole = "replica-type";
inline constexpr std::string_view kPod = "pod-name";
inline constexpr std::string_view kDdp = "ddp-learner-type";
inline constexpr std::string_view kDdpMaster = "ddp-learner-master";
inline constexpr std::string_view kDdpWorker = "ddp-learner-worker";
}  // namespace labels

// Selects the pods and services of all first-generation jobs.
inline constexpr std::string_view kSelector =
    "group-name=diengine.opendilab.org,controller-name=di-operator";

namespace annotations {
// On a worker: the uid of the coordinator pod that asked for it.
inline constexpr std::string_view kCoordinatorUid = "divisi/coordinator-uid";
// On a DDP learner: the uid of its aggregator. The collector of garbage takes the reference to an
// aggregator that is gone out of the pods that the job owns as well.
inline constexpr std::string_view kAggregatorUid = "divisi/aggregator-uid";
// On a job: "true" lets the operator create the aggregator together with the coordinator.
inline constexpr std::string_view kAggregatorAtStart = "diengine/aggregator-at-start";
}  // namespace annotations

inline constexpr std::string_view kGpu = "nvidia.com/gpu";
inline constexpr int kMasterPort = 10314;  // where the ranks of a DDP group meet
inline constexpr std::string_view kMasterPortName = "master-port";
inline constexpr std::string_view kGpuPortPrefix = "gpu-port-";

// The value of the label `dijob-name`.
std::string job_label(std::string_view job);
// "<job>-coordinator", "<job>-aggregator": the pods with fixed names.
std::string fixed_pod_name(std::string_view job, Role role);
// "<job>-<role>-<five characters>". `random` should be uniform; about 23 of its bits are used.
std::string random_pod_name(std::string_view job, Role role, std::uint64_t random);
// The role in such a name; nothing for other names.
std::optional<Role> role_of_name(std::string_view job, std::string_view pod);
// The same base with another suffix, for a pod that takes the place of `pod`.
std::string renamed(std::string_view pod, std::uint64_t random);

}  // namespace divisi::dijob::first
