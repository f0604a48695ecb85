#include "dijob/testing/sim_cluster.h"

#include "base/status.h"
#include "json/yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace divisi::dijob::testing {
namespace {

// A test's own text: that it can be read is the test's business.
json::Value read_yaml(std::string_view text) {
  auto value = json::parse_yaml_one(text);
  DIVISI_CHECK(value, "the test's YAML can be read");
  return *std::move(value);
}

std::string_view job_label(const json::Value& object) {
  const std::string_view job = object.string_at({"metadata", "labels", "diengine/job"});
  return job.empty() ? object.string_at({"metadata", "labels", "dijob-name"}) : job;
}

}  // namespace

struct SimCluster::Instance {
  Instance(SimCluster& cluster, OperatorOptions options)
      : client(cluster.loop, cluster.api), jobs(client, std::move(options)) {}

  kube::Client client;
  Operator jobs;
};

SimCluster::SimCluster(std::uint64_t seed) : api(loop, seed), kubelet(loop, api, seed * 7919 + 1) {
  api.store.on_change = [this](const Change& change) {
    kubelet.see(change);
    if (on_change) on_change(change);
  };
  kubelet.register_nodes();
}

SimCluster::~SimCluster() {
  crash_all();
}

std::size_t SimCluster::start_operator() {
  OperatorOptions options;
  options.force_delete_after = force_delete_after;
  options.wall_clock = [this] { return loop.wall() + skew; };
  options.instance = fmt::format("di-operator-{}", operators_.size());
  if (configure) configure(options);
  operators_.push_back(std::make_unique<Instance>(*this, std::move(options)));
  operators_.back()->jobs.use_secret_key(secret_key);
  operators_.back()->jobs.start();
  return operators_.size() - 1;
}

void SimCluster::crash_operator(std::size_t which) {
  operators_.at(which).reset();
}

void SimCluster::crash_all() {
  for (auto& instance : operators_) instance.reset();
}

std::size_t SimCluster::running_operators() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(operators_, [](const auto& instance) { return instance != nullptr; }));
}

std::string SimCluster::create_job(std::string_view yaml) {
  json::Value object = read_yaml(yaml);
  object["apiVersion"] = "diengine.opendilab.org/v2alpha1";
  object["kind"] = "DIJob";
  const std::string name(object.string_at({"metadata", "name"}));
  request("POST", "", object);
  return std::string(job(name).string_at({"metadata", "uid"}));
}

void SimCluster::edit_job(const std::string& job, std::string_view yaml) {
  request("PATCH", "/" + job, read_yaml(yaml));
}

void SimCluster::edit_status(const std::string& job, std::string_view yaml) {
  json::Value patch;
  patch["status"] = read_yaml(yaml);
  request("PATCH", "/" + job + "/status", patch);
}

void SimCluster::delete_job(const std::string& job) {
  request("DELETE", "/" + job, json::Value(json::Object{}));
}

// As a user's own client does it: at once, and nothing of it is ever lost.
void SimCluster::request(const std::string& method, const std::string& name,
                         const json::Value& body) {
  http::Request request;
  request.method = method;
  request.target = "/apis/diengine.opendilab.org/v2alpha1/namespaces/default/dijobs" + name;
  request.body = json::print(body);
  const auto path = kube::ApiPath::parse(request.target);
  DIVISI_CHECK(path, "the path of a job");
  const http::Response response = api.verbs.answer(request, *path);
  DIVISI_CHECK(response.status < 300, "the server takes what the test asks of it");
  api.look_for_orphans();
  api.changed();
}

bool SimCluster::has_job(const std::string& job) const {
  return api.store.find(kJobs, in_default(job)) != nullptr;
}

json::Value SimCluster::job(const std::string& job) const {
  const json::Value* found = api.store.find(kJobs, in_default(job));
  return found == nullptr ? json::Value() : *found;
}

std::string SimCluster::phase(const std::string& job) const {
  return std::string(this->job(job).string_at({"status", "phase"}));
}

std::int64_t SimCluster::status(const std::string& job, std::string_view number) const {
  return this->job(job).int_at({"status", number}).value_or(0);
}

json::Value SimCluster::condition(const std::string& job, std::string_view type) const {
  const json::Value object = this->job(job);
  const json::Value* conditions = object.find_path({"status", "conditions"});
  if (conditions == nullptr || conditions->as_array() == nullptr) return {};
  for (const json::Value& condition : *conditions->as_array()) {
    if (condition.string_at({"type"}) == type) return condition;
  }
  return {};
}

std::vector<json::Value> SimCluster::pods(const std::string& job) const {
  std::vector<json::Value> found;
  for (const auto& [key, pod] : api.store.all(kPods)) {
    if (job_label(pod) == job) found.push_back(pod);
  }
  return found;
}

std::vector<std::string> SimCluster::names_of(const char* collection,
                                              const std::string& job) const {
  std::vector<std::string> names;
  for (const auto& [key, object] : api.store.all(collection)) {
    if (job_label(object) == job) names.emplace_back(object.string_at({"metadata", "name"}));
  }
  return names;
}

std::vector<std::string> SimCluster::pod_names(const std::string& job) const {
  return names_of(kPods, job);
}

std::vector<std::string> SimCluster::services(const std::string& job) const {
  return names_of(kServices, job);
}

json::Value SimCluster::pod(const std::string& name) const {
  const json::Value* found = api.store.find(kPods, in_default(name));
  return found == nullptr ? json::Value() : *found;
}

std::string SimCluster::uid(const std::string& pod) const {
  return std::string(this->pod(pod).string_at({"metadata", "uid"}));
}

std::vector<std::string> SimCluster::events(const std::string& job) const {
  std::vector<std::string> texts;
  for (const auto& [key, event] : api.store.all(kEvents)) {
    if (event.string_at({"involvedObject", "name"}) != job) continue;
    texts.push_back(fmt::format("{} {}: {}", event.string_at({"type"}), event.string_at({"reason"}),
                                event.string_at({"message"})));
  }
  return texts;
}

void SimCluster::run_all(const std::string& job) {
  for (const std::string& name : pod_names(job)) kubelet.run(in_default(name));
}

void SimCluster::succeed_all(const std::string& job) {
  for (const std::string& name : pod_names(job)) kubelet.succeed(in_default(name));
}

void SimCluster::delete_pod(const std::string& name) {
  if (api.store.find(kPods, in_default(name)) == nullptr) return;
  api.verbs.remove(kPods, in_default(name));
  api.changed();
}

std::string env_of(const json::Value& pod, std::string_view name) {
  const json::Value* containers = pod.find_path({"spec", "containers"});
  if (containers == nullptr || containers->as_array() == nullptr) return {};
  if (containers->as_array()->empty()) return {};
  const json::Value* env = containers->as_array()->front().find("env");
  if (env == nullptr || env->as_array() == nullptr) return {};
  std::string value;  // of several of one name the last one counts
  for (const json::Value& variable : *env->as_array()) {
    if (variable.string_at({"name"}) == name) value = variable.string_at({"value"});
  }
  return value;
}

}  // namespace divisi::dijob::testing
