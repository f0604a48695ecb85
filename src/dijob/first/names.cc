#include "dijob/first/names.h"

#include "dijob/names.h"

#include <fmt/format.h>

#include <algorithm>

namespace divisi::dijob::first {
namespace {

// The letters and digits of which Kubernetes makes name suffixes: no vowels, no look-alikes.
constexpr std::string_view kAlphabet = "bcdfghjklmnpqrstvwxz2456789";
constexpr std::size_t kSuffix = 5;

std::string suffix_of(std::uint64_t random) {
  std::string text;
  for (std::size_t i = 0; i < kSuffix; ++i) {
    text += kAlphabet[random % kAlphabet.size()];
    random /= kAlphabet.size();
  }
  return text;
}

// "<job>-<role>" of "<job>-<role>-<five characters>"; other names as they are.
std::string_view without_suffix(std::string_view pod) {
  const std::size_t dash = pod.rfind('-');
  const bool has_suffix =
      dash != std::string_view::npos && pod.size() - dash - 1 == kSuffix &&
      pod.substr(dash + 1).find_first_not_of(kAlphabet) == std::string_view::npos;
  return has_suffix ? pod.substr(0, dash) : pod;
}

}  // namespace

const kube::Resource& aggregator_configs() {
  static const kube::Resource resource{std::string(kGroup), "v1alpha1", "aggregatorconfigs",
                                       "AggregatorConfig",  true,       {"agconfig"}};
  return resource;
}

std::string_view role_name(Role role) {
  switch (role) {
    case Role::kCoordinator: return "coordinator";
    case Role::kCollector: return "collector";
    case Role::kLearner: return "learner";
    case Role::kAggregator: return "aggregator";
    case Role::kDdpLearner: return "ddp-learner";
  }
  return {};
}

std::optional<Role> find_role(std::string_view name) {
  for (const Role role : kRoles) {
    if (role_name(role) == name) return role;
  }
  return std::nullopt;
}

std::string_view status_key(Role role) {
  switch (role) {
    case Role::kCoordinator: return "Coordinator";
    case Role::kCollector: return "Collector";
    case Role::kLearner: return "Learner";
    case Role::kAggregator: return "Aggregator";
    case Role::kDdpLearner: return {};
  }
  return {};
}

std::string_view port_variable(Role role) {
  switch (role) {
    case Role::kCoordinator: return "COORDINATOR_PORT";
    case Role::kCollector: return "COLLECTOR_PORT";
    case Role::kLearner:
    case Role::kDdpLearner: return "LEARNER_PORT";
    case Role::kAggregator: return "AGGREGATOR_PORT";
  }
  return {};
}

int default_port(Role role) {
  switch (role) {
    case Role::kCollector: return 22270;
    case Role::kLearner:
    case Role::kDdpLearner: return 22271;
    case Role::kAggregator: return 22272;
    case Role::kCoordinator: return 22273;
  }
  return 0;
}

std::string job_label(std::string_view job) {
  std::string value(job);
  std::ranges::replace(value, '/', '-');
  return value;
}

std::string fixed_pod_name(std::string_view job, Role role) {
  return fmt::format("{}-{}", job, role_name(role));
}

std::string random_pod_name(std::string_view job, Role role, std::uint64_t random) {
  return fmt::format("{}-{}-{}", job, role_name(role), suffix_of(random));
}

std::optional<Role> role_of_name(std::string_view job, std::string_view pod) {
  const std::string_view base = without_suffix(pod);
  const bool is_of_job = base.size() < pod.size() && base.size() > job.size() &&
                         base.starts_with(job) && base[job.size()] == '-';
  return is_of_job ? find_role(base.substr(job.size() + 1)) : std::nullopt;
}

std::string renamed(std::string_view pod, std::uint64_t random) {
  return fmt::format("{}-{}", without_suffix(pod), suffix_of(random));
}

}  // namespace divisi::dijob::first
