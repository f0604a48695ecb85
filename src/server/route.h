// Route: what a request target of the v2alpha1 API asks about.
//
//   /v2alpha1/job/<id>/replicas     /v2alpha1/job/<space>/<name>/members /v2alpha1/<id>/profilings
#pragma once

#include "server/job_id.h"

namespace divisi::server {

enum class Subject { kReplicas, kProfilings, kMembers, kTrial };

struct Route {
  Subject subject{};
  JobId id{};
  bool watch = false;  // ?watch=true
};

// kNotFound: there is no such route. kInvalid: there is, but the id is none.
Result<Route> parse_route(std::string_view target);

std::string_view subject_name(Subject subject);  // "replicas"

}  // namespace divisi::server
