// SimKubelet: scheduler, nodes and kubelets of a pretend cluster.
//
//   kubelet.script = [](const json::Value& pod) { return Fate{.end = Fate::End::kSucceed, .after =
//   5s}; };
//
// By itself it schedules pods, makes them Running and ready after short random times, ends them as
// the script says, and honours deletion within the grace period. With `automatic` off nothing
// happens but what the calls say; deletions end at once.
#pragma once

#include "kube/testing/fake_api.h"
#include "kube/testing/sim_loop.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::dijob::testing {

// What becomes of a pod that was scheduled.
struct Fate {
  enum class End { kNone, kSucceed, kFail, kEvict, kReject };
  End end = End::kNone;
  io::Duration after{0};            // from when it runs
  int exit_code = 1;                // kFail
  std::string reason = "OutOfcpu";  // kReject: it never runs
};

class SimKubelet {
 public:
  SimKubelet(kube::testing::SimLoop& loop, kube::testing::FakeApi& api, std::uint64_t seed);

  std::function<Fate(const json::Value& pod)> script = [](const json::Value&) { return Fate{}; };
  bool automatic = true;

  // Every change of the store comes here.
  void see(const kube::MemoryStore::Change& change);

  // By hand; `key` is "space/name". Nothing happens to a pod that is not there.
  void schedule(const std::string& key);
  void run(const std::string& key, bool ready = true);
  void succeed(const std::string& key);
  void fail(const std::string& key, int exit_code = 1);
  void fail_with_reason(const std::string& key, const std::string& reason);
  void finish_deletion(const std::string& key);

  // Its pods are told nothing any more; after some minutes they are marked for deletion, and after
  // some more the node is back, empty.
  void kill_node(const std::string& node);
  // The processes of its pods go on and take so long to end when they are asked to.
  void slow_down(io::Duration end) { slow_end_ = end; }
  // Puts the objects of the nodes into the store.
  void register_nodes();
  // Taints of that node: keys; none of a node that answers.
  void taint(const std::string& node, const std::vector<std::string>& keys);
  // Whether the process of that pod has ended, as far as anybody can know.
  bool took_away(const std::string& uid) const { return taken_.contains(uid); }
  const std::vector<std::string>& nodes() const noexcept { return nodes_; }
  bool is_dead(const std::string& node) const { return dead_.contains(node); }

  // How many pods ended with a failure that the job has to answer for, by owner uid.
  int failures(const std::string& owner) const;

 private:
  using Edit = std::function<void(json::Value& pod)>;

  void edit(const std::string& key, const Edit& edit);
  void later(const std::string& key, std::string_view uid, io::Duration delay,
             std::function<void()> what);
  void begin(const std::string& key, const std::string& uid);
  void start(const std::string& key, const std::string& uid);
  void live(const std::string& key, const std::string& uid, const Fate& fate);
  void terminate(const std::string& key, const std::string& uid, const json::Value& pod);
  bool stranded(const json::Value& pod) const;  // its node is dead
  bool is(const std::string& key, const std::string& uid) const;
  io::Duration between(io::Duration least, io::Duration most);

  kube::testing::SimLoop& loop_;
  kube::testing::FakeApi& api_;
  std::mt19937_64 random_;
  std::vector<std::string> nodes_{"node-a", "node-b", "node-c"};
  std::set<std::string> dead_;
  std::set<std::string> taken_;  // uids of pods that the kubelet has ended
  io::Duration slow_end_{0};
  std::set<std::string> terminating_;  // uids whose deletion is on its way
  std::map<std::string, int> failures_;
  std::map<std::uint64_t, std::unique_ptr<io::Timer>> timers_;
  std::uint64_t next_timer_ = 0;
  int next_ip_ = 1;
};

// The uid of the controller that owns it; "" for none.
std::string owner_of(const json::Value& object);

}  // namespace divisi::dijob::testing
