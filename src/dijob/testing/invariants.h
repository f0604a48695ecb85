// Invariants: what holds of every job at every moment, whatever the operator has been through.
//
// It sees each change of the store and knows what the nodes did; it knows nothing of the operator.
// The first thing that does not hold stays in broken().
#pragma once

#include "dijob/testing/sim_cluster.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::dijob::testing {

class Invariants {
 public:
  explicit Invariants(SimCluster& cluster) : cluster_(cluster) {}

  void see(const SimCluster::Change& change);
  // Somebody else than the operator is about to take this pod away.
  void excuse(const std::string& pod_uid) { excused_.insert(pod_uid); }
  // When nothing happens any more.
  void check_end();

  const std::string& broken() const noexcept { return broken_; }

 private:
  // What the user wished at some time.
  struct Wish {
    io::TimePoint since{};
    bool suspended = false;
    bool rolls = false;                     // restartedAt is set
    std::map<std::string, int> replicas{};  // by task
    std::set<std::string> decides{};        // tasks whose success is the job's
  };
  struct Known {
    std::string name{};
    bool is_template = false;
    std::string phase{};
    bool had_pods = false;
    std::map<std::string, std::int64_t> counters{};
    std::vector<Wish> wishes{};
    std::map<std::string, int> ranks{};           // by pod name
    std::set<std::string> succeeded{};            // pod names
    std::map<std::string, std::string> failed{};  // pod name: uid of the last one that failed
  };

  void see_job(const SimCluster::Change& change);
  void see_pod(const SimCluster::Change& change);
  void check_counters(Known& job, const json::Value& object);
  void check_phase(Known& job, const json::Value& object);
  void check_budget(const Known& job, const json::Value& object);
  void check_failed(const Known& job, const json::Value& object);
  void check_succeeded(const Known& job);
  void check_new_pod(Known& job, const json::Value& pod);
  void check_process(const json::Value& pod);
  void check_place(const Known& job, const json::Value& pod);
  void check_removal(const Known& job, const json::Value& pod);
  bool wanted(const Known& job, const Wish& wish, const json::Value& pod) const;
  void check_finished(const std::string& uid, const Known& job);
  template <class... Args>
  void fail(fmt::format_string<Args...> text, Args&&... args);

  SimCluster& cluster_;
  std::map<std::string, Known> jobs_;   // by uid
  std::map<std::string, bool> marked_;  // pods by uid: whether a deletion was seen
  std::set<std::string> excused_;
  std::string broken_;
};

}  // namespace divisi::dijob::testing
