// Operator: keeps every DIJob of the cluster, or of one name space, as its spec says.
//
//   Operator jobs(client, {});
//   jobs.start();     // the leader only
//
// Loop only. It reads its caches, asks plan() what to do, writes, and looks again when something
// changes. Destroying it stops it between two writes; another one goes on from there.
#pragma once

#include "dijob/pod.h"
#include "kube/client.h"
#include "kube/controller.h"
#include "kube/informer.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace divisi::dijob {

struct OperatorOptions {
  ClusterNames names{};
  std::string space{};  // empty: all
  io::Duration resync_every = std::chrono::minutes(1);
  std::size_t workers = 16;          // jobs at once
  std::string instance{};            // of several operators, in events
  kube::Metrics* metrics = nullptr;  // of its controller; outlives the operator
  // A pod that is being deleted goes by force when its node has been unreachable so long, by this
  // process's own clock. 0: never, whatever becomes of the node.
  io::Duration force_delete_after = std::chrono::minutes(5);
  // First generation: KUBERNETES_SERVER_URL of pods; whether every job gets its aggregator together
  // with the coordinator; of which AggregatorConfig that is made.
  std::string first_server_url = "di-server.di-system:8080";
  bool aggregator_at_start = false;
  std::string aggregator_config_space = "di-system";
  std::string aggregator_config = "aggregator-config";
  std::function<std::chrono::system_clock::time_point()> wall_clock = [] {
    return std::chrono::system_clock::now();
  };
};

class Operator {
 public:
  Operator(kube::Client& client, OperatorOptions options);
  ~Operator();

  // Of which the secrets of jobs are made. Before start(); without one they are random, and no job
  // has the hash of its secret.
  void use_secret_key(std::string key);
  void start();
  void stop(std::function<void()> drained);
  bool ready() const;  // the caches are in step

  const kube::Informer& jobs() const;
  std::size_t pods() const;  // of all jobs that are known
  const kube::Controller& controller() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace divisi::dijob
