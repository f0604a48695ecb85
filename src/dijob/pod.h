// What a job is made of on the cluster: the pods, the service that names them, the secret.
#pragma once

#include "dijob/job.h"
#include "dijob/pod_trouble.h"
#include "json/value.h"

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::dijob {

// One replica: of a task, or of the template form (whose task is "").
struct Slot {
  std::string task{};
  int index = 0;  // within the task
  int rank = 0;   // within the job

  friend auto operator<=>(const Slot&, const Slot&) = default;
};

struct ClusterNames {
  std::string service_domain = "svc.cluster.local";
  std::string server_url = "http://di-server.di-system.svc.cluster.local:8081";
};

std::string pod_name(const Job& job, const Slot& slot,
                     int generation);  // generation: template form
std::string service_name(const Job& job);
std::string secret_name(const Job& job);  // with a part of the uid: none meets an older job's
// "<pod>.<service>.<space>.<domain>"
std::string pod_host(const Job& job, const Slot& slot, int generation, const ClusterNames& names);

// Fails for a job so large that the list of its hosts does not fit into a variable of a process.
Status check_lists(const Job& job, const ClusterNames& names);

// Whether a job of this size can run: check() and check_lists(). Everybody who changes the size of
// a job asks it before anything is written.
Status can_run(const Job& job, const ClusterNames& names);

// What tells one pod of a job from the others.
struct PodPlace {
  Slot slot{};
  std::string node{};  // preemptible jobs: where it must run
};

// What all pods of a job have in common.
struct PodPeers {
  std::vector<Slot> all{};  // every rank that is or was given, ascending and without a hole:
                            // DI_NODES
  int replicas = 0;         // of the whole job, for the annotation
  int restarts = 0;         // of the job so far
  int generation = 0;       // template form
  ClusterNames names{};
};

class PodVariables;

// Makes the pods of a job. Each of them lists all hosts: the lists are written once.
class PodMaker {
 public:
  PodMaker(const Job& job, PodPeers peers);  // `job` stays
  ~PodMaker();
  json::Value make(const PodPlace& place) const;

 private:
  void set_metadata(json::Value& metadata, const PodPlace& place, const Task& task) const;
  void set_spec(json::Value& spec, const PodPlace& place) const;

  const Job& job_;
  const PodPeers peers_;
  std::vector<std::string> hashes_{};  // of the templates of the tasks, in their order
  std::unique_ptr<const PodVariables> variables_;
};

json::Value make_service(const Job& job);
// Whether a service with that selector finds the pods of the job; the reference's had the group in
// it, too.
bool finds_pods(const json::Value& selector, const Job& job);
// Keeps the spec of the object, which is the job's.
json::Value make_revision(const Job& job, const json::Value& object);
json::Value make_secret(const Job& job, std::string_view secret);

// The container that counts: `di-container`, else one named like the task or its type, else the
// first. Null when there is none. `pod_spec` is a pod's or a template's `spec`.
const json::Value* main_container(const json::Value& pod_spec, const Task& task);
// The port of it named `di-port`, else named like the type; nothing when it has neither.
std::optional<int> declared_port(const json::Value& pod_spec, const Task& task);
// The same, kDefaultPort when it has neither.
int main_port(const json::Value& pod_spec, const Task& task);

// Changes whenever pods made from now on would differ from those made before (image, environment,
// resources, volumes; not replicas). A short text.
std::string template_hash(const Job& job, const Task& task);

// --- pods that exist ---

struct Pod {
  std::string name{};
  std::string uid{};
  std::string phase{};   // Pending, Running, Succeeded, Failed, Unknown
  std::string reason{};  // "Evicted", "OutOfcpu"
  bool ready = false;
  bool scheduled = false;
  std::string ip{};
  std::string node{};  // where it runs
  bool terminating = false;
  // Its node is gone or does not answer: so long until it may be deleted by force.
  std::optional<std::chrono::milliseconds> lost_in{};
  std::optional<int> exit_code{};       // of the main container, when it has ended
  bool any_ended = false;               // a container terminated, or waits with CrashLoopBackOff
  bool sidecars_run = false;            // the main container has ended, another one has not
  bool exit_143 = false;                // any container ended by SIGTERM
  bool disrupted = false;               // condition DisruptionTarget: the cluster took it away
  std::optional<PodTrouble> trouble{};  // why it does not start
  std::optional<std::chrono::system_clock::time_point> started{};  // status.startTime
  std::optional<std::chrono::system_clock::time_point> ended{};    // newest container end

  Slot slot{};                      // from labels and annotations, or from the name (3.5);
                                    // rank -1: nothing says it
  bool has_slot = false;            // false: neither says which replica it is
  std::optional<int> replicas{};    // annotation
  std::optional<int> generation{};  // annotation, template form
  std::string placed_on{};          // annotation diengine/node
  std::string made_of{};            // annotation divisi/template
  std::optional<int> restarts{};    // annotation divisi/restarts
  int port = 22270;

  // Its phase, but as the main container says when only others still run.
  std::string_view outcome() const noexcept {
    if (phase != "Running" || !exit_code) return phase;
    return *exit_code == 0 ? "Succeeded" : "Failed";
  }
  bool finished() const noexcept { return outcome() == "Failed" || outcome() == "Succeeded"; }
  bool live() const noexcept { return !terminating; }
  // Nothing of it runs.
  bool over() const noexcept { return phase == "Failed" || phase == "Succeeded"; }
  // What cleanPodPolicy Running deletes. A pod whose containers have all ended stays, with its
  // logs, also while its phase has yet to follow.
  bool is_cleaned() const noexcept {
    return (phase == "Running" || phase == "Pending") && (!any_ended || sidecars_run);
  }
};

// Whether the job is the controller of it.
bool belongs_to(const json::Value& object, const Job& job);
// Whether it has the labels of the job's, and no controller.
bool is_orphan_of(const json::Value& object, const Job& job);
Pod read_pod(const json::Value& object, const Job& job);

}  // namespace divisi::dijob
