// Barrier: all nodes wait for all that they are linked to, in two phases (requests, then
// acknowledgements), so that the leaves of a star also wait for each other through the hub.
//
// Barriers are numbered. A process that comes later, the successor of a dead one or a newcomer to
// the job, goes on where the others are: its first barrier is the one they wait in, or come to
// next.
#pragma once

#include "divisi/event.h"
#include "mesh/node.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <stop_token>

namespace divisi::runtime {

class Barrier {
 public:
  Barrier(mesh::Node& node, EventLoop& loop);

  // A node that joined takes part from now on, also after it has left: a barrier it did not
  // reach cannot be passed. `incarnation` tells its lives apart.
  void add_peer(int node, std::uint64_t incarnation);
  // The job has become smaller: that node is not waited for, unless it joins again.
  void remove_peer(int node);

  // Throws TimeoutError, or Error with kCancelled, naming the missing peers.
  void wait(std::chrono::milliseconds timeout, const std::stop_token& stop);

  // This process is asked to end: from now on nobody waits for it.
  void leave();

 private:
  using Epochs = std::map<int, std::uint64_t>;  // by node: the newest heard

  using Lock = std::unique_lock<std::mutex>;
  // False: the others are further than we knew. Go to the barrier that they are at.
  bool phase(Lock& lock, const char* topic, const Epochs& heard,
             std::chrono::steady_clock::time_point deadline, const std::stop_token& stop);
  // What we said in this barrier so far, to those who were not there to hear it.
  void repeat_to_newcomers(Lock& lock, bool acknowledged);
  void await_turn(Lock& lock, std::chrono::steady_clock::time_point deadline,
                  const std::stop_token& stop);
  Status say(const char* topic, std::uint64_t epoch, const SendOptions& options);

  mesh::Node& node_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_.
  std::map<int, std::uint64_t> peers_;  // by node: the incarnation
  std::set<int> newcomers_;             // of them: have not heard what we said in this barrier
  Epochs requested_;
  Epochs acknowledged_;
  std::uint64_t epoch_ = 0;
  bool waiting_ = false;      // one barrier at a time in a process
  bool is_new_ = true;        // has not passed a barrier: may be a successor or a newcomer
  std::uint64_t missed_ = 0;  // then: the last barrier that others passed without us
};

}  // namespace divisi::runtime
