#include "dijob/first/pod.h"

#include "dijob/names.h"
#include "dijob/pod.h"
#include "dijob/pod_template.h"
#include "dijob/pod_trouble.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace divisi::dijob::first {
namespace {

json::Array& list_at(json::Value& object, std::string_view key) {
  json::Value& value = object[key];
  if (value.as_array() == nullptr) value = json::Array();
  return *value.as_array();
}

bool is_named(const json::Value& value, std::string_view name) {
  return value.string_at({"name"}) == name;
}

bool contains_named(const json::Array& list, std::string_view name) {
  return std::ranges::any_of(list,
                             [name](const json::Value& each) { return is_named(each, name); });
}

// Injected variables win over the user's.
void set_variable(json::Value& container, std::string_view name, std::string_view value) {
  json::Array& env = list_at(container, "env");
  std::erase_if(env, [name](const json::Value& each) { return is_named(each, name); });
  env.emplace_back(json::Object{{"name", name}, {"value", value}});
}

// The shared rules look for a container named like the task: here, like the role. DDP learners are
// made of the learner's template.
Task named_like(Role role) {
  Task task;
  task.name = role_name(role == Role::kDdpLearner ? Role::kLearner : role);
  task.type = task.name;
  return task;
}

json::Value* mutable_main_container(json::Value& pod_spec, Role role) {
  const json::Value* const found = main_container(pod_spec, role);
  if (found == nullptr) return nullptr;
  json::Array& containers = list_at(pod_spec, "containers");
  return &containers[static_cast<std::size_t>(found - containers.data())];
}

json::Value owner_reference(const Job& job) {
  return json::Object{{"apiVersion", kApiVersion}, {"kind", dijobs().kind},
                      {"name", job.name},          {"uid", job.uid},
                      {"controller", true},        {"blockOwnerDeletion", true}};
}

void set_metadata(json::Value& metadata, const Job& job, const PodWish& wish) {
  metadata["name"] = wish.name;
  metadata["namespace"] = job.space;
  json::Value& label = metadata["labels"];
  label[labels::kGroup] = labels::kGroupValue;
  label[labels::kJob] = job_label(job.name);
  label[labels::kController] = labels::kControllerValue;
  label[labels::kRole] = role_name(wish.role);
  label[labels::kPod] = wish.name;
  if (wish.ddp && wish.ddp->several) {
    label[labels::kDdp] = wish.ddp->master.empty() ? labels::kDdpMaster : labels::kDdpWorker;
  }
  if (!wish.coordinator_uid.empty()) {
    metadata["annotations"][annotations::kCoordinatorUid] = wish.coordinator_uid;
  }
  json::Array owners{owner_reference(job)};
  if (!wish.aggregator_uid.empty()) {
    metadata["annotations"][annotations::kAggregatorUid] = wish.aggregator_uid;
    owners.emplace_back(json::Object{{"apiVersion", "v1"},
                                     {"kind", "Pod"},
                                     {"name", wish.aggregator_name},
                                     {"uid", wish.aggregator_uid}});
  }
  metadata["ownerReferences"] = std::move(owners);
}

void add_volumes(json::Value& spec, const Job& job) {
  for (const json::Value& volume : job.volumes) {
    json::Array& volumes = list_at(spec, "volumes");
    // A volume of the template wins over one of the job with the same name.
    if (!contains_named(volumes, volume.string_at({"name"}))) volumes.push_back(volume);
  }
}

void set_resources(json::Value& container, const Amounts& amounts) {
  for (const auto& [name, amount] : amounts) {
    if (amount.is_zero()) continue;
    container["resources"]["requests"][name] = amount.to_string();
    container["resources"]["limits"][name] = amount.to_string();
  }
}

json::Value port_entry(std::string_view name, int port) {
  return json::Object{{"name", name}, {"containerPort", port}};
}

// Declares where the pod listens. The engine makes rank r listen on LEARNER_PORT + r, so the first
// rank of a later pod of a group is found behind the declared port.
void declare_ports(json::Value& container, const PodWish& wish, int base) {
  const int first = base + (wish.ddp ? wish.ddp->start_rank : 0);
  json::Array& ports = list_at(container, "ports");
  const std::string role(named_like(wish.role).name);
  const auto main = std::ranges::find_if(ports, [&](const json::Value& each) {
    return is_named(each, kPortName) || (!contains_named(ports, kPortName) && is_named(each, role));
  });
  if (main == ports.end()) {
    ports.push_back(port_entry(kPortName, first));
  } else {
    (*main)["containerPort"] = first;
  }
  if (!wish.ddp) return;
  for (int i = 1; i < wish.ddp->gpus; ++i) {
    ports.push_back(port_entry(fmt::format("{}{}", kGpuPortPrefix, i), first + i));
  }
  if (wish.ddp->several && wish.ddp->master.empty()) {
    ports.push_back(port_entry(kMasterPortName, kMasterPort));
  }
}

struct Injected {
  std::string name{};
  std::string value{};
};

std::vector<Injected> injected_variables(const Job& job, const PodWish& wish, int port,
                                         std::string_view server_url) {
  std::vector<Injected> all{{"KUBERNETES_POD_NAMESPACE", job.space},
                            {"KUBERNETES_POD_NAME", wish.name},
                            {"KUBERNETES_SERVER_URL", std::string(server_url)},
                            {std::string(port_variable(wish.role)), std::to_string(port)}};
  if (wish.role == Role::kCoordinator) {
    all.push_back(
        {"KUBERNETES_COORDINATOR_URL", fmt::format("{}.{}:{}", wish.name, job.space, port)});
  }
  if (!wish.aggregator_url.empty()) {
    all.push_back({"KUBERNETES_AGGREGATOR_URL", wish.aggregator_url});
  }
  if (wish.ddp) {
    all.push_back({"WORLD_SIZE", std::to_string(wish.ddp->world_size)});
    all.push_back({"LOCAL_WORLD_SIZE", std::to_string(wish.ddp->gpus)});
    all.push_back({"START_RANK", std::to_string(wish.ddp->start_rank)});
    all.push_back({"MASTER_ADDR", wish.ddp->master.empty() ? "localhost" : wish.ddp->master});
    all.push_back({"MASTER_PORT", std::to_string(kMasterPort)});
  }
  return all;
}

void set_spec(json::Value& spec, const Job& job, const PodWish& wish, std::string_view server_url) {
  if (wish.role == Role::kCoordinator && spec.string_at({"restartPolicy"}).empty()) {
    spec["restartPolicy"] = "Never";
  }
  if (!job.priority_class.empty()) spec["priorityClassName"] = job.priority_class;
  if (wish.role != Role::kAggregator) add_volumes(spec, job);
  const int port = main_port(spec, wish.role);
  if (json::Value* const container = mutable_main_container(spec, wish.role)) {
    set_resources(*container, wish.resources);
    declare_ports(*container, wish, port);
  }
  const std::vector<Injected> variables = injected_variables(job, wish, port, server_url);
  if (elements(spec, "containers").empty()) return;
  for (json::Value& container : list_at(spec, "containers")) {
    for (const Injected& each : variables) set_variable(container, each.name, each.value);
  }
}

bool is_true(const json::Value& status, std::string_view type) {
  return std::ranges::any_of(elements(status, "conditions"), [type](const json::Value& each) {
    return each.string_at({"type"}) == type && each.string_at({"status"}) == "True";
  });
}

void read_owners(const json::Value& object, Pod& pod) {
  const json::Value* const metadata = object.find("metadata");
  for (const json::Value& owner : elements(*metadata, "ownerReferences")) {
    const bool controls = owner.bool_at({"controller"}).value_or(false);
    pod.controlled |= controls;
    if (owner.string_at({"kind"}) == dijobs().kind) {
      pod.owner = owner.string_at({"name"});
      pod.owner_uid = owner.string_at({"uid"});
    } else if (owner.string_at({"kind"}) == "Pod" && !controls) {
      pod.aggregator_uid = owner.string_at({"uid"});
    }
  }
}

void read_container_states(const json::Value& object, const json::Value& spec, Pod& pod) {
  const json::Value* const status = object.find("status");
  if (status == nullptr) return;
  const json::Value* const main = main_container(spec, pod.role);
  bool any_lives = false;
  for (const json::Value& container : elements(*status, "containerStatuses")) {
    const json::Value* const end = container.find_path({"state", "terminated"});
    const bool ended = end != nullptr && end->as_object() != nullptr;
    const bool crashing = container.string_at({"state", "waiting", "reason"}) == "CrashLoopBackOff";
    pod.any_ended |= ended || crashing;
    any_lives |= !ended;
    if (ended && main != nullptr && is_named(container, main->string_at({"name"}))) {
      pod.exit_code = static_cast<int>(end->int_at({"exitCode"}).value_or(0));
    }
  }
  pod.sidecars_run = pod.exit_code && any_lives;
}

json::Value kept(const json::Value& from, std::initializer_list<std::string_view> names) {
  json::Value result(json::Object{});
  for (const std::string_view name : names) {
    if (const json::Value* const member = from.find(name)) result[name] = *member;
  }
  return result;
}

json::Value kept_each(const json::Array& list, std::initializer_list<std::string_view> names) {
  json::Array result;
  for (const json::Value& each : list) result.push_back(kept(each, names));
  return result;
}

}  // namespace

const json::Value* main_container(const json::Value& pod_spec, Role role) {
  return dijob::main_container(pod_spec, named_like(role));
}

int main_port(const json::Value& pod_spec, Role role) {
  return declared_port(pod_spec, named_like(role)).value_or(default_port(role));
}

int gpus_of(const json::Value& pod_spec, Role role) {
  const json::Value* const container = main_container(pod_spec, role);
  if (container == nullptr) return 0;
  for (const std::string_view list : {"limits", "requests"}) {
    const json::Value* const amount = container->find_path({"resources", list, kGpu});
    if (amount == nullptr) continue;
    const auto read = read_amount(*amount);
    if (read) return static_cast<int>(std::clamp<std::int64_t>(read->value(), 0, kMaxReplicas));
  }
  return 0;
}

json::Value make_pod(const Job& job, const PodWish& wish, std::string_view server_url) {
  json::Value pod = json::Object{{"apiVersion", "v1"}, {"kind", "Pod"}};
  json::Value& metadata = pod["metadata"];
  for (const std::string_view map : {"labels", "annotations"}) {
    const json::Value* const given = wish.pod_template->find_path({"metadata", map});
    metadata[map] = given != nullptr && given->as_object() != nullptr ? *given : json::Object{};
  }
  set_metadata(metadata, job, wish);
  const json::Value* const spec = wish.pod_template->find("spec");
  pod["spec"] = spec != nullptr && spec->as_object() != nullptr ? *spec : json::Object{};
  set_spec(*pod.find("spec"), job, wish, server_url);
  return pod;
}

json::Value make_service(const json::Value& pod) {
  static const json::Value none(json::Object{});
  json::Value service = json::Object{{"apiVersion", "v1"}, {"kind", "Service"}};
  const json::Value* const from = pod.find("metadata");
  service["metadata"] = kept(*from, {"name", "namespace", "labels", "ownerReferences"});
  json::Value& spec = service["spec"];
  spec["clusterIP"] = "None";
  // The coordinator connects to workers before they are ready.
  spec["publishNotReadyAddresses"] = true;
  const json::Value* const label = from->find("labels");
  spec["selector"] = label == nullptr ? none : *label;

  const auto role =
      find_role(from->string_at({"labels", labels::kRole})).value_or(Role::kCollector);
  const json::Value* const found = pod.find("spec");
  const json::Value& pod_spec = found == nullptr ? none : *found;
  const int port = main_port(pod_spec, role);
  json::Array& ports = list_at(spec, "ports");
  const auto add = [&ports](std::string_view name, int number) {
    ports.emplace_back(json::Object{{"name", name}, {"port", number}});
  };
  add(kPortName, port);
  if (role != Role::kDdpLearner) return service;
  for (int i = 1; i < gpus_of(pod_spec, role); ++i)
    add(fmt::format("{}{}", kGpuPortPrefix, i), port + i);
  if (from->string_at({"labels", labels::kDdp}) == labels::kDdpMaster) {
    add(kMasterPortName, kMasterPort);
  }
  return service;
}

json::Value make_replacement(const json::Value& pod, const std::string& name) {
  json::Value made = json::Object{{"apiVersion", "v1"}, {"kind", "Pod"}};
  made["metadata"] =
      kept(*pod.find("metadata"), {"namespace", "labels", "annotations", "ownerReferences"});
  made["metadata"]["name"] = name;
  made["metadata"]["labels"][labels::kPod] = name;
  const json::Value* const spec = pod.find("spec");
  made["spec"] = spec == nullptr ? json::Value(json::Object{}) : *spec;
  made["spec"].erase("nodeName");
  if (elements(made["spec"], "containers").empty()) return made;
  for (json::Value& container : list_at(made["spec"], "containers")) {
    set_variable(container, "KUBERNETES_POD_NAME", name);
  }
  return made;
}

std::string_view Pod::outcome() const noexcept {
  if (phase == "Failed") return "failed";
  if (phase == "Succeeded") return "succeeded";
  if (phase != "Running") return {};
  if (!exit_code) return "active";
  return *exit_code == 0 ? "succeeded" : "failed";
}

std::string Pod::url() const {
  return fmt::format("{}.{}:{}", name, space, port);
}

std::vector<std::string> Pod::rank_urls() const {
  std::vector<std::string> urls{url()};
  for (int i = 1; i < gpus; ++i) urls.push_back(fmt::format("{}.{}:{}", name, space, port + i));
  return urls;
}

std::optional<Pod> read_pod(const json::Value& object) {
  const auto role = find_role(object.string_at({"metadata", "labels", labels::kRole}));
  if (!role || object.string_at({"metadata", "labels", labels::kGroup}) != labels::kGroupValue ||
      object.string_at({"metadata", "labels", labels::kController}) != labels::kControllerValue) {
    return std::nullopt;
  }
  Pod pod;
  pod.role = *role;
  pod.space = object.string_at({"metadata", "namespace"});
  pod.name = object.string_at({"metadata", "name"});
  pod.uid = object.string_at({"metadata", "uid"});
  pod.created = object.string_at({"metadata", "creationTimestamp"});
  pod.terminating = !object.string_at({"metadata", "deletionTimestamp"}).empty();
  pod.coordinator_uid = object.string_at({"metadata", "annotations", annotations::kCoordinatorUid});
  pod.aggregator_uid = object.string_at({"metadata", "annotations", annotations::kAggregatorUid});
  read_owners(object, pod);

  pod.phase = object.string_at({"status", "phase"});
  if (pod.phase.empty()) pod.phase = "Pending";
  pod.node = object.string_at({"spec", "nodeName"});
  if (const json::Value* const status = object.find("status"))
    pod.ready = is_true(*status, "Ready");
  static const json::Value none(json::Object{});
  const json::Value* const spec = object.find("spec");
  read_container_states(object, spec == nullptr ? none : *spec, pod);
  pod.port = main_port(spec == nullptr ? none : *spec, pod.role);
  pod.gpus = gpus_of(spec == nullptr ? none : *spec, pod.role);
  return pod;
}

void strip_pod(json::Value& object) {
  if (json::Value* const metadata = object.find("metadata")) {
    json::Value* const notes = metadata->find("annotations");
    if (notes != nullptr && notes->as_object() != nullptr) {
      std::erase_if(*notes->as_object(),
                    [](const json::Member& each) { return !each.first.starts_with("divisi/"); });
    }
  }
  if (json::Value* const spec = object.find("spec")) {
    json::Value slim = kept(*spec, {"nodeName"});
    slim["containers"] = kept_each(elements(*spec, "containers"), {"name", "ports", "resources"});
    *spec = std::move(slim);
  }
  if (json::Value* const status = object.find("status")) {
    json::Value slim = kept(*status, {"phase", "reason", "podIP"});
    slim["conditions"] = slim_conditions(*status);
    slim["containerStatuses"] =
        kept_each(elements(*status, "containerStatuses"), {"name", "ready", "state"});
    *status = std::move(slim);
  }
}

}  // namespace divisi::dijob::first
