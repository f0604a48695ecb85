#include "local/cluster.h"

#include "dijob/names.h"
#include "dijob/operator.h"
#include "io/crypto.h"
#include "json/yaml.h"
#include "kube/client.h"
#include "kube/resource.h"
#include "local/sandbox.h"
#include "server/server.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>

namespace divisi::local {
namespace {

constexpr const char* kDijobCollection = "/apis/diengine.opendilab.org/v2alpha1/dijobs";
constexpr const char* kPodsOfJob = "/api/v1/pods";
constexpr const char* kServer = "di-server.di-system";

struct Known {
  std::string_view kind;
  std::string_view collection;
};
constexpr std::array kKnown{
    Known{"ConfigMap", "/api/v1/configmaps"},
    Known{"Secret", "/api/v1/secrets"},
    Known{"AggregatorConfig", "/apis/diengine.opendilab.org/v1alpha1/aggregatorconfigs"},
};

const Known* known(const json::Value& object) {
  const auto found = std::ranges::find(kKnown, object.string_at({"kind"}), &Known::kind);
  return found == kKnown.end() ? nullptr : &*found;
}

std::string namespace_of(const json::Value& object) {
  const std::string_view space = object.string_at({"metadata", "namespace"});
  return space.empty() ? "default" : std::string(space);
}

int count_gpus() {
  int count = 0;
  std::error_code ignored;
  while (std::filesystem::exists(fmt::format("/dev/nvidia{}", count), ignored)) ++count;
  return count;
}

class MemoryCluster final : public Cluster {
 public:
  MemoryCluster(io::Reactor& reactor, ClusterOptions options)
      : options_(std::move(options)),
        api_(reactor),
        client_(reactor, api_),
        kubelet_(reactor, api_,
                 {.folder = options_.folder,
                  .gpus = count_gpus(),
                  .guard = options_.guard,
                  .on_output = options_.on_output,
                  .on_limit = options_.on_limit}),
        reactor_(reactor) {
    const auto kubelet = std::move(api_.store.on_change);
    api_.store.on_change = [this, kubelet](const kube::MemoryStore::Change& change) {
      kubelet(change);
      see(change);
    };
  }

  ~MemoryCluster() override {
    api_.store.on_change = nullptr;
    if (server_ != nullptr) server_.reset();
  }

  Status begin(Manifest manifest) {
    const std::string address = kubelet_.take_address();
    DIVISI_TRY_STATUS(serve(address));
    kubelet_.add_host(address, {std::string(kServer) + ".svc.cluster.local",
                                std::string(kServer) + ".svc", kServer, "ding-server.ding-system"});
    for (json::Value& object : manifest.others) {
      const std::string collection(known(object)->collection);
      DIVISI_TRY_STATUS(create(collection, std::move(object)));
    }
    space_ = namespace_of(manifest.job);
    name_ = manifest.job.string_at({"metadata", "name"});
    jobs_.emplace(client_, operator_options());
    jobs_->use_secret_key(fmt::format("{:016x}{:016x}", io::random_u64(), io::random_u64()));
    jobs_->start();
    return create(kDijobCollection, std::move(manifest.job));
  }

  json::Value job() const override {
    const json::Value* found = api_.store.find(kDijobCollection, kube::object_key(space_, name_));
    return found == nullptr ? json::Value() : *found;
  }

  std::vector<json::Value> pods() const override {
    std::vector<json::Value> out;
    for (const auto& [key, pod] : api_.store.all(kPodsOfJob)) out.push_back(pod);
    return out;
  }

  std::string phase() const override { return phase_; }
  int exit_code() const override { return phase_ == "Succeeded" ? 0 : std::max(last_failure_, 1); }
  http::Response request(const http::Request& request) override { return api_.answer(request); }

  void remove(std::function<void()> done) override {
    removed_ = std::move(done);
    const std::string key = kube::object_key(space_, name_);
    if (api_.store.find(kDijobCollection, key) != nullptr) {
      api_.verbs.remove(kDijobCollection, key);
      api_.verbs.collect_garbage();
      api_.changed();
    }
    end_if_empty();
  }

 private:
  // After serve(), which decides the ports.
  dijob::OperatorOptions operator_options() const {
    dijob::OperatorOptions options;
    options.instance = "local";
    options.force_delete_after = {};  // the one node is this machine
    options.names.server_url =
        fmt::format("http://{}.svc.cluster.local:{}", kServer, server_->api_address().port);
    options.first_server_url = fmt::format("{}:{}", kServer, server_->probe_address().port);
    return options;
  }

  // The address is of this job alone, but a program of this machine may listen on one of the ports
  // at all addresses. Then the ports are chosen by the kernel, and the pods' variables have them.
  Status serve(const std::string& address) {
    server::ServerOptions options;
    options.api.host = address;
    options.api.port = options_.api_port;
    options.probe.host = address;
    options.probe.port = options_.probe_port;
    auto server = server::Server::start(reactor_, client_, options);
    if (!server) {
      options.api.port = 0;
      options.probe.port = 0;
      server = server::Server::start(reactor_, client_, options);
      if (!server) return server.error().with_context("di-server of this job");
      options_.on_limit(fmt::format(
          "port {} or {} is taken on all addresses of this machine: di-server of this "
          "job is on {} and {}, as DI_SERVER_URL and KUBERNETES_SERVER_URL of the pods say",
          options_.api_port, options_.probe_port, (*server)->api_address().port,
          (*server)->probe_address().port));
    }
    server_ = *std::move(server);
    return {};
  }

  Status create(const std::string& collection, json::Value object) {
    const std::string space = namespace_of(object);
    object["metadata"]["namespace"] = space;
    const std::size_t slash = collection.rfind('/');
    http::Request request;
    request.method = "POST";
    request.target = fmt::format("{}/namespaces/{}{}", collection.substr(0, slash), space,
                                 collection.substr(slash));
    request.body = json::print(object);
    const http::Response answer = api_.answer(request);
    if (answer.status < 300) return {};
    return make_status(Code::kInvalid, "{} \"{}\": {}", object.string_at({"kind"}),
                       object.string_at({"metadata", "name"}), answer.body);
  }

  // While the store tells of a change: nothing may be written here.
  void see(const kube::MemoryStore::Change& change) {
    if (change.collection == kPodsOfJob) {
      note_failure(change.object);
      if (options_.on_pod) options_.on_pod(change.object, change.type == "DELETED");
      if (change.type == "DELETED")
        reactor_.post([this, weak = std::weak_ptr(alive_)] {
          if (weak.lock() != nullptr) end_if_empty();
        });
    }
    if (change.collection != kDijobCollection || change.type == "DELETED") return;
    const std::string_view phase = change.object.string_at({"status", "phase"});
    if (phase.empty() || phase == phase_) return;
    phase_ = phase;
    options_.on_phase(phase, message_of(change.object, phase));
  }

  void note_failure(const json::Value& pod) {
    const json::Value* statuses = pod.find_path({"status", "containerStatuses"});
    if (statuses == nullptr || statuses->as_array() == nullptr) return;
    for (const json::Value& status : *statuses->as_array()) {
      const auto code = status.int_at({"state", "terminated", "exitCode"});
      if (code.value_or(0) != 0) last_failure_ = static_cast<int>(*code);
    }
  }

  static std::string message_of(const json::Value& job, std::string_view phase) {
    const json::Value* conditions = job.find_path({"status", "conditions"});
    if (conditions == nullptr || conditions->as_array() == nullptr) return "";
    for (const json::Value& condition : *conditions->as_array()) {
      if (condition.string_at({"type"}) == phase)
        return std::string(condition.string_at({"message"}));
    }
    return "";
  }

  void end_if_empty() {
    if (!removed_ || !api_.store.all(kPodsOfJob).empty()) return;
    std::exchange(removed_, nullptr)();
  }

  const ClusterOptions options_;
  kube::MemoryApi api_;
  kube::Client client_;
  Kubelet kubelet_;
  std::optional<dijob::Operator> jobs_;
  std::unique_ptr<server::Server> server_;
  io::Reactor& reactor_;
  std::string space_;
  std::string name_;
  std::string phase_;
  int last_failure_ = 0;
  std::function<void()> removed_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

Status add_object(Manifest& manifest, json::Value object) {
  if (object.is_null()) return {};
  const std::string kind(object.string_at({"kind"}));
  if (kind == "List") {
    json::Value* items = object.find("items");
    if (items == nullptr || items->as_array() == nullptr) return {};
    for (json::Value& item : *items->as_array())
      DIVISI_TRY_STATUS(add_object(manifest, std::move(item)));
    return {};
  }
  if (object.string_at({"metadata", "name"}).empty()) {
    return make_status(Code::kInvalid, "an object of kind {} has no metadata.name",
                       kind.empty() ? "(none)" : kind);
  }
  if (kind == "DIJob") {
    if (!manifest.job.is_null()) {
      return make_status(Code::kInvalid, "two DIJobs, {} and {}: run them one by one",
                         manifest.job.string_at({"metadata", "name"}),
                         object.string_at({"metadata", "name"}));
    }
    manifest.job = std::move(object);
    return {};
  }
  if (known(object) == nullptr) {
    return make_status(Code::kInvalid,
                       "kind {} needs a cluster; without one there are DIJob, ConfigMap, Secret "
                       "and AggregatorConfig",
                       kind.empty() ? "(none)" : kind);
  }
  manifest.others.push_back(std::move(object));
  return {};
}

}  // namespace

Result<Manifest> read_manifest(std::string_view text) {
  DIVISI_TRY(std::vector<json::Value> documents, json::parse_yaml(text));
  Manifest manifest;
  for (json::Value& document : documents)
    if (Status status = add_object(manifest, std::move(document)); !status.ok())
      return failure(std::move(status));
  if (manifest.job.is_null()) return failure(Code::kInvalid, "there is no object of kind DIJob");
  return manifest;
}

Result<std::unique_ptr<Cluster>> Cluster::start(io::Reactor& reactor, Manifest manifest,
                                                ClusterOptions options) {
  if (const auto sandbox = find_bubblewrap(); !sandbox) return failure(sandbox.error());
  auto made = std::make_unique<MemoryCluster>(reactor, std::move(options));
  if (Status status = made->begin(std::move(manifest)); !status.ok())
    return failure(std::move(status));
  return made;
}

}  // namespace divisi::local
