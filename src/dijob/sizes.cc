#include "dijob/sizes.h"

#include "dijob/job_status.h"
#include "dijob/names.h"

#include <algorithm>
#include <limits>

namespace divisi::dijob {
namespace {

constexpr std::string_view kMark = "divisiApplied";
constexpr std::string_view kLastApplied = "kubectl.kubernetes.io/last-applied-configuration";

std::optional<int> number_at(const json::Value& object, std::string_view key) {
  const auto number = object.int_at({key});
  if (!number || *number < std::numeric_limits<int>::min() ||
      *number > std::numeric_limits<int>::max()) {
    return std::nullopt;
  }
  return static_cast<int>(*number);
}

std::optional<int> written_size(const Task& task) {
  std::optional<int> size;
  if (task.sized) size = task.replicas;
  return size;
}

// Whether both are absent, or the same number.
bool same(const std::optional<int>& a, const std::optional<int>& b) {
  return a.has_value() == b.has_value() && a.value_or(0) == b.value_or(0);
}

bool holds_tasks(const json::Value& manager) {
  return manager.string_at({"operation"}) == "Apply" &&
         manager.string_at({"manager"}) != kFieldManager &&
         manager.find_path({"fieldsV1", "f:spec", "f:tasks"}) != nullptr;
}

}  // namespace

std::optional<Sizes> read_sizes(const json::Value& sizes) {
  const std::optional<int> size = number_at(sizes, "size");
  if (!size) return std::nullopt;
  return Sizes{number_at(sizes, "spec"), number_at(sizes, "task"), *size};
}

json::Value to_json(const Sizes& sizes) {
  json::Value value;
  if (sizes.spec) value["spec"] = *sizes.spec;
  if (sizes.task) value["task"] = *sizes.task;
  value["size"] = sizes.size;
  return value;
}

SizeChoice choose_size(const Job& job, const std::optional<Sizes>& last, bool agreed,
                       const ClusterNames& names) {
  const Task& task = *scaled_task(job);
  const auto index = static_cast<std::size_t>(&task - job.tasks.data());
  const std::optional<int> written = written_size(task);
  const auto possible = [&](int size) { return can_run(resized(job, index, size), names); };

  const bool differ = job.replicas && !same(job.replicas, written);
  const bool spec_is_new = differ && (last ? !same(last->spec, job.replicas) : !written || agreed);
  const bool task_is_new = written && (last ? !same(last->task, written) : !agreed);
  const int before = last ? last->size : written.value_or(1);

  int size = written.value_or(job.replicas.value_or(1));
  if (differ && written && !task_is_new) size = spec_is_new ? *job.replicas : before;
  if (!differ) return {size, {}};
  const Status fits = possible(size);
  if (fits.ok()) {
    // A wish that was refused before stays refused.
    const bool other = size != *job.replicas && !task_is_new;
    return {size, other ? possible(*job.replicas) : Status()};
  }
  if (size == *job.replicas) {
    // Of a job that is new there is no size before.
    return last || written ? SizeChoice{before, fits} : SizeChoice{size, {}};
  }
  if (spec_is_new && possible(*job.replicas).ok()) return {*job.replicas, {}};
  return {size, {}};
}

void use_chosen_size(Job& job, const json::Value& object) {
  const Task* const task = job.form == Form::kTasks ? scaled_task(job) : nullptr;
  if (task == nullptr) return;
  const std::optional<Sizes> last = read_job_status(object).sizes;
  if (!last || !same(last->spec, job.replicas) || !same(last->task, written_size(*task))) return;
  job.tasks[static_cast<std::size_t>(task - job.tasks.data())].replicas = last->size;
}

bool is_applied(const json::Value& object) {
  const json::Value* const metadata = object.find("metadata");
  if (metadata == nullptr) return false;
  if (metadata->bool_at({kMark}).value_or(false)) return true;
  if (metadata->find_path({"annotations", kLastApplied}) != nullptr) return true;
  const json::Value* const managers = metadata->find("managedFields");
  return managers != nullptr && managers->as_array() != nullptr &&
         std::ranges::any_of(*managers->as_array(), holds_tasks);
}

void mark_applied(json::Value& object) {
  if (is_applied(object)) object["metadata"][kMark] = true;
}

}  // namespace divisi::dijob
