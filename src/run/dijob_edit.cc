#include "run/dijob_edit.h"

#include "base/nearest_name.h"
#include "launch/text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

namespace divisi::run {
namespace {

std::string job_name(const json::Value& job) {
  return std::string(job.string_at({"metadata", "name"}));
}

// A task without a name has that of its type.
std::string task_name(const json::Value& task) {
  const std::string_view name = task.string_at({"name"});
  return std::string(name.empty() ? task.string_at({"type"}) : name);
}

// Jobs of the first generation have neither.
Status check_second_generation(const json::Value& job) {
  if (job.find_path({"spec", "tasks"}) != nullptr ||
      job.find_path({"spec", "template"}) != nullptr) {
    return {};
  }
  return make_status(Code::kInvalid,
                     "{} is a DIJob of the first generation: its coordinator decides how many "
                     "collectors and learners there are",
                     job_name(job));
}

Result<std::size_t> task_index(const json::Value& job, const json::Array& tasks,
                               std::string_view wanted) {
  std::vector<std::string> names;
  for (const json::Value& task : tasks) names.push_back(task_name(task));
  if (!wanted.empty()) {
    const auto found = std::ranges::find(names, wanted);
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
    const std::string nearest = did_you_mean(wanted.substr(0, 64), names);
    return failure(
        Code::kInvalid, "{} has no task {}{}", job_name(job), launch::shown(wanted),
        nearest.empty() ? fmt::format("; its tasks are {}", fmt::join(names, ", ")) : nearest);
  }
  if (tasks.size() == 1) return 0;
  const auto collector = std::ranges::find_if(
      tasks, [](const json::Value& task) { return task.string_at({"type"}) == "collector"; });
  if (collector != tasks.end()) return static_cast<std::size_t>(collector - tasks.begin());
  return failure(Code::kInvalid, "{} has several tasks: say which with --task {}", job_name(job),
                 fmt::join(names, " or "));
}

}  // namespace

Result<json::Value> with_size(json::Value job, std::string_view task, int replicas) {
  if (Status status = check_second_generation(job); !status.ok()) return failure(status);
  const json::Value* const listed = job.find_path({"spec", "tasks"});
  if (listed == nullptr || listed->as_array() == nullptr) {
    if (!task.empty()) {
      return failure(Code::kInvalid, "{} has one template and no tasks: leave --task out",
                     job_name(job));
    }
    job["spec"]["replicas"] = replicas;
    return job;
  }
  json::Array tasks = *listed->as_array();
  DIVISI_TRY(const std::size_t index, task_index(job, tasks, task));
  // Of the task that spec.replicas means as well, whichever has changed is the newer wish.
  tasks[index]["replicas"] = replicas;
  job["spec"]["tasks"] = std::move(tasks);
  return job;
}

Result<json::Value> with_suspend(json::Value job, bool suspended) {
  if (job.find_path({"spec", "tasks"}) == nullptr &&
      job.find_path({"spec", "template"}) == nullptr) {
    return failure(Code::kInvalid,
                   "{} is a DIJob of the first generation, which cannot be suspended",
                   job_name(job));
  }
  job["spec"]["suspend"] = suspended;
  return job;
}

}  // namespace divisi::run
