#include "local/kubelet.h"

#include "io/crypto.h"
#include "kube/resource.h"
#include "local/pod_run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <utility>

namespace divisi::local {
namespace {

constexpr const char* kPodCollection = "/api/v1/pods";
constexpr const char* kNodeName = "local";

std::string collection_of(std::string_view kind) {
  return kind == "Secret" ? "/api/v1/secrets" : "/api/v1/configmaps";
}

// Where a cluster's addresses begin: two of them side by side rarely meet.
std::uint32_t random_start() {
  const std::uint64_t random = io::random_u64();
  return (std::uint32_t{127} << 24) | (static_cast<std::uint32_t>(1 + random % 250) << 16) |
         (static_cast<std::uint32_t>(random >> 32) & 0xff00U);
}

}  // namespace

Kubelet::Kubelet(io::Reactor& reactor, kube::MemoryApi& api, KubeletOptions options)
    : reactor_(reactor), api_(api), options_(std::move(options)), next_address_(random_start()) {
  for (int gpu = 0; gpu < options_.gpus; ++gpu) free_gpus_.insert(gpu);
  api_.store.on_change = [this](const kube::MemoryStore::Change& change) { see(change); };
  std::ofstream(hosts_file(), std::ios::trunc)
      << "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";
}

Kubelet::~Kubelet() {
  api_.store.on_change = nullptr;
}

std::string Kubelet::take_address() {
  // .0 and .255 of a network are addresses like any other here, but look wrong.
  do {
    ++next_address_;
  } while ((next_address_ & 0xff) == 0 || (next_address_ & 0xff) == 255);
  return fmt::format("127.{}.{}.{}", (next_address_ >> 16) & 0xff, (next_address_ >> 8) & 0xff,
                     next_address_ & 0xff);
}

// Appends: running pods have the file mounted and may read it at any moment.
void Kubelet::add_host(const std::string& address, const std::vector<std::string>& names) {
  if (!named_.insert(address).second) return;
  std::ofstream(hosts_file(), std::ios::app)
      << fmt::format("{} {}\n", address, fmt::join(names, " "));
}

const json::Value* Kubelet::find_object(const std::string& space, std::string_view kind,
                                        std::string_view name) const {
  return api_.store.find(collection_of(kind), kube::object_key(space, name));
}

void Kubelet::limit(const std::string& line) {
  if (said_.insert(line).second) options_.on_limit(line);
}

std::vector<int> Kubelet::take_gpus(int count) {
  if (static_cast<int>(free_gpus_.size()) < count) {
    limit(fmt::format("a pod asks for {} GPU{}: of the {} of this machine {} are free", count,
                      count == 1 ? "" : "s", options_.gpus, free_gpus_.size()));
  }
  std::vector<int> taken;
  while (!free_gpus_.empty() && static_cast<int>(taken.size()) < count) {
    taken.push_back(free_gpus_.extract(free_gpus_.begin()).value());
  }
  return taken;
}

void Kubelet::return_gpus(const std::vector<int>& devices) {
  free_gpus_.insert(devices.begin(), devices.end());
}

// The store must not be changed while it tells of a change.
void Kubelet::see(const kube::MemoryStore::Change& change) {
  std::vector<std::string> keys;
  if (change.collection == kPodCollection) {
    keys.push_back(kube::object_key(change.object.string_at({"metadata", "namespace"}),
                                    change.object.string_at({"metadata", "name"})));
  } else if (change.collection == collection_of("Secret") ||
             change.collection == collection_of("ConfigMap")) {
    for (const auto& [key, pod] : pods_) {
      if (pod->waits()) keys.push_back(key);
    }
  }
  for (const std::string& key : keys) {
    reactor_.post([this, weak = std::weak_ptr(alive_), key] {
      if (weak.lock() != nullptr) look(key);
    });
  }
}

void Kubelet::look(const std::string& key) {
  const json::Value* pod = api_.store.find(kPodCollection, key);
  const auto known = pods_.find(key);
  if (known != pods_.end() &&
      (pod == nullptr || pod->string_at({"metadata", "uid"}) != known->second->uid())) {
    pods_.erase(known);
  }
  if (pod == nullptr) return;
  const auto run = pods_.find(key);
  if (pod->find_path({"metadata", "deletionTimestamp"}) != nullptr) {
    if (run != pods_.end()) run->second->terminate();
    return;
  }
  if (run == pods_.end()) return admit(key, *pod);
  if (run->second->waits()) run->second->begin();
}

void Kubelet::admit(const std::string& key, const json::Value& pod) {
  name_pod(key, pod);
  json::Value placed = pod;
  placed["spec"]["nodeName"] = kNodeName;
  placed["status"]["podIP"] = addresses_[key];
  api_.store.update(kPodCollection, key, std::move(placed));
  api_.changed();
  const auto [made, fresh] =
      pods_.emplace(key, std::make_unique<PodRun>(reactor_, api_, *this, key, addresses_[key]));
  made->second->begin();
}

// The names of a pod on a cluster: its own behind its subdomain, and that of a service for it
// alone.
void Kubelet::name_pod(const std::string& key, const json::Value& pod) {
  if (!addresses_.contains(key)) addresses_[key] = take_address();
  const auto [space, name] = kube::split_key(key);
  const std::string subdomain(pod.string_at({"spec", "subdomain"}));
  std::vector<std::string> names;
  for (const std::string& service :
       {subdomain.empty() ? std::string() : fmt::format("{}.{}", name, subdomain),
        std::string(name)}) {
    if (service.empty()) continue;
    const std::string full = fmt::format("{}.{}", service, space);
    names.push_back(fmt::format("{}.{}", full, options_.service_domain));
    names.push_back(full + ".svc");
    names.push_back(full);
    names.push_back(service);
  }
  add_host(addresses_[key], names);
}

}  // namespace divisi::local
