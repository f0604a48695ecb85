// Controller: calls reconcile for every key that needs it, until it succeeds.
//
//   Controller jobs(reactor, {.name = "dijob"}, [&](const std::string& key, auto done) {
//     ... done(Requeue{});   // or done(failure(...)): tried again later
//   });
//   jobs.watch(informer, [](const Object& job) { return std::vector{job.key()}; });
//   jobs.start();
//
// Loop only. It begins when every informer it watches is in step with the server. A key is
// reconciled by one at a time, at most `workers` keys at once. `reconcile` reads the caches, never
// the event: it may be called for any key at any time and must come to the same end.
#pragma once

#include "base/status.h"
#include "kube/informer.h"
#include "kube/metrics.h"
#include "kube/work_queue.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace divisi::kube {

// Success. `after`: look again then, for deadlines and what gives no event.
struct Requeue {
  io::Duration after{0};  // 0: not by itself
};

struct ControllerOptions {
  std::string name{};
  std::size_t workers = 16;  // keys at once; each waits for the server most of the time
  WorkQueueOptions queue{};
  Metrics* metrics = nullptr;  // where to count and time; outlives the controller
};

class Controller {
 public:
  using Outcome = std::function<void(Result<Requeue>)>;
  using Reconcile = std::function<void(const std::string& key, Outcome done)>;
  using Keys = std::function<std::vector<std::string>(const Object&)>;

  struct Counters {
    std::uint64_t succeeded = 0;
    std::uint64_t failed = 0;
  };

  Controller(io::Reactor& reactor, ControllerOptions options, Reconcile reconcile);
  ~Controller();

  // Before start(). `keys` says whom a change of that object concerns.
  void watch(Informer& informer, Keys keys);
  void start();
  // Takes no more keys; `drained` runs when the running ones are done.
  void stop(std::function<void()> drained);

  void add(std::string key) { queue_.add(std::move(key)); }
  void add_after(std::string key, io::Duration delay) { queue_.add_after(std::move(key), delay); }

  bool ready() const;  // all caches are in step
  // Why they are not, as far as a server has said it; ok when they are, or when none has.
  Status trouble() const;
  const Counters& counters() const noexcept { return counters_; }
  const WorkQueue& queue() const noexcept { return queue_; }

 private:
  void take_more();
  void ended(const std::string& key, io::TimePoint began, Result<Requeue> outcome);
  void add_metrics(Metrics& metrics);

  io::Reactor& reactor_;
  const ControllerOptions options_;
  const Reconcile reconcile_;
  std::vector<Informer*> informers_;
  WorkQueue queue_;
  Counters counters_;
  Histogram* waited_ = nullptr;  // of the metrics, as the next
  Histogram* took_ = nullptr;
  bool started_ = false;
  bool stopping_ = false;
  bool taking_ = false;  // take_more() is posted
  std::function<void()> drained_;
  std::shared_ptr<bool> alive_;
};

}  // namespace divisi::kube
