// Barrier: all nodes wait for all that they are linked to, in two phases (requests, then
// acknowledgements), so that the leaves of a star also wait for each other through the hub.
#pragma once

#include "divisi/event.h"
#include "mesh/node.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

namespace divisi::runtime {

class Barrier {
 public:
  Barrier(mesh::Node& node, EventLoop& loop);

  // A node that joined takes part from now on, also after it has left: a barrier it did not
  // reach cannot be passed.
  void add_peer(int node);
  // The job has become smaller: that node is not waited for, unless it joins again.
  void remove_peer(int node);

  // Throws TimeoutError naming the missing peers.
  void wait(std::chrono::milliseconds timeout);

 private:
  using Epochs = std::map<int, std::uint64_t>;  // by node: the newest heard

  void phase(std::unique_lock<std::mutex>& lock, const char* topic, const Epochs& heard,
             std::chrono::steady_clock::time_point deadline);

  mesh::Node& node_;
  std::mutex turn_;  // one barrier at a time in a process
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::set<int> peers_;
  Epochs requested_;
  Epochs acknowledged_;
  std::uint64_t epoch_ = 0;
};

}  // namespace divisi::runtime
