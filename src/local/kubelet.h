// Kubelet: runs the pods of a MemoryApi as processes of this machine and writes their status.
//
//   pod created ─▶ volumes filled ─▶ init containers, one by one ─▶ containers ─▶ Succeeded, Failed
//                                             deletion requested ─▶ SIGTERM, grace, removed
//
// Every pod has an address of its own in 127.0.0.0/8 and the names of all pods in its /etc/hosts,
// so programs reach each other by the names that they have on a cluster. Loop only.
#pragma once

#include "base/status.h"
#include "io/reactor.h"
#include "kube/memory/api.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::local {

class PodRun;

struct KubeletOptions {
  std::string folder{};  // of the job: pods/, logs/, hosts
  std::string service_domain = "svc.cluster.local";
  int gpus = 0;         // of this machine
  std::string guard{};  // of containers, see there
  // One line of the output of a container; from its thread.
  std::function<void(std::string_view pod, std::string_view container, std::string_view line)>
      on_output = [](std::string_view, std::string_view, std::string_view) {};
  // What a process cannot be, each line once.
  std::function<void(std::string_view line)> on_limit = [](std::string_view) {};
};

class Kubelet {
 public:
  Kubelet(io::Reactor& reactor, kube::MemoryApi& api, KubeletOptions options);
  ~Kubelet();  // kills what still runs

  // The next free address of this cluster, "127.x.y.z".
  std::string take_address();
  // These names lead to that address in every pod.
  void add_host(const std::string& address, const std::vector<std::string>& names);

  // --- for PodRun ---
  const KubeletOptions& options() const noexcept { return options_; }
  std::string hosts_file() const { return options_.folder + "/hosts"; }
  const json::Value* find_object(const std::string& space, std::string_view kind,
                                 std::string_view name) const;
  void limit(const std::string& line);
  // Devices for CUDA_VISIBLE_DEVICES: as many of `count` as are free.
  std::vector<int> take_gpus(int count);
  void return_gpus(const std::vector<int>& devices);

 private:
  void see(const kube::MemoryStore::Change& change);
  void look(const std::string& key);
  void admit(const std::string& key, const json::Value& pod);
  void name_pod(const std::string& key, const json::Value& pod);

  io::Reactor& reactor_;
  kube::MemoryApi& api_;
  const KubeletOptions options_;
  std::map<std::string, std::unique_ptr<PodRun>> pods_;  // by "space/name"
  std::map<std::string, std::string> addresses_;         // by "space/name"; kept for the next pod
  std::set<std::string> named_;                          // addresses that are in the hosts file
  std::set<std::string> said_;
  std::set<int> free_gpus_;
  std::uint32_t next_address_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace divisi::local
