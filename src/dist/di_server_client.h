// DiServerClient: the routes of di-server that coordinators and aggregators use.
//
// Loop only. Each call ends once, with the Replicas of the answer or the reason. A connection
// error, a time-out and an answer other than 200 are failures to be tried again by who asked; none
// is fatal here.
#pragma once

#include "base/status.h"
#include "io/reactor.h"
#include "json/value.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::dist {

// Where di-server is and who asks.
struct DiServerOptions {
  std::string url{};  // "http://di-server.di-system:8080" or "di-server.di-system:8080"
  std::string api_version = "/v1alpha1";
  std::string space = "default";  // name space of the pod
  std::string pod{};              // name of the pod
  bool aggregator = false;        // asks for the learners of an aggregator
  io::Duration connect_timeout = std::chrono::seconds(5);
  io::Duration answer_timeout = std::chrono::seconds(30);
};

// KUBERNETES_SERVER_URL, KUBERNETES_SERVER_API_VERSION, KUBERNETES_POD_NAMESPACE and
// KUBERNETES_POD_NAME; `url` and `api_version` of a configuration, where not empty, count when the
// variable is absent. Fails when there is no URL, or one that cannot be read.
Result<DiServerOptions> di_server_from_environment(std::string_view url,
                                                   std::string_view api_version);

struct Size {
  std::int64_t replicas = 0;
  json::Value cpus{};  // quantities: strings or numbers; null: not in the demand
  json::Value gpus{};
  json::Value memory{};
};

struct Demand {
  Size collectors{};
  Size learners{};
};

struct Replicas {
  std::vector<std::string> collectors{};  // "<pod>.<space>:<port>"
  std::vector<std::string> learners{};
  json::Value data{};  // as it came, for the log
};

// Reads `data` of an answer. Lists are arrays, objects keyed by URL, or null.
Result<Replicas> parse_replicas(const json::Value& data);

// "dijob-1-collector-x" of "dijob-1-collector-x.default:80".
std::string pod_of_url(std::string_view url);

class DiServerClient {
 public:
  using Done = std::function<void(Result<Replicas>)>;
  static Result<std::unique_ptr<DiServerClient>> make(io::Reactor& reactor,
                                                      DiServerOptions options);
  virtual ~DiServerClient() = default;  // ends all calls, without callbacks

  virtual void post_demand(const Demand& demand, Done done) = 0;
  virtual void get(Done done) = 0;
  virtual void remove(const Demand& demand, Done done) = 0;
  // Names of pods, or full URLs for a server of the oldest kind. kNotFound: it does not know one of
  // them, and did nothing.
  virtual void report_failed(const std::vector<std::string>& collectors,
                             const std::vector<std::string>& learners, Done done) = 0;
};

}  // namespace divisi::dist
