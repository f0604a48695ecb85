#include "dijob/allocator_input.h"

#include "dijob/job_status.h"
#include "dijob/names.h"
#include "dijob/pod_template.h"
#include "dijob/replica_resources.h"
#include "dijob/roster.h"
#include "dijob/sizes.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

namespace divisi::dijob {
namespace {

bool is_terminal(const json::Value& object) {
  const std::string_view phase = phase_of(object);
  return phase == "Succeeded" || phase == "Failed";
}

const json::Value* ranks_in(const JobStatus& status) {
  return status.ranks.is_null() ? nullptr : &status.ranks;
}

// How many of a template form are wanted at most: what spec.replicas says, within its bounds.
int most_workers(const Job& job) {
  const int most = job.max_replicas.value_or(job.min_replicas);
  return job.replicas
             ? std::clamp(*job.replicas, job.min_replicas, std::max(job.min_replicas, most))
             : most;
}

void add_template_replicas(const Job& job, Demand& demand) {
  for (int rank = 0; rank < most_workers(job); ++rank) {
    demand.replicas.push_back({rank, 0, rank < job.min_replicas});
  }
}

void add_task_replicas(const Job& job, const JobStatus& status, Demand& demand) {
  const Roster roster = make_roster(job, ranks_in(status), {});
  for (const Slot& slot : roster.slots) {
    const auto task = std::ranges::find(job.tasks, slot.task, &Task::name);
    if (task == job.tasks.end()) continue;
    const int gang = task->min_available > 0 ? task->min_available : task->replicas;
    demand.replicas.push_back(
        {slot.rank, static_cast<std::size_t>(task - job.tasks.begin()), slot.index < gang});
  }
  std::ranges::sort(demand.replicas, {}, &Replica::rank);
}

Kind read_kind(const Task& task, const Amounts& defaults) {
  Kind kind{replica_resources(task, defaults), json::Value()};
  kind.needs["pods"] = json::Quantity(1);
  if (const json::Value* spec = task.pod_template.find("spec")) {
    for (const std::string_view key : {"nodeSelector", "affinity", "tolerations"}) {
      if (const json::Value* value = spec->find(key)) kind.pod_spec[key] = *value;
    }
  }
  return kind;
}

std::string_view controller_of(const json::Value& pod) {
  const json::Value* metadata = pod.find("metadata");
  if (metadata == nullptr) return {};
  for (const json::Value& owner : elements(*metadata, "ownerReferences")) {
    if (owner.bool_at({"controller"}).value_or(false)) return owner.string_at({"uid"});
  }
  return {};
}

int rank_of(const json::Value& pod) {
  const std::string_view text = pod.string_at({"metadata", "annotations", annotations::kRank});
  int rank = -1;
  (void)std::from_chars(text.data(), text.data() + text.size(), rank);
  return rank;
}

// A container without all but what it asks for.
json::Value keep_requests(const json::Value& container) {
  json::Value kept = json::Object{};
  for (const std::string_view key : {"resources", "restartPolicy"}) {
    if (const json::Value* value = container.find(key)) kept[key] = *value;
  }
  return kept;
}

}  // namespace

std::optional<Demand> read_demand(const json::Value& object, const Amounts& defaults) {
  Result<Job> job = read_job(object);
  if (job) use_chosen_size(*job, object);
  if (!job || !job->preemptible || job->deleting || is_terminal(object) || !check(*job).ok()) {
    return std::nullopt;
  }
  const JobStatus status = read_job_status(object);
  (void)refuse_edits(*job, ranks_in(status));  // the operator tells of them
  Demand demand;
  demand.key = kube::object_key(job->space, job->name);
  demand.high = job->priority == "high";
  demand.created = job->created;
  demand.gapless = job->form == Form::kTemplate;
  for (const Task& task : job->tasks) demand.kinds.push_back(read_kind(task, defaults));
  if (!job->suspended) {
    demand.gapless ? add_template_replicas(*job, demand) : add_task_replicas(*job, status, demand);
  }
  if (status.allocation) demand.nodes = *status.allocation;
  return demand;
}

PodLedger::PodLedger(std::vector<Demand>& demands, const std::vector<std::string>& uids,
                     std::vector<Node>& nodes)
    : demands_(demands) {
  for (std::size_t job = 0; job < uids.size(); ++job) jobs_.emplace(uids[job], job);
  for (Node& node : nodes) nodes_.emplace(node.name, &node);
}

void PodLedger::add_pod(const json::Value& pod) {
  const std::string_view phase = pod.string_at({"status", "phase"});
  if (phase == "Succeeded" || phase == "Failed" || phase == "Unknown") return;
  const auto node = nodes_.find(pod.string_at({"spec", "nodeName"}));
  if (node == nodes_.end()) return;
  Amounts takes = pod_requests(*pod.find("spec"));
  takes["pods"] = json::Quantity(1);
  const auto job = jobs_.find(controller_of(pod));
  if (job == jobs_.end()) {
    subtract(node->second->free, takes);
  } else {
    demands_[job->second].held.push_back({rank_of(pod), node->first, std::move(takes)});
  }
}

void keep_what_counts(json::Value& pod) {
  json::Value kept;
  for (const std::string_view key :
       {"name", "namespace", "uid", "resourceVersion", "ownerReferences"}) {
    if (const json::Value* value = pod.find_path({"metadata", key})) kept["metadata"][key] = *value;
  }
  const std::string_view rank = pod.string_at({"metadata", "annotations", annotations::kRank});
  if (!rank.empty()) kept["metadata"]["annotations"][annotations::kRank] = rank;
  kept["spec"]["nodeName"] = pod.string_at({"spec", "nodeName"});
  if (const json::Value* spec = pod.find("spec")) {
    if (const json::Value* overhead = spec->find("overhead")) kept["spec"]["overhead"] = *overhead;
    for (const std::string_view list : kContainerLists) {
      json::Array containers;
      for (const json::Value& each : elements(*spec, list))
        containers.push_back(keep_requests(each));
      if (!containers.empty()) kept["spec"][list] = std::move(containers);
    }
  }
  kept["status"]["phase"] = pod.string_at({"status", "phase"});
  pod = std::move(kept);
}

}  // namespace divisi::dijob
