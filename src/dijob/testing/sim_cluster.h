// SimCluster: a whole cluster on one simulated loop: API server, nodes, and operators that come
// and go.
//
//   SimCluster cluster(seed);
//   cluster.start_operator();
//   cluster.create_job("{metadata: {name: j}, spec: {tasks: [...]}}");
//   cluster.loop.run_until([&] { return cluster.phase("j") == "Succeeded"; });
//
// Everything is in the name space `default`. The same seed gives the same run.
#pragma once

#include "dijob/operator.h"
#include "dijob/testing/sim_kubelet.h"
#include "kube/client.h"
#include "kube/testing/fake_api.h"
#include "kube/testing/sim_loop.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::dijob::testing {

inline constexpr const char* kJobs = "/apis/diengine.opendilab.org/v2alpha1/dijobs";
inline constexpr const char* kPods = "/api/v1/pods";
inline constexpr const char* kServices = "/api/v1/services";
inline constexpr const char* kSecrets = "/api/v1/secrets";
inline constexpr const char* kEvents = "/api/v1/events";

class SimCluster {
 public:
  using Change = kube::MemoryStore::Change;

  explicit SimCluster(std::uint64_t seed = 1);
  ~SimCluster();

  kube::testing::SimLoop loop;
  kube::testing::FakeApi api;
  SimKubelet kubelet;
  // Sees every change after it was made.
  std::function<void(const Change&)> on_change{};
  // What the operators' clock is ahead of the server's.
  std::chrono::seconds skew{0};
  // Changes the options of operators started from now on.
  std::function<void(OperatorOptions&)> configure{};
  std::string secret_key = "key";                             // of operators started from now on
  io::Duration force_delete_after = std::chrono::minutes(5);  // of operators started from now on

  // --- operators ---
  std::size_t start_operator();            // the number of the new one
  void crash_operator(std::size_t which);  // between two requests; what is on its way arrives
  void crash_all();
  std::size_t running_operators() const;

  // --- jobs; YAML without kind and name space ---
  std::string create_job(std::string_view yaml);  // the uid
  // A merge patch of the object; of `status` through its subresource.
  void edit_job(const std::string& job, std::string_view yaml);
  void edit_status(const std::string& job, std::string_view yaml);
  void delete_job(const std::string& job);
  bool has_job(const std::string& job) const;
  json::Value job(const std::string& job) const;
  std::string phase(const std::string& job) const;
  std::int64_t status(const std::string& job, std::string_view number) const;  // 0 when absent
  // The condition of that type; null when there is none.
  json::Value condition(const std::string& job, std::string_view type) const;

  // --- what the jobs are made of ---
  std::vector<json::Value> pods(const std::string& job) const;  // by name
  std::vector<std::string> pod_names(const std::string& job) const;
  json::Value pod(const std::string& name) const;  // null when there is none
  std::string uid(const std::string& pod) const;
  std::vector<std::string> services(const std::string& job) const;
  std::vector<std::string> events(const std::string& job) const;  // "Warning JobFailed: text"

  // --- pods by hand ---
  void run_all(const std::string& job);  // Running and ready
  void succeed_all(const std::string& job);
  void delete_pod(const std::string& name);  // as kubectl does
  void settle(io::Duration time = std::chrono::seconds(5)) { loop.run_for(time); }

 private:
  struct Instance;

  void request(const std::string& method, const std::string& name, const json::Value& body);
  std::vector<std::string> names_of(const char* collection, const std::string& job) const;

  std::vector<std::unique_ptr<Instance>> operators_;
};

inline std::string in_default(const std::string& name) {
  return "default/" + name;
}

// The value of that variable in the first container; "" when it is not set.
std::string env_of(const json::Value& pod, std::string_view name);

}  // namespace divisi::dijob::testing
