// Coordinator: the life of a first-generation job. Asks di-server for workers, connects to them,
// gives out the commander's tasks, carries records to its buffers, and ends when it says so.
//
//   DIVISI_TRY(auto coordinator, Coordinator::start(reactor, options, commander,
//                                                   [](Status status) { exit code }));
//
// Loop only. `on_end` runs once: ok when training is done, a failure otherwise (no workers in time,
// a commander that cannot go on). All slaves are disconnected then. stop() ends it early.
#pragma once

#include "base/status.h"
#include "dist/commander.h"
#include "dist/di_server_client.h"
#include "dist/master.h"
#include "io/reactor.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::dist {

struct CoordinatorOptions {
  MasterOptions master{};  // bind, announce, channel, heartbeats; its hooks are the coordinator's

  // Workers from di-server. Without it only those listed below are used.
  std::optional<DiServerOptions> server{};
  Demand demand{};

  // Workers that are there from the start, as "host:port".
  std::vector<std::string> collectors{};
  std::vector<std::string> learners{};

  // KUBERNETES_AGGREGATOR_URL, the layout of the oldest generation: connected first, the only
  // learner, gets the list of learners. Empty: none.
  std::string aggregator{};

  // Training starts when so many are connected: either of the two, or both in the oldest layout.
  int collector_target = 1;
  int learner_target = 1;
  std::optional<bool> wait_for_both{};  // unset: true with an aggregator URL

  io::Duration demand_retry = std::chrono::seconds(2);
  io::Duration demand_limit = std::chrono::seconds(120);
  std::optional<io::Duration> sync{};  // unset: 1 s; 2 s with an aggregator URL
  io::Duration connect_retry = std::chrono::seconds(2);
  io::Duration connect_limit = std::chrono::seconds(120);
  io::Duration resource_limit = std::chrono::seconds(30);  // for a `resource` task to complete
  io::Duration wait_retry = std::chrono::seconds(2);
  io::Duration wait_limit = std::chrono::seconds(120);
  io::Duration queue_turn = std::chrono::milliseconds(100);  // how often the commander is asked
  io::Duration collector_limit = std::chrono::seconds(30);   // in the queue
  io::Duration learner_limit = std::chrono::seconds(600);
  io::Duration assign_retry = std::chrono::seconds(3);
  io::Duration start_limit = std::chrono::seconds(120);  // for a start task to complete
  // For every other task; a data task waits until there is data. A worker that takes longer is
  // lost.
  io::Duration task_limit = std::chrono::hours(1);
  io::Duration task_retry = std::chrono::seconds(1);          // after a failure of one of them
  io::Duration sample_pause = std::chrono::seconds(1);        // 1, 3, 5 … times this while empty
  io::Duration sample_pause_limit = std::chrono::seconds(9);  // no single pause is longer
  int task_failures = 3;  // in a row of one worker, then its task is dropped

  // Workers given back to di-server so long after the start of training, as the mock job does.
  std::optional<Demand> release{};
  io::Duration release_after = std::chrono::seconds(1);

  // Gets each line of the log as users know it, without a newline. Null: standard output.
  std::function<void(std::string_view line)> print{};
};

class Coordinator {
 public:
  static Result<std::unique_ptr<Coordinator>> start(io::Reactor& reactor,
                                                    CoordinatorOptions options,
                                                    std::shared_ptr<Commander> commander,
                                                    std::function<void(Status)> on_end);
  virtual ~Coordinator() = default;

  virtual const std::string& id() const = 0;  // "PID1UUID..._1620615087.98"
  virtual io::Address address() const = 0;    // of its master
  // Gives workers back to di-server, which chooses them (DELETE /replicas).
  virtual void release(const Demand& demand) = 0;
  // Disconnects all; then on_end with `why`, unless the coordinator has ended already.
  virtual void stop(Status why) = 0;
};

}  // namespace divisi::dist
