// Cluster: a DIJob manifest on this machine, without Kubernetes. The operator's own plan and
// di-server decide, over an API server in memory; pods are processes (kubelet.h).
//
//   DIVISI_TRY(auto cluster, Cluster::start(reactor, read_manifest(text), options));
//   ... cluster->phase() ... cluster->exit_code() ...
//
// Loop only.
#pragma once

#include "base/status.h"
#include "io/reactor.h"
#include "json/value.h"
#include "local/kubelet.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::local {

// The objects of a YAML file: one DIJob, and the ConfigMaps, Secrets and AggregatorConfigs with it.
struct Manifest {
  json::Value job{};
  std::vector<json::Value> others{};
};
// Fails when there is no DIJob, more than one, or an object of a kind that is not known here.
Result<Manifest> read_manifest(std::string_view text);

struct ClusterOptions {
  std::string folder{};  // exists; logs and volumes go there
  std::string guard{};   // of containers, see container.h
  // Of di-server, where they are free.
  std::uint16_t api_port = 8081;
  std::uint16_t probe_port = 8080;
  std::function<void(std::string_view pod, std::string_view container, std::string_view line)>
      on_output{};
  std::function<void(std::string_view line)> on_limit{};
  // A new phase of the job, with the message of its condition.
  std::function<void(std::string_view phase, std::string_view message)> on_phase{};
  // A pod that has changed, or that was removed (as it was then). Nobody may be asked meanwhile.
  std::function<void(const json::Value& pod, bool removed)> on_pod{};
};

class Cluster {
 public:
  static Result<std::unique_ptr<Cluster>> start(io::Reactor& reactor, Manifest manifest,
                                                ClusterOptions options);
  virtual ~Cluster() = default;

  virtual json::Value job() const = 0;  // null when it was deleted
  virtual std::vector<json::Value> pods() const = 0;
  virtual std::string phase() const = 0;
  // Of a job that has ended: 0 for success, else that of the pod that failed last.
  virtual int exit_code() const = 0;
  // Any request to the API server, as kubectl would send it.
  virtual http::Response request(const http::Request& request) = 0;
  // Deletes the job; `done` when the last process has ended.
  virtual void remove(std::function<void()> done) = 0;
};

}  // namespace divisi::local
