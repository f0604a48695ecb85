#include "server/resize.h"

#include "dijob/job_status.h"
#include "dijob/sizes.h"
#include "server/body.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace divisi::server {
namespace {

using dijob::kMaxReplicas;

struct Bounds {
  std::int64_t least = 1;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};

Result<std::int64_t> moved(std::string_view what, std::int64_t from, int by, Bounds bounds) {
  const std::int64_t to = from + by;
  if (to < bounds.least) {
    return failure(Code::kConflict, "{} has {} replicas: {} cannot be deleted, at least {} stay",
                   what, from, -by, bounds.least);
  }
  if (to > bounds.most) {
    return failure(Code::kConflict,
                   "{} has {} replicas: {} cannot be added, at most {} are allowed", what, from, by,
                   bounds.most);
  }
  return to;
}

Result<const dijob::Task*> choose(const dijob::Job& job, const std::string& name) {
  if (!name.empty()) {
    if (const dijob::Task* task = job.find_task(name)) return task;
    return failure(Code::kInvalid, "job {}/{} has no task named {}", job.space, job.name, name);
  }
  if (const dijob::Task* task = dijob::scaled_task(job)) return task;
  return failure(Code::kInvalid,
                 "job {}/{} has several tasks and none of type collector: say which with task",
                 job.space, job.name);
}

// The size a task is meant to have: `kubectl scale` writes spec.replicas, which the operator may
// not have seen yet.
std::int64_t present_size(const json::Value& object, const dijob::Job& job, const dijob::Task& task,
                          const dijob::ClusterNames& names) {
  if (&task != dijob::scaled_task(job)) return task.replicas;
  const auto last = dijob::read_job_status(object).sizes;
  return dijob::choose_size(job, last, false, names).size;
}

// In the words of the operator, which would refuse it later.
Status check_size(const dijob::Job& job, std::size_t task, std::int64_t to,
                  const dijob::ClusterNames& names) {
  if (to > kMaxReplicas) {
    return make_status(Code::kInvalid, "the job asks for {} replicas; more than {} are refused", to,
                       kMaxReplicas);
  }
  Status possible = dijob::can_run(dijob::resized(job, task, static_cast<int>(to)), names);
  return possible.ok() ? possible : Status(Code::kInvalid, possible.message());
}

Result<Patch> resize_task(const json::Value& object, const dijob::Job& job,
                          const ResizeRequest& request, const dijob::ClusterNames& names) {
  DIVISI_TRY(const dijob::Task* task, choose(job, request.task));
  DIVISI_TRY(const std::int64_t to, moved(fmt::format("task {}", task->name),
                                          present_size(object, job, *task, names), request.by, {}));
  const json::Value* listed = object.find_path({"spec", "tasks"});
  const auto index = static_cast<std::size_t>(task - job.tasks.data());
  if (listed == nullptr || listed->as_array() == nullptr || index >= listed->as_array()->size()) {
    return failure(Code::kInternal, "job {}/{} has no list of tasks", job.space, job.name);
  }
  if (Status status = check_size(job, index, to, names); !status.ok()) {
    return failure(std::move(status));
  }
  Patch patch;
  const bool scaled = task == dijob::scaled_task(job);
  // Where a file keeps the tasks, or the task has no number of its own, spec.replicas carries it.
  const bool in_spec = scaled && (!task->sized || dijob::is_applied(object));
  if (!in_spec) {
    json::Array tasks = *listed->as_array();
    tasks[index]["replicas"] = to;
    patch.body["spec"]["tasks"] = std::move(tasks);
  }
  if (in_spec || (scaled && job.replicas)) patch.body["spec"]["replicas"] = to;
  return patch;
}

Result<Patch> resize_gang(const json::Value& object, const dijob::Job& job, int by,
                          const dijob::ClusterNames& names) {
  std::int64_t from = object.int_at({"status", "replicas"}).value_or(job.min_replicas);
  // The size of a preemptible job is the allocator's to write; what it is asked for is in the spec.
  if (job.preemptible && job.replicas) from = *job.replicas;
  Bounds bounds{.least = std::max(1, job.min_replicas)};
  if (job.max_replicas) bounds.most = *job.max_replicas;
  DIVISI_TRY(const std::int64_t to,
             moved(fmt::format("job {}/{}", job.space, job.name), from, by, bounds));
  if (Status status = check_size(job, 0, to, names); !status.ok()) {
    return failure(std::move(status));
  }
  Patch patch;
  if (job.preemptible) {
    patch.body["spec"]["replicas"] = to;
  } else {
    patch.subresource = "status";
    patch.body["status"]["replicas"] = to;
  }
  return patch;
}

}  // namespace

Result<ResizeRequest> read_resize(std::string_view body, Direction direction) {
  DIVISI_TRY(const json::Value value, read_object(body));
  const json::Value* replicas = value.find("replicas");
  if (replicas == nullptr) return failure(Code::kInvalid, "the request has no replicas");
  const std::int64_t* count = replicas->as_int();
  if (count == nullptr || *count < 1 || *count > kMaxReplicas) {
    return failure(Code::kInvalid, "replicas must be a whole number from 1 to {}", kMaxReplicas);
  }
  const json::Value* task = value.find("task");
  if (task != nullptr && !task->is_null() && task->as_string() == nullptr) {
    return failure(Code::kInvalid, "task must be a string, not {}", task->kind());
  }
  const int by = static_cast<int>(*count);
  return ResizeRequest{direction == Direction::kAdd ? by : -by,
                       std::string(value.string_at({"task"}))};
}

Result<Patch> resize(const json::Value& object, const dijob::Job& job, const ResizeRequest& request,
                     const dijob::ClusterNames& names) {
  const std::string_view phase = object.string_at({"status", "phase"});
  if (phase == "Succeeded" || phase == "Failed") {
    return failure(Code::kConflict, "job {}/{} has ended ({}): its replicas cannot change",
                   job.space, job.name, phase);
  }
  if (job.deleting) {
    return failure(Code::kConflict, "job {}/{} is being deleted", job.space, job.name);
  }
  if (job.form == dijob::Form::kTasks) return resize_task(object, job, request, names);
  if (!request.task.empty()) {
    return failure(Code::kInvalid, "job {}/{} has one template and no tasks", job.space, job.name);
  }
  return resize_gang(object, job, request.by, names);
}

}  // namespace divisi::server
