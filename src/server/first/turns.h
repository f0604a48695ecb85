// Turns: what changes the workers of one job happens one after another.
//
//   turns.take("default/rl", [](std::shared_ptr<void> turn) {...});   // until the last copy is
//   gone
//
// Loop only. Jobs do not wait for each other. Several servers are not ordered by this.
#pragma once

#include "io/reactor.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace divisi::server::first {

class Turns {
 public:
  explicit Turns(io::Reactor& reactor) : reactor_(reactor) {}

  // `run` is not called inside this call.
  void take(const std::string& key, std::function<void(std::shared_ptr<void>)> run);

 private:
  using Waiting = std::deque<std::function<void(std::shared_ptr<void>)>>;

  void start_next(const std::string& key);

  io::Reactor& reactor_;
  std::map<std::string, Waiting, std::less<>> waiting_;  // of the jobs that somebody has a turn of
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace divisi::server::first
