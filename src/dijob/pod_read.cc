// Pods that exist: whose they are, which replica they are, how they do.
#include "dijob/job_status.h"
#include "dijob/names.h"
#include "dijob/pod.h"
#include "dijob/pod_template.h"
#include "kube/time.h"

#include <algorithm>
#include <charconv>

namespace divisi::dijob {

namespace {

std::optional<int> to_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

std::string_view label(const json::Value& pod, std::string_view key) {
  return pod.string_at({"metadata", "labels", key});
}

std::string_view annotation(const json::Value& pod, std::string_view key) {
  return pod.string_at({"metadata", "annotations", key});
}

std::optional<WallTime> time_at(const json::Value& object, json::Path path) {
  return kube::parse_time(object.string_at(path));
}

bool has_condition(const json::Value& status, std::string_view type) {
  return std::ranges::any_of(elements(status, "conditions"), [type](const json::Value& condition) {
    return condition.string_at({"type"}) == type && condition.string_at({"status"}) == "True";
  });
}

// "<job>-<middle>-<number>": the middle is the task, or the generation of a template form.
struct NameParts {
  std::string_view middle{};
  std::optional<int> number{};
};
NameParts split_name(std::string_view name, const Job& job) {
  if (!name.starts_with(job.name) || !name.substr(job.name.size()).starts_with('-')) return {};
  name.remove_prefix(job.name.size() + 1);
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos) return {};
  return {name.substr(0, dash), to_number(name.substr(dash + 1))};
}

// The reference kept the rank as an annotation, and in its release 1.1.0 as a label.
std::optional<int> rank_of(const json::Value& object) {
  const std::optional<int> rank = to_number(annotation(object, annotations::kRank));
  return rank ? rank : to_number(label(object, labels::kRankLabel));
}

void read_task_slot(const json::Value& object, const NameParts& name, Pod& pod) {
  const std::string_view task = label(object, labels::kTaskName);
  pod.slot.task = task.empty() ? name.middle : task;
  std::optional<int> index = to_number(annotation(object, annotations::kTaskRank));
  if (!index && pod.slot.task == name.middle) index = name.number;
  pod.slot.index = index.value_or(0);
  pod.has_slot = index && !pod.slot.task.empty();
}

void read_template_slot(const NameParts& name, Pod& pod) {
  if (pod.slot.rank < 0) pod.slot.rank = name.number.value_or(-1);
  if (!pod.generation) pod.generation = to_number(name.middle);
  pod.has_slot = pod.slot.rank >= 0;
  pod.slot.index = std::max(pod.slot.rank, 0);
}

void read_containers(const json::Value& object, const Task& task, Pod& pod) {
  static const json::Value none{};
  const json::Value* spec = object.find("spec");
  const json::Value* main = main_container(spec == nullptr ? none : *spec, task);
  const json::Value* status = object.find("status");
  bool any_lives = false;
  for (const json::Value& container :
       elements(status == nullptr ? none : *status, "containerStatuses")) {
    const bool crashing = container.string_at({"state", "waiting", "reason"}) == "CrashLoopBackOff";
    const json::Value* end = container.find_path({"state", "terminated"});
    const bool ended = end != nullptr && end->as_object() != nullptr;
    pod.any_ended |= ended || crashing;
    any_lives |= !ended;
    if (!ended) continue;
    const std::int64_t code = end->int_at({"exitCode"}).value_or(0);
    pod.exit_143 |= code == 143;
    if (main != nullptr && main->string_at({"name"}) == container.string_at({"name"})) {
      pod.exit_code = static_cast<int>(code);
    }
    const std::optional<WallTime> at = time_at(*end, {"finishedAt"});
    if (at && (!pod.ended || *at > *pod.ended)) pod.ended = at;
  }
  pod.sidecars_run = pod.exit_code && any_lives;
  pod.port = main_port(spec == nullptr ? none : *spec, task);
}

void read_status(const json::Value& object, Pod& pod) {
  pod.phase = object.string_at({"status", "phase"});
  if (pod.phase.empty()) pod.phase = "Pending";
  pod.reason = object.string_at({"status", "reason"});
  pod.ip = object.string_at({"status", "podIP"});
  pod.node = object.string_at({"spec", "nodeName"});
  pod.trouble = read_trouble(object);
  pod.started = time_at(object, {"status", "startTime"});
  if (const json::Value* status = object.find("status")) {
    pod.ready = has_condition(*status, "Ready");
    pod.scheduled = has_condition(*status, "PodScheduled");
    pod.disrupted = has_condition(*status, "DisruptionTarget");
  }
}

// Of a task that the job has no more, what its labels tell.
Task task_of(const json::Value& object, const Job& job, const Slot& slot) {
  if (const Task* task = job.find_task(slot.task)) return *task;
  Task gone;
  gone.name = slot.task;
  gone.type = label(object, labels::kTaskType);
  return gone;
}

}  // namespace

bool belongs_to(const json::Value& object, const Job& job) {
  const json::Value* metadata = object.find("metadata");
  if (metadata == nullptr || metadata->string_at({"namespace"}) != job.space) return false;
  return std::ranges::any_of(elements(*metadata, "ownerReferences"), [&](const json::Value& owner) {
    return owner.bool_at({"controller"}).value_or(false) && owner.string_at({"uid"}) == job.uid;
  });
}

bool is_orphan_of(const json::Value& object, const Job& job) {
  const json::Value* metadata = object.find("metadata");
  if (metadata == nullptr || metadata->string_at({"namespace"}) != job.space) return false;
  const bool owned = std::ranges::any_of(
      elements(*metadata, "ownerReferences"),
      [](const json::Value& owner) { return owner.bool_at({"controller"}).value_or(false); });
  return !owned && label(object, labels::kJob) == job.name &&
         label(object, labels::kOperator) == labels::kOperatorValue;
}

Pod read_pod(const json::Value& object, const Job& job) {
  Pod pod;
  pod.name = object.string_at({"metadata", "name"});
  pod.uid = object.string_at({"metadata", "uid"});
  pod.terminating = !object.string_at({"metadata", "deletionTimestamp"}).empty();
  read_status(object, pod);

  pod.replicas = to_number(annotation(object, annotations::kReplicas));
  pod.generation = to_number(annotation(object, annotations::kGeneration));
  pod.placed_on = annotation(object, annotations::kNode);
  pod.made_of = annotation(object, annotations::kTemplate);
  pod.restarts = to_number(annotation(object, annotations::kRestarts));
  pod.slot.rank = rank_of(object).value_or(-1);
  const NameParts name = split_name(pod.name, job);
  job.form == Form::kTasks ? read_task_slot(object, name, pod) : read_template_slot(name, pod);

  read_containers(object, task_of(object, job, pod.slot), pod);
  return pod;
}

}  // namespace divisi::dijob
