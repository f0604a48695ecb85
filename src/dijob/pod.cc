#include "dijob/pod.h"

#include "dijob/names.h"
#include "dijob/owned.h"
#include "dijob/pod_env.h"
#include "dijob/pod_template.h"

#include <algorithm>
#include <utility>

namespace divisi::dijob {
namespace {

json::Array& array_at(json::Value& object, std::string_view key) {
  json::Value& value = object[key];
  if (value.as_array() == nullptr) value = json::Array();
  return *value.as_array();
}

bool has_named(const json::Array& list, std::string_view name) {
  return std::ranges::any_of(
      list, [name](const json::Value& value) { return value.string_at({"name"}) == name; });
}

// What the user set stays: a variable of theirs is a decision, ours are a service.
void add_variable(json::Value& container, const Variable& variable) {
  json::Array& env = array_at(container, "env");
  if (has_named(env, variable.name)) return;
  env.emplace_back(json::Object{{"name", variable.name}, {"value", variable.value}});
}

bool mounts_at(const json::Value& container, std::string_view path) {
  return std::ranges::any_of(elements(container, "volumeMounts"), [path](const json::Value& mount) {
    return mount.string_at({"mountPath"}) == path;
  });
}

// The file and the variable that names it come together, or not at all.
void mount_secret(json::Value& container) {
  if (mounts_at(container, kSecretFolder)) return;
  array_at(container, "volumeMounts")
      .emplace_back(
          json::Object{{"name", kSecretVolume}, {"mountPath", kSecretFolder}, {"readOnly", true}});
  add_variable(container, {"DIVISI_SECRET_FILE", std::string(kSecretFile)});
}

json::Value secret_volume(const Job& job) {
  json::Value item = json::Object{{"key", "secret"}, {"path", "secret"}};
  json::Value secret = json::Object{{"secretName", secret_name(job)},
                                    {"defaultMode", 0444},  // a container may run as anybody
                                    {"items", json::Array{std::move(item)}}};
  return json::Object{{"name", kSecretVolume}, {"secret", std::move(secret)}};
}

}  // namespace

std::string pod_name(const Job& job, const Slot& slot, int generation) {
  if (job.form == Form::kTasks) return fmt::format("{}-{}-{}", job.name, slot.task, slot.index);
  return fmt::format("{}-{}-{}", job.name, generation, slot.rank);
}

std::string pod_host(const Job& job, const Slot& slot, int generation, const ClusterNames& names) {
  return fmt::format("{}.{}.{}.{}", pod_name(job, slot, generation), service_name(job), job.space,
                     names.service_domain);
}

PodMaker::PodMaker(const Job& job, PodPeers peers)
    : job_(job),
      peers_(std::move(peers)),
      variables_(std::make_unique<const PodVariables>(job_, peers_)) {
  for (const Task& task : job_.tasks) hashes_.push_back(template_hash(job_, task));
}

PodMaker::~PodMaker() = default;

void PodMaker::set_metadata(json::Value& metadata, const PodPlace& place, const Task& task) const {
  const std::string name = pod_name(job_, place.slot, peers_.generation);
  const std::string rank = std::to_string(place.slot.rank);
  set_owned_metadata(metadata, job_, name);

  json::Value& label = metadata["labels"];
  label[labels::kPod] = name;
  json::Value& note = metadata["annotations"];
  note[annotations::kReplicas] = std::to_string(peers_.replicas);
  note[annotations::kRank] = rank;
  note[annotations::kNode] = place.node;
  note[annotations::kRestarts] = std::to_string(peers_.restarts);
  note[annotations::kTemplate] = hashes_[static_cast<std::size_t>(&task - job_.tasks.data())];
  if (job_.form == Form::kTasks) {
    label[labels::kTaskType] = task.type;
    label[labels::kTaskName] = task.name;
    note[annotations::kTaskRank] = std::to_string(place.slot.index);
  } else {
    label[labels::kGroupLabel] = job_.group;
    label[labels::kRankLabel] = rank;
    note[annotations::kGeneration] = std::to_string(peers_.generation);
  }
}

void PodMaker::set_spec(json::Value& spec, const PodPlace& place) const {
  spec["restartPolicy"] = "Never";  // replacing it is the operator's business
  spec["hostname"] = pod_name(job_, place.slot, peers_.generation);
  spec["subdomain"] = service_name(job_);
  if (!place.node.empty()) spec["nodeName"] = place.node;

  for (const json::Value& volume : job_.volumes) {
    json::Array& volumes = array_at(spec, "volumes");
    if (!has_named(volumes, volume.string_at({"name"}))) volumes.push_back(volume);
  }
  // Somebody who brings a volume of that name brings their own secret.
  const bool mounted = !has_named(elements(spec, "volumes"), kSecretVolume);
  if (mounted) array_at(spec, "volumes").push_back(secret_volume(job_));

  const std::vector<Variable> variables = variables_->of(place);
  for (const std::string_view list : kContainerLists) {
    if (elements(spec, list).empty()) continue;
    for (json::Value& container : array_at(spec, list)) {
      for (const Variable& variable : variables) add_variable(container, variable);
      if (mounted) mount_secret(container);
    }
  }
}

json::Value PodMaker::make(const PodPlace& place) const {
  const Task* task = job_.find_task(place.slot.task);
  DIVISI_CHECK(task != nullptr, "a slot is of a task of its job");
  json::Value pod = json::Object{{"apiVersion", "v1"}, {"kind", "Pod"}};
  json::Value& metadata = pod["metadata"];
  for (const std::string_view map : {"labels", "annotations"}) {
    const json::Value* given = task->pod_template.find_path({"metadata", map});
    metadata[map] = given != nullptr && given->as_object() != nullptr ? *given : json::Object{};
  }
  set_metadata(metadata, place, *task);

  const json::Value* spec = task->pod_template.find("spec");
  pod["spec"] = spec != nullptr && spec->as_object() != nullptr ? *spec : json::Object{};
  set_spec(*pod.find("spec"), place);
  return pod;
}

}  // namespace divisi::dijob
