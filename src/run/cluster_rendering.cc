// The objects of a cluster: a DIJob, or a headless Service with Indexed Jobs.
#include "http/base64.h"
#include "run/cluster_objects.h"
#include "run/rendering.h"

#include <fmt/format.h>

#include <chrono>

namespace divisi::run {
namespace {

constexpr const char* kDefaultImage = "divisi/di-orchestrator:0.1.0";

json::Value strings(const std::vector<std::string>& texts) {
  json::Array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

// As a container gets it: Kubernetes replaces $(NAME), and takes $$ for a dollar.
std::string literal(const std::string& text) {
  std::string made;
  for (const char c : text) made.append(c == '$' ? 2 : 1, c);
  return made;
}

json::Value metadata(const RunJob& job, const std::string& name) {
  json::Value value;
  value["name"] = name;
  if (!job.options.name_space.empty()) value["namespace"] = job.options.name_space;
  value["labels"][kJobLabel] = job.name;
  return value;
}

std::string config_map_name(const RunJob& job) {
  return job.name + "-package";
}

json::Value config_map(const RunJob& job, const std::string& zip) {
  json::Value map;
  map["apiVersion"] = "v1";
  map["kind"] = "ConfigMap";
  map["metadata"] = metadata(job, config_map_name(job));
  map["binaryData"]["package.zip"] = http::encode_base64(zip);
  return map;
}

json::Value volume_source(const Volume& volume) {
  json::Value source;
  const std::size_t colon = volume.source.find(':');
  const std::string name = volume.source.substr(colon + 1);
  if (volume.source.starts_with("pvc:")) {
    source["persistentVolumeClaim"]["claimName"] = name;
    if (volume.read_only) source["persistentVolumeClaim"]["readOnly"] = true;
  } else if (volume.source.starts_with("configMap:")) {
    source["configMap"]["name"] = name;
  } else if (volume.source.starts_with("secret:")) {
    source["secret"]["secretName"] = name;
  } else if (volume.source == "emptyDir") {
    source["emptyDir"] = json::Object();
  } else {
    source["hostPath"]["path"] = volume.source;
  }
  return source;
}

void add_volumes(const RunJob& job, json::Value& container, json::Value& pod) {
  json::Array volumes;
  json::Array mounts;
  if (job.options.command.empty()) {
    json::Value volume;
    volume["name"] = "package";
    volume["configMap"]["name"] = config_map_name(job);
    volumes.push_back(std::move(volume));
    json::Value mount;
    mount["name"] = "package";
    mount["mountPath"] = kPodFolder;
    mount["readOnly"] = true;
    mounts.push_back(std::move(mount));
  }
  for (std::size_t i = 0; i < job.options.volumes.size(); ++i) {
    const Volume& wanted = job.options.volumes[i];
    json::Value volume = volume_source(wanted);
    json::Object members{{"name", fmt::format("volume-{}", i)}};
    for (auto& member : *volume.as_object()) members.push_back(std::move(member));
    volumes.emplace_back(std::move(members));
    json::Value mount;
    mount["name"] = fmt::format("volume-{}", i);
    mount["mountPath"] = wanted.path;
    if (wanted.read_only) mount["readOnly"] = true;
    mounts.push_back(std::move(mount));
  }
  if (volumes.empty()) return;
  container["volumeMounts"] = std::move(mounts);
  pod["volumes"] = std::move(volumes);
}

json::Value resources(const RunJob& job, bool gpu) {
  json::Value limits{json::Object()};
  if (!job.options.cpu.empty()) limits["cpu"] = job.options.cpu;
  if (!job.options.memory.empty()) limits["memory"] = job.options.memory;
  if (gpu) limits["nvidia.com/gpu"] = 1;
  json::Value value;
  if (!limits.as_object()->empty()) value["limits"] = std::move(limits);
  return value;
}

struct PodWish {
  std::vector<std::string> command{};
  bool gpu = false;
  std::vector<std::pair<std::string, std::string>> environment{};
};

json::Value pod_spec(const RunJob& job, const PodWish& wish) {
  json::Value container;
  container["name"] = kMainContainer;
  container["image"] = job.options.image.empty() ? kDefaultImage : job.options.image;
  if (!job.options.image_pull_policy.empty()) {
    container["imagePullPolicy"] = job.options.image_pull_policy;
  }
  container["command"] = strings(wish.command);
  json::Array variables;
  for (const auto& [name, value] : wish.environment) {
    json::Value variable;
    variable["name"] = name;
    variable["value"] = literal(value);
    variables.push_back(std::move(variable));
  }
  if (!variables.empty()) container["env"] = std::move(variables);
  if (json::Value limits = resources(job, wish.gpu); !limits.is_null()) {
    container["resources"] = std::move(limits);
  }
  json::Value pod;
  pod["restartPolicy"] = "Never";
  pod["terminationGracePeriodSeconds"] =
      std::int64_t{std::chrono::ceil<std::chrono::seconds>(job.options.grace).count()};
  if (!job.options.service_account.empty()) {
    pod["serviceAccountName"] = job.options.service_account;
  }
  add_volumes(job, container, pod);
  pod["containers"] = json::Array{std::move(container)};
  return pod;
}

std::vector<std::string> ditask_words(const RunJob& job, bool gpu) {
  std::vector<std::string> words{"ditask"};
  for (const std::string& word : shared_arguments(job, gpu)) words.push_back(literal(word));
  return words;
}

// The workers that are alike: those with a GPU first, so that they have the first ranks.
struct Group {
  std::string name{};
  bool gpu = false;
  int first = 0;
  int count = 0;
};

std::vector<Group> groups_of(const RunOptions& options) {
  std::vector<Group> groups;
  if (options.gpus > 0) groups.push_back({"gpu", true, 0, options.gpus});
  if (options.gpus < options.workers) {
    groups.push_back({"worker", false, options.gpus, options.workers - options.gpus});
  }
  return groups;
}

std::optional<std::int64_t> deadline_seconds(const RunOptions& options) {
  if (!options.timeout) return std::nullopt;
  return std::chrono::ceil<std::chrono::seconds>(*options.timeout).count();
}

json::Value headless_service(const RunJob& job) {
  json::Value service;
  service["apiVersion"] = "v1";
  service["kind"] = "Service";
  service["metadata"] = metadata(job, job.name);
  service["spec"]["clusterIP"] = "None";
  // Workers dial each other before they are ready.
  service["spec"]["publishNotReadyAddresses"] = true;
  service["spec"]["selector"][kJobLabel] = job.name;
  json::Value port;
  port["name"] = "ditask";
  port["port"] = job.options.port;
  service["spec"]["ports"] = json::Array{std::move(port)};
  return service;
}

json::Value indexed_job(const RunJob& job, const Group& group, const std::string& nodes) {
  json::Value object;
  object["apiVersion"] = "batch/v1";
  object["kind"] = "Job";
  object["metadata"] = metadata(job, job.name + "-" + group.name);
  json::Value& spec = object["spec"];
  spec["completionMode"] = "Indexed";
  spec["completions"] = group.count;
  spec["parallelism"] = group.count;
  spec["backoffLimit"] = 0;
  if (const auto seconds = deadline_seconds(job.options)) spec["activeDeadlineSeconds"] = *seconds;
  spec["template"]["metadata"]["labels"][kJobLabel] = job.name;
  spec["template"]["metadata"]["annotations"][kFirstRankNote] = std::to_string(group.first);
  PodWish wish{.command = {}, .gpu = group.gpu, .environment = job.options.environment};
  // The rank is the completion index behind the groups before this one.
  wish.command = {
      "sh", "-c",
      fmt::format("export DI_RANK=$(({} + JOB_COMPLETION_INDEX)); exec \"$@\"", group.first), "sh"};
  for (std::string& word : ditask_words(job, group.gpu)) wish.command.push_back(std::move(word));
  wish.environment.emplace_back("DI_NODES", nodes);
  json::Value pod = pod_spec(job, wish);
  pod["subdomain"] = job.name;
  spec["template"]["spec"] = std::move(pod);
  return object;
}

}  // namespace

Result<RunJob> plan_cluster(const RunOptions& options, BackendKind kind, const std::string& entry) {
  RunOptions named = options;
  if (named.name.empty()) {
    named.name = make_up_name(options.command.empty() ? entry : "run.command");
  }
  Place place{.hosts = {},
              .package = std::string(kPodPackage),
              .listen_on_host = false,
              .visible_devices = false,
              .devices = std::nullopt};
  const std::string space = options.name_space.empty() ? "default" : options.name_space;
  for (const Group& group : groups_of(options)) {
    for (int i = 0; i < group.count; ++i) {
      const std::string pod = fmt::format("{}-{}-{}", named.name, group.name, i);
      place.hosts.push_back(
          kind == BackendKind::kDijob
              ? fmt::format("{}.di-{}.{}.svc.cluster.local", pod, named.name, space)
              : fmt::format("{}.{}", pod, named.name));
    }
  }
  return make_job(named, kind, entry, place);
}

std::vector<json::Value> dijob_documents(const RunJob& job, const std::string& zip) {
  std::vector<json::Value> documents;
  if (!zip.empty()) documents.push_back(config_map(job, zip));
  json::Value dijob;
  dijob["apiVersion"] = "diengine.opendilab.org/v2alpha1";
  dijob["kind"] = "DIJob";
  dijob["metadata"] = metadata(job, job.name);
  json::Value& spec = dijob["spec"];
  // As everywhere: the first failure is the job's end.
  spec["backoffLimit"] = 0;
  spec["cleanPodPolicy"] = "Running";
  if (const auto seconds = deadline_seconds(job.options)) spec["activeDeadlineSeconds"] = *seconds;
  json::Array tasks;
  for (const Group& group : groups_of(job.options)) {
    json::Value task;
    task["name"] = group.name;
    task["type"] = "none";
    task["replicas"] = group.count;
    task["template"]["spec"] =
        pod_spec(job, {ditask_words(job, group.gpu), group.gpu, job.options.environment});
    tasks.push_back(std::move(task));
  }
  spec["tasks"] = std::move(tasks);
  documents.push_back(std::move(dijob));
  return documents;
}

std::vector<json::Value> job_documents(const RunJob& job, const std::string& zip) {
  std::vector<json::Value> documents;
  if (!zip.empty()) documents.push_back(config_map(job, zip));
  documents.push_back(headless_service(job));
  std::string nodes;
  for (const RunWorker& worker : job.workers) {
    nodes += (nodes.empty() ? "" : ",") + worker.host;
  }
  for (const Group& group : groups_of(job.options)) {
    documents.push_back(indexed_job(job, group, nodes));
  }
  return documents;
}

}  // namespace divisi::run
