// Simulation: jobs and trouble from a seed.
//
// Some minutes of everything at once: jobs of both forms whose pods fail, are refused and evicted;
// users who resize, suspend, delete, and write specs that cannot run; full quotas and names that
// are taken; nodes that die and processes that do not; a server that loses, repeats, delays and
// refuses; operators that crash between any two requests, overlap, and have clocks that jump. Then
// peace, in which every job must come to its end. The same seed gives the same run.
#pragma once

#include "dijob/testing/invariants.h"
#include "dijob/testing/sim_cluster.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace divisi::dijob::testing {

class Simulation {
 public:
  struct Tally {
    std::uint64_t jobs = 0;
    std::uint64_t succeeded = 0;
    std::uint64_t failed = 0;
    std::uint64_t deleted = 0;
    std::uint64_t restarts = 0;
    std::uint64_t crashes = 0;
    std::uint64_t blocked = 0;  // pods that a quota refused
    std::uint64_t edits_refused = 0;
    std::uint64_t forced = 0;  // pods that went by force
    std::uint64_t requests = 0;
    Tally& operator+=(const Tally& other);
  };

  // `tell`: writes what happens to the standard error.
  Simulation(std::uint64_t seed, bool tell);
  // What did not hold, or nothing.
  std::string run();
  const Tally& tally() const noexcept { return tally_; }

 private:
  void choose_faults();
  void create_job();
  std::string random_task(const std::string& type, bool completes);
  Fate fate_of(const json::Value& pod);
  void trouble();
  void trouble_with(const std::string& job);
  void resize(const std::string& job);
  void break_spec(const std::string& job);
  void take_name(const std::string& job);
  std::optional<http::Response> refuse(const http::Request& request);
  void change_leader();
  void make_peace();
  bool all_over() const;
  void count();
  void say(const std::string& text) const;
  int below(int limit);  // 0 <= it < limit
  bool chance(double probability);

  std::mt19937_64 random_;
  const bool tell_;
  SimCluster cluster_;
  Invariants invariants_{cluster_};
  std::vector<std::string> jobs_;
  std::map<std::string, std::vector<Fate>> fates_;  // what is still to come, by pod
  bool overlaps_ = false;                           // sometimes two operators lead
  std::size_t leader_ = 0;
  std::unique_ptr<io::Timer> handover_;
  std::size_t quota_ = 0;         // pods; 0: without
  std::set<std::string> taken_;   // pods that are nobody's
  std::set<std::string> broken_;  // jobs whose spec cannot run
  Tally tally_;
};

}  // namespace divisi::dijob::testing
