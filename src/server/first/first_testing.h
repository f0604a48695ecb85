// FirstFixture: the Api over an API server in memory that has first-generation jobs.
#pragma once

#include "dijob/first/pod.h"
#include "server/api_testing.h"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace divisi::server::first::testing {

using namespace server::testing;
using dijob::first::Pod;
using dijob::first::Role;

inline constexpr const char* kConfigs = "/apis/diengine.opendilab.org/v1alpha1/aggregatorconfigs";
inline constexpr const char* kNodes = "/api/v1/nodes";
inline constexpr const char* kReplicas = "/v1alpha1/replicas";
inline constexpr const char* kFailed = "/v1alpha1/replicas/failed";

class FirstFixture : public ApiFixture {
 protected:
  FirstFixture() {
    put_job();
    put_coordinator();
    put_config();
  }

  static json::Value job_object(const std::string& name) {
    json::Value job =
        *json::parse(R"({"apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "DIJob",
      "spec": {"priorityClassName": "high", "volumes": [{"name": "work", "emptyDir": {}}],
      "coordinator": {"template": {"spec": {"containers": [{"name": "di-container", "image": "i"}]}}},
      "collector": {"template": {"spec": {"containers": [{"name": "di-container", "image": "i",
        "ports": [{"name": "di-port", "containerPort": 80}]}]}}},
      "learner": {"template": {"spec": {"containers": [{"name": "side", "image": "s"},
        {"name": "di-container", "image": "i", "ports": [{"name": "di-port", "containerPort": 80}],
         "resources": {"limits": {"cpu": "6"}, "requests": {"cpu": "3", "memory": "1Gi"}}}]}}}}})");
    job["metadata"]["name"] = name;
    return job;
  }
  void put_job(const std::string& name = "rl") { put(kJobs, job_object(name)); }
  // Without what makes it one of another job.
  json::Value pod_object(const std::string& name, const std::string& role,
                         const std::string& job_name) const {
    json::Value pod = *json::parse(R"({"apiVersion": "v1", "kind": "Pod",
        "spec": {"containers": [{"name": "di-container", "image": "i"}]},
        "status": {"phase": "Running"}})");
    json::Value& metadata = pod["metadata"];
    metadata["name"] = name;
    metadata["labels"] = json::Object{{"group-name", "diengine.opendilab.org"},
                                      {"controller-name", "di-operator"},
                                      {"dijob-name", job_name},
                                      {"replica-type", role},
                                      {"pod-name", name}};
    const json::Value* owner = cluster_.store.find(kJobs, "default/" + job_name);
    if (owner != nullptr) {
      metadata["ownerReferences"] =
          json::Array{json::Object{{"apiVersion", "diengine.opendilab.org/v1alpha1"},
                                   {"kind", "DIJob"},
                                   {"name", job_name},
                                   {"uid", owner->string_at({"metadata", "uid"})},
                                   {"controller", true}}};
    }
    return pod;
  }
  void put_coordinator(const std::string& job_name = "rl") {
    put(kPods, pod_object(job_name + "-coordinator", "coordinator", job_name));
  }
  // As the operator does: the same name, another uid.
  void recreate_coordinator(const std::string& job_name = "rl") {
    remove(kPods, job_name + "-coordinator");
    loop_.run_for(2s);
    put_coordinator(job_name);
  }
  void put_config() {
    json::Value config = *json::parse(R"({"apiVersion": "diengine.opendilab.org/v1alpha1",
      "kind": "AggregatorConfig", "metadata": {"name": "aggregator-config", "namespace": "di-system"},
      "spec": {"aggregator": {"template": {"spec": {"containers": [{"name": "di-container", "image": "a",
        "ports": [{"name": "di-port", "containerPort": 22270}]}]}}}}})");
    cluster_.store.create(kConfigs, "di-system/aggregator-config", std::move(config),
                          "2026-01-01T00:00:00Z");
  }
  void put_nodes(const std::vector<int>& gpus) {
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      const std::string name = fmt::format("node-{}", i);
      json::Value node;
      node["metadata"]["name"] = name;
      node["status"]["allocatable"]["cpu"] = "64";
      if (gpus[i] > 0) node["status"]["allocatable"]["nvidia.com/gpu"] = std::to_string(gpus[i]);
      cluster_.store.create(kNodes, name, std::move(node), "2026-01-01T00:00:00Z");
    }
  }

  static std::string demand(const std::string& sizes, const std::string& job_name = "rl") {
    return fmt::format(R"({{"namespace":"default","coordinator":"{}-coordinator"{}{}}})", job_name,
                       sizes.empty() ? "" : ",", sizes);
  }
  static std::string counts(int collectors, int learners) {
    return fmt::format(R"("collectors":{{"replicas":{}}},"learners":{{"replicas":{}}})", collectors,
                       learners);
  }
  std::shared_ptr<Seen> post(const std::string& sizes, const std::string& job_name = "rl") {
    return ask("POST", kReplicas, demand(sizes, job_name));
  }
  std::shared_ptr<Seen> get(const std::string& coordinator = "rl-coordinator") {
    return ask("GET", fmt::format("{}?namespace=default&coordinator={}", kReplicas, coordinator),
               "{}");
  }
  std::shared_ptr<Seen> report(const std::vector<std::string>& collectors,
                               const std::vector<std::string>& learners) {
    json::Value body;
    body["namespace"] = "default";
    body["coordinator"] = "rl-coordinator";
    body["collectors"] = json::Array(collectors.begin(), collectors.end());
    body["learners"] = json::Array(learners.begin(), learners.end());
    return ask("POST", kFailed, json::print(body));
  }

  static std::vector<std::string> urls(const Seen& seen, std::string_view list) {
    std::vector<std::string> all;
    const json::Value answer = seen.json();
    const json::Value* found = answer.find_path({"data", list});
    if (found == nullptr || found->as_array() == nullptr) return all;
    for (const json::Value& each : *found->as_array()) all.push_back(*each.as_string());
    return all;
  }
  static std::string pod_of(const std::string& url) { return url.substr(0, url.find('.')); }
  static std::string data_of(const Seen& seen) {
    const json::Value answer = seen.json();
    const json::Value* data = answer.find("data");
    return data == nullptr ? "missing" : json::print(*data);
  }

  // As the collector of garbage does: references to pods that are gone go, where the job owns the
  // pod as well.
  void drop_dangling_owners() {
    for (const json::Value* each : objects(Role::kDdpLearner)) {
      json::Value pod = *each;
      json::Value& owners = *pod["metadata"].find("ownerReferences");
      std::erase_if(*owners.as_array(), [&](const json::Value& owner) {
        return !cluster_.store.has_uid(std::string(owner.string_at({"uid"})));
      });
      put(kPods, std::move(pod));
    }
  }
  // Pods of the cluster, also those that terminate.
  std::vector<const json::Value*> objects(Role role, const std::string& job_name = "rl") const {
    std::vector<const json::Value*> found;
    for (const auto& [key, object] : cluster_.store.all(kPods)) {
      const auto pod = dijob::first::read_pod(object);
      if (pod && pod->role == role && pod->owner == job_name) found.push_back(&object);
    }
    return found;
  }
  std::size_t count(Role role, const std::string& job_name = "rl") const {
    return objects(role, job_name).size();
  }
  std::size_t count_pods() const { return cluster_.store.all(kPods).size(); }
  json::Value pod_named(const std::string& name) const {
    const json::Value* found = cluster_.store.find(kPods, "default/" + name);
    return found == nullptr ? json::Value() : *found;
  }
  static std::string variable(const json::Value& pod, std::string_view name) {
    std::string value;
    for (const json::Value& container : *pod.find_path({"spec", "containers"})->as_array()) {
      if (container.find("env") == nullptr) continue;
      for (const json::Value& each : *container.find("env")->as_array()) {
        if (each.string_at({"name"}) == name) value = each.string_at({"value"});
      }
    }
    return value;
  }
  // Ports of the DDP learners, without that where ranks meet.
  std::size_t count_gpu_ports() const {
    std::size_t ports = 0;
    for (const json::Value* pod : objects(Role::kDdpLearner)) {
      for (const json::Value& container : *pod->find_path({"spec", "containers"})->as_array()) {
        if (container.find("ports") == nullptr) continue;
        for (const json::Value& port : *container.find("ports")->as_array()) {
          ports += port.string_at({"name"}) == "master-port" ? 0U : 1U;
        }
      }
    }
    return ports;
  }
};

}  // namespace divisi::server::first::testing
