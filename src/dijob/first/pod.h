// Pods and services of a first-generation job: made from its templates, and read back from the
// cluster. Pure.
#pragma once

#include "dijob/amounts.h"
#include "dijob/first/job.h"
#include "dijob/first/names.h"
#include "json/value.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::dijob::first {

// The place of a pod in its DDP group: which ranks it holds.
struct DdpPlace {
  int world_size = 1;    // GPUs of the group
  int gpus = 1;          // of this pod
  int start_rank = 0;    // GPUs of the pods before it
  bool several = false;  // the group has more than one pod
  std::string master{};  // name of the group's first pod; empty: it is this one
};

// A pod to make.
struct PodWish {
  Role role = Role::kCollector;
  std::string name{};
  const json::Value* pod_template = nullptr;  // stays
  // Overwrites requests and limits of the main container; amounts of zero leave them as they are.
  Amounts resources{};
  std::optional<DdpPlace> ddp{};  // DDP learners
  std::string aggregator_name{};  // DDP learners: the pod that owns them beside the job
  std::string aggregator_uid{};
  std::string aggregator_url{};   // G0: given to the coordinator and the aggregator
  std::string coordinator_uid{};  // workers: who asked for them
};

// `server_url`: the value of KUBERNETES_SERVER_URL.
json::Value make_pod(const Job& job, const PodWish& wish, std::string_view server_url);

// The headless service of the same name, for a pod as the server has it (or made by make_pod()).
json::Value make_service(const json::Value& pod);

// A pod that takes the place of `pod`: its owners, labels, annotations and spec under another name.
json::Value make_replacement(const json::Value& pod, const std::string& name);

// `pod_spec` is a pod's or a template's `spec`.
const json::Value* main_container(const json::Value& pod_spec, Role role);
// The port that the main container declares as `di-port` or under the name of its role.
int main_port(const json::Value& pod_spec, Role role);
// Of the main container; its limits win over its requests.
int gpus_of(const json::Value& pod_spec, Role role);

// --- pods that exist ---

struct Pod {
  std::string space{};
  std::string name{};
  std::string uid{};
  Role role = Role::kCollector;
  std::string phase{};  // Pending, Running, Succeeded, Failed, Unknown
  bool terminating = false;
  bool ready = false;
  std::optional<int> exit_code{};  // of the main container, while it is terminated
  bool any_ended = false;          // a container terminated, or waits with CrashLoopBackOff
  bool sidecars_run = false;       // the main container has ended, another one has not
  std::string node{};              // where it runs
  int port = 0;
  int gpus = 0;
  std::string owner{};            // name of the DIJob that owns it; empty: none does
  std::string owner_uid{};        // of that DIJob
  bool controlled = false;        // it has a controller, whoever that is
  std::string aggregator_uid{};   // DDP learners: of the pod that owns them beside the job
  std::string coordinator_uid{};  // who asked for it
  std::string created{};          // RFC 3339

  bool live() const noexcept { return !terminating; }
  bool over() const noexcept { return phase == "Failed" || phase == "Succeeded"; }
  // What cleanPodPolicy Running deletes: not a pod whose containers have all ended.
  bool is_cleaned() const noexcept {
    return (phase == "Running" || phase == "Pending") && (!any_ended || sidecars_run);
  }
  // As replicaStatus counts it: when only sidecars still run, the main container decides.
  // "active", "succeeded", "failed", or "" for a pod that has not begun.
  std::string_view outcome() const noexcept;
  // "<pod>.<space>:<port>", as clients take it apart.
  std::string url() const;
  // A DDP learner's ports: of each of its ranks.
  std::vector<std::string> rank_urls() const;
};

// Nothing: the object has not the labels of such a pod.
std::optional<Pod> read_pod(const json::Value& object);

// Removes what read_pod(), make_service() and the planner do not look at: for caches.
void strip_pod(json::Value& object);

}  // namespace divisi::dijob::first
