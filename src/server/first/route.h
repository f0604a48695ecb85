// Route: what a request target of the v1alpha1 API asks about.
//
//   /v1alpha1/replicas     /v1alpha1/replicas?namespace=default&coordinator=rl-coordinator
//   /v1alpha1/replicas/failed
#pragma once

#include "base/status.h"

#include <optional>
#include <string>
#include <string_view>

namespace divisi::server::first {

enum class Subject { kReplicas, kFailed };

// Nothing for any other path; the query does not matter.
std::optional<Subject> find_route(std::string_view target);

std::string_view subject_name(Subject subject);  // for metrics: "first-replicas"

// Absent is empty.
struct Query {
  std::string space{};
  std::string coordinator{};
  std::string aggregator{};
  std::string name{};
};

// Keys in any case. kInvalid: a key that is not one of the four, or a broken percent-encoding.
Result<Query> parse_query(std::string_view target);

}  // namespace divisi::server::first
