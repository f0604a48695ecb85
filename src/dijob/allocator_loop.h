// Allocator: gives the replicas of preemptible jobs their nodes, by writing status.allocation.
//
//   Allocator allocator(client, {.defaults = *read_default_resources(text)});
//   allocator.start();    // the leader only
//
// Loop only. It writes `allocation`, `replicas` and the condition Allocated of a job, and touches
// no pod: the operator follows. Nodes and pods are watched once there is a preemptible job; until
// then it costs next to nothing.
#pragma once

#include "dijob/allocator_input.h"
#include "kube/client.h"
#include "kube/informer.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace divisi::dijob {

struct AllocatorOptions {
  std::string space{};                                   // of the jobs; empty: all
  io::Duration period = std::chrono::minutes(1);         // also without a change
  io::Duration settle = std::chrono::milliseconds(100);  // changes come in flocks
  Amounts defaults{};                                    // read_default_resources()
  std::function<std::chrono::system_clock::time_point()> wall_clock = [] {
    return std::chrono::system_clock::now();
  };
};

class Allocator {
 public:
  Allocator(kube::Client& client, AllocatorOptions options);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  void start();
  void stop();  // no further round; a write that runs may still arrive
  std::size_t rounds() const noexcept { return rounds_; }

 private:
  kube::InformerOptions job_options() const;
  void watch(kube::Informer& informer);
  void changed();
  void round(bool periodic);
  bool in_step();
  void write(const json::Value& object, const Placement& placement, bool periodic);
  void written(const std::string& key, const Result<json::Value>& answer);

  kube::Client& client_;
  const AllocatorOptions options_;
  kube::Informer jobs_;
  kube::Informer nodes_;
  kube::Informer pods_;
  std::map<std::string, std::string> unseen_;  // what was written over, until the cache shows more
  std::size_t writing_ = 0;
  std::size_t rounds_ = 0;
  bool watching_all_ = false;
  bool stopped_ = false;
  std::unique_ptr<io::Timer> soon_;
  std::unique_ptr<io::Timer> period_;
  std::shared_ptr<bool> alive_;
};

}  // namespace divisi::dijob
