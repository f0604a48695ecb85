// JobId: which job a request is about, in every form that clients write.
//
//   "default.cartpole"      "default.cartpole.3"      "default/cartpole"
//
// The third part is the generation of a template form's gang: a worker of an earlier gang is told
// so. Jobs of the tasks form have none, and what is written there is ignored.
#pragma once

#include "base/status.h"
#include "dijob/job.h"
#include "json/value.h"

#include <optional>
#include <string>
#include <string_view>

namespace divisi::server {

struct JobId {
  std::string space{};
  std::string name{};
  std::optional<std::string> generation{};

  std::string key() const;  // "space/name", as caches have it
};

// `text` is decoded already. kInvalid for what no job can be named.
Result<JobId> parse_job_id(std::string_view text);

// Whether the job that was found is of the generation asked for.
Status check_generation(const JobId& id, const dijob::Job& job, const json::Value& object);

// The generation of a template form's gang that runs now.
std::int64_t current_generation(const json::Value& object);

}  // namespace divisi::server
