// AggregatorCore: the aggregator's two sides, and the tasks between them.
#pragma once

#include "dist/aggregator.h"
#include "dist/coordinator_log.h"
#include "dist/replica_sync.h"
#include "dist/slave_core.h"
#include "dist/workers.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace divisi::dist {

class AggregatorCore final : public Aggregator {
 public:
  AggregatorCore(io::Reactor& reactor, AggregatorOptions options);
  ~AggregatorCore() override;

  Status open();

  io::Address address() const override { return slave_->address(); }
  io::Address master_address() const override { return master_->address(); }
  std::size_t learners() const override { return workers_->joined(Role::kLearner); }
  void stop(std::function<void()> done) override;

 private:
  class Runner;  // the tasks of the coordinator
  using Outcome = std::function<void(TaskOutcome)>;
  using OnAll = std::function<void(std::vector<json::Value>)>;

  void run(const json::Value& data, const Outcome& done);
  void start_task(const json::Value& data, const Outcome& done);
  void get_data(const json::Value& data, const Outcome& done);
  void learn(const json::Value& data, const Outcome& done);
  void close_task(const json::Value& data, const Outcome& done);
  void to_all(const std::vector<json::Value>& data, const Outcome& done, const OnAll& on_all);
  // The learners of the task forget it: they are disconnected, and connected again later.
  void reset_group();
  std::vector<std::string> use(const std::vector<std::string>& urls);
  void want_again();
  void post(std::function<void()> work);

  io::Reactor& reactor_;
  const AggregatorOptions options_;
  const CoordinatorLog log_;
  std::vector<std::string> wanted_;
  std::vector<std::string> group_;   // of the task in progress
  std::vector<std::int64_t> sizes_;  // what each of them asked for last
  std::unique_ptr<io::Timer> again_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();

  // Last, in this order: their callbacks use what is above.
  std::unique_ptr<Workers> workers_;
  std::unique_ptr<Master> master_;
  std::unique_ptr<DiServerClient> server_;
  std::unique_ptr<ReplicaSync> sync_;
  std::unique_ptr<SlaveCore> slave_;
};

}  // namespace divisi::dist
