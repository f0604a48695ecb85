// Calls: requests that wait for an answer, over directed events.
//
// The request is event "call.<name>" to one node with (caller, id, arguments...); the answer is
// event "call.reply" back with (id, ok, value or message).
#pragma once

#include "divisi/event.h"
#include "divisi/parallel.h"
#include "mesh/node.h"

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>

namespace divisi::runtime {

class Calls {
 public:
  // Answers arrive on `loop`, which must not be one that makes calls.
  Calls(mesh::Node& node, EventLoop& loop);

  std::uint64_t begin();
  // Sends the request and waits; after `interruption` a second, for an answer that is under way.
  // Throws Error, TimeoutError.
  Value finish(std::uint64_t id, int node, std::string_view name, const PayloadView& request,
               const CallOptions& options, const std::stop_token& interruption);
  // Throws nothing: whoever called waits, or has gone; this node's own work is not concerned.
  void answer(int node, std::uint64_t id, bool ok, const Value& value);

  // No answer will come from there any more.
  void peer_gone(int node);

 private:
  struct Pending {
    int node = -1;
    bool done = false;
    bool ok = false;
    Value value;
  };

  mesh::Node& node_;
  std::mutex mutex_;
  std::condition_variable_any answered_;
  // Guarded by mutex_.
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, Pending> pending_;
};

}  // namespace divisi::runtime
