// Bodies of the v1alpha1 API: how many workers a coordinator wants, and which of them failed.
//
//   {"namespace": "default", "coordinator": "rl-coordinator",
//    "collectors": {"replicas": 2, "cpus": "500m"}, "learners": {"replicas": 1, "gpus": 2}}
//   {"namespace": "default", "coordinator": "rl-coordinator", "collectors": ["rl-collector-x7k2p"]}
//
// Unknown keys are ignored. Every failure is kInvalid, with one line for the client.
#pragma once

#include "base/status.h"
#include "json/quantity.h"
#include "json/value.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::server::first {

// Of one role in one demand. A job of the second generation has the same limit.
inline constexpr int kMaxReplicas = 10'000;
// Of one learner: each of its processes has a port of its own.
inline constexpr int kMaxGpus = 1024;

// How many of a role, and what each of them gets; 0 keeps what the template says.
struct Size {
  int replicas = 0;
  json::Quantity cpus{};
  json::Quantity memory{};
  int gpus = 0;
};

struct Demand {
  std::string space{};
  std::string coordinator{};         // a pod's name
  std::optional<Size> collectors{};  // absent: the demand says nothing of them
  std::optional<Size> learners{};
};

Result<Demand> read_demand(std::string_view body);
// The size under that key; nothing when it is absent.
Result<std::optional<Size>> read_size(const json::Value& body, std::string_view role);

struct Report {
  std::string space{};
  std::string coordinator{};
  std::vector<std::string> pods{};  // names of pods, each once, of both lists
};

Result<Report> read_report(std::string_view body);

// "rl-learner-x7k2p" of itself, of "rl-learner-x7k2p.default:80" and of that behind "http://".
std::string_view pod_of_url(std::string_view url, std::string_view space);

}  // namespace divisi::server::first
