// SimCluster: a small job in a SimWorld. Whole Nodes send to each other while connections are cut,
// stalled and lost and processes die, come back or stay away; every promise of the link layer is
// checked all the time.
#pragma once

#include "divisi/event.h"
#include "mesh/node.h"
#include "mesh/testing/sim_reactor.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace divisi::mesh::testing {

class SimCluster {
 public:
  explicit SimCluster(std::uint64_t seed);
  ~SimCluster();

  // What was broken, or nothing.
  std::string run();

  // What the run saw, so that a test can tell whether it tried hard enough.
  struct Tally {
    std::uint64_t accepted = 0, delivered = 0, refused = 0, dropped = 0, resent = 0;
    std::uint64_t reconnects = 0, lost = 0, back = 0, left = 0, restarts = 0, gone = 0;
    std::uint64_t parting = 0;  // events on their way when their sender was about to end
    std::uint64_t relayed = 0;  // delivered by a hub on behalf of another leaf
    Tally& operator+=(const Tally& other);
  };
  const Tally& tally() const { return tally_; }

 private:
  struct Process {
    int id = 0;
    std::uint64_t incarnation = 0;
    std::unique_ptr<SimReactor> reactor;
    std::unique_ptr<EventLoop> loop;
    std::unique_ptr<Node> node;
    bool dead = false;  // its last callbacks no longer count
    bool subscribed = false;
    std::map<int, PeerChange> seen;  // the last change told about each peer
    std::set<int> mourned;           // peers whose death its launcher has reported
  };
  struct Sent {
    std::uint64_t number;
    std::size_t size;
    bool due = true;  // it must arrive, unless it is counted as dropped
  };
  // From one incarnation to another.
  struct Traffic {
    std::vector<Sent> expected;  // accepted by send(), in order
    std::size_t next = 0;        // the first one not delivered
    std::size_t skipped = 0;     // before `next`, due and not delivered
    std::size_t removed = 0;     // dropped by policy after they were accepted
    bool relayed = false;        // from leaf to leaf

    std::size_t missing() const;
  };
  struct Outcome {  // of one link at one time
    std::uint64_t incarnation = 0, sent = 0, dropped = 0;
  };

  void fail(const std::string& what);
  bool chance(double p) { return world_.random().chance(p); }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return world_.random().between(low, high);
  }

  void start(int id);
  void kill(int id);
  void subscribe(Process& process);
  void settle(Process& process);
  void changed(Process& process, PeerChange change, const PeerInfo& peer);
  void delivered(Process& process, std::uint64_t sender, std::uint64_t number, const Buffer& bytes);
  std::map<int, Outcome> outcomes(const Process& process) const;
  void send(Process& process, std::size_t size, const SendOptions& options);
  void expect_relayed(const Process& leaf, const Outcome& to_hub, const Sent& event);
  void send_something();
  std::size_t pick_size();
  void do_harm();
  void harm_a_process();
  void die_for_good(int id);
  void tell_of_death(Process& process, int id);
  void check_bounds();
  // How many of the events of a pair may be missing.
  std::size_t removed_between(const Process& from, const Process& to, const Traffic& traffic) const;
  // True when every living pair has all that was accepted.
  bool drained(std::string* missing) const;
  bool delivered_all(std::string* missing) const;
  bool linked(const Process& process, std::string* missing) const;
  void wait_until_drained(const char* when);
  void check_counters();
  void leave_one();

  SimWorld world_;
  int count_;
  std::vector<std::set<int>> dials_;  // by node id: the ids it dials
  NodeOptions options_;
  std::size_t largest_;
  int topics_;
  bool droppable_ = false;
  bool late_ = false;   // subscribe after events have arrived
  bool relay_ = false;  // node 0 is a hub, the others are its leaves
  std::map<int, Process> processes_;
  std::set<int> gone_;  // died and do not come back
  std::map<std::pair<std::uint64_t, std::uint64_t>, Traffic> traffic_;
  std::map<std::uint64_t, std::vector<Sent>> to_all_leaves_;  // by sender; none of it due
  std::uint64_t next_number_ = 1;
  std::uint64_t next_incarnation_ = 1;
  std::string failure_;
  Tally tally_;
};

}  // namespace divisi::mesh::testing
