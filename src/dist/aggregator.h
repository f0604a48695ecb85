// Aggregator: many learners that look like one. A slave toward the coordinator, a master toward its
// learners.
//
// A task for a learner goes to all of them: batch sizes are added, sample records are split by what
// each asked for, results are merged (aggregate.h). One failure fails the task. A task starts when
// every listed learner is connected or has failed. Loop only.
#pragma once

#include "base/status.h"
#include "dist/di_server_client.h"
#include "dist/master.h"
#include "dist/slave.h"
#include "io/reactor.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::dist {

struct AggregatorOptions {
  SlaveOptions slave{};               // bind: AGGREGATOR_PORT; its hooks are the aggregator's
  MasterOptions master = any_port();  // port 0: that port + 1; its hooks are the aggregator's

  // Where the list of learners comes from: di-server, or `learners`, or POST /learners of the
  // coordinator (always served).
  std::optional<DiServerOptions> server{};
  std::vector<std::string> learners{};

  io::Duration sync = std::chrono::seconds(3);
  io::Duration connect_retry = std::chrono::seconds(2);
  io::Duration connect_limit = std::chrono::seconds(60);
  io::Duration task_limit = std::chrono::hours(1);  // of one task of a learner; then it is lost

  std::function<void(std::string_view line)> print{};  // as in CoordinatorOptions

  static MasterOptions any_port() {
    MasterOptions options;
    options.bind.port = 0;
    return options;
  }
};

class Aggregator {
 public:
  static Result<std::unique_ptr<Aggregator>> start(io::Reactor& reactor, AggregatorOptions options);
  virtual ~Aggregator() = default;

  virtual io::Address address() const = 0;         // of its slave
  virtual io::Address master_address() const = 0;  // of its master
  virtual std::size_t learners() const = 0;        // connected now
  // Disconnects all; then `done`.
  virtual void stop(std::function<void()> done) = 0;
};

}  // namespace divisi::dist
