// resize(): what to write so that a job has more or fewer replicas.
#pragma once

#include "base/status.h"
#include "dijob/job.h"
#include "dijob/pod.h"
#include "json/value.h"
#include "server/job_writer.h"

#include <string>
#include <string_view>

namespace divisi::server {

enum class Direction { kAdd, kDelete };

struct ResizeRequest {
  int by = 0;          // negative: delete
  std::string task{};  // empty: the one that `kubectl scale` changes
};

// The body {"replicas": n, "task": name}. kInvalid unless n is a whole number from 1 on that some
// job could have.
Result<ResizeRequest> read_resize(std::string_view body, Direction direction);

// Tasks form: the replicas of one task in the spec, never below 1. Template form: the wish in the
// status, within minReplicas and maxReplicas. kInvalid when there is no such task, or when a job of
// that size cannot run (dijob::can_run); kConflict when the job as it is now does not allow it.
Result<Patch> resize(const json::Value& object, const dijob::Job& job, const ResizeRequest& request,
                     const dijob::ClusterNames& names);

}  // namespace divisi::server
