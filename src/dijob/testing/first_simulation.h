// FirstSimulation: first-generation jobs and trouble from a seed.
//
// Coordinators that ask for workers and replace those that fail, a model of di-server, and beside
// them what the Simulation of the other jobs has: users who delete and edit, full quotas, nodes
// that die, a server that loses and repeats, operators that crash and overlap. Then peace, in which
// every pod has its service and every job comes to its end. The same seed gives the same run.
#pragma once

#include "dijob/testing/first_invariants.h"
#include "dijob/testing/first_server.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace divisi::dijob::testing {

class FirstSimulation {
 public:
  struct Tally {
    std::uint64_t succeeded = 0;
    std::uint64_t failed = 0;
    std::uint64_t deleted = 0;
    std::uint64_t restarts = 0;  // coordinators that were created again
    std::uint64_t crashes = 0;
    std::uint64_t refused = 0;  // pods that a quota refused
    std::uint64_t quiet = 0;    // jobs that were looked at in peace
    std::uint64_t requests = 0;
    Tally& operator+=(const Tally& other);
  };

  // `tell`: writes what happens to the standard error.
  FirstSimulation(std::uint64_t seed, bool tell);
  // What did not hold, or nothing.
  std::string run();
  const Tally& tally() const noexcept { return tally_; }

 private:
  // The program in a coordinator pod.
  struct Work {
    std::string name{};
    FirstDemand demand{};
    bool has_aggregator = false;  // from the start
    bool ends_early = false;      // not only in peace
    bool fails = false;
    int seconds = 0;            // with all its workers, until it ends
    std::string coordinator{};  // uid of the pod it runs in
    int worked = 0;             // seconds, in that pod
  };

  void choose_faults();
  void create_job();
  void create_config();
  Fate fate_of(const json::Value& pod);
  void tick();
  void run_coordinator(Work& work);
  bool replace_failed(const Work& work);
  bool is_satisfied(const Work& work) const;
  std::optional<http::Response> refuse(const http::Request& request);
  void trouble();
  void trouble_with(Work& work);
  void delete_pod(const std::string& job);
  void touch_service(const std::string& job, bool remove);
  void take_owner(const std::string& job);
  void change_leader();
  void make_peace();
  bool all_over() const;
  void count();
  void say(const std::string& text) const;
  int below(int limit);
  bool chance(double probability);

  std::mt19937_64 random_;
  const bool tell_;
  SimCluster cluster_;
  FirstServer server_{cluster_};
  FirstInvariants invariants_{cluster_, server_};
  std::vector<Work> works_;
  std::map<std::string, int> rejections_;  // still to come, by pod
  bool overlaps_ = false;
  bool calm_ = false;   // no more trouble
  bool peace_ = false;  // coordinators may end
  std::size_t leader_ = 0;
  std::unique_ptr<io::Timer> handover_;
  std::unique_ptr<io::Timer> clock_;
  std::size_t quota_ = 0;  // pods; 0: without
  bool lost_a_node_ = false;
  std::set<std::string> edited_;
  Tally tally_;
};

}  // namespace divisi::dijob::testing
