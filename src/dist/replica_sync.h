// ReplicaSync: keeps asking di-server which workers there are, and reports those that failed.
//
// No answer of di-server ends it, nor does its absence: a failure is logged once and tried again,
// more and more rarely. Loop only.
#pragma once

#include "dist/di_server_client.h"
#include "io/reactor.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace divisi::dist {

class ReplicaSync {
 public:
  struct Failed {
    std::vector<std::string> collectors{};  // URLs
    std::vector<std::string> learners{};
  };
  struct Hooks {
    // Asked before each turn; what is returned is reported, until `on_reported` says it was.
    std::function<Failed()> failed{};
    // With those that were made in their place.
    std::function<void(const Failed&, const Replicas& made)> on_reported{};
    // di-server refuses the report, because it does not know one of the names.
    std::function<void()> on_unknown{};
    std::function<void(const Replicas&)> on_replicas{};
  };

  ReplicaSync(io::Reactor& reactor, DiServerClient& server, io::Duration interval, bool full_urls,
              Hooks hooks);
  void start();

 private:
  void turn();
  void get();
  void turn_later(bool success);
  void note(const Status& status);

  io::Reactor& reactor_;
  DiServerClient& server_;
  const io::Duration interval_;
  const bool full_urls_;  // in failure reports, instead of names of pods
  const Hooks hooks_;
  io::Duration pause_;
  bool complained_ = false;
  std::unique_ptr<io::Timer> timer_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();  // the client may outlive this
};

}  // namespace divisi::dist
