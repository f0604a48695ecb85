// CoordinatorCore: the life of a coordinator, from the demand to the end. Workers, queues and
// running tasks are objects of their own; here is what connects them.
#pragma once

#include "dist/coordinator.h"
#include "dist/coordinator_desk.h"
#include "dist/replica_sync.h"
#include "dist/task_queue.h"
#include "dist/task_run.h"

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace divisi::dist {

class CoordinatorCore final : public Coordinator, private CoordinatorDesk {
 public:
  CoordinatorCore(io::Reactor& reactor, CoordinatorOptions options,
                  std::shared_ptr<Commander> commander, std::function<void(Status)> on_end);
  ~CoordinatorCore() override;

  Status open();
  void begin();

  const std::string& id() const override { return log_.id(); }
  io::Address address() const override { return master_->address(); }
  void release(const Demand& demand) override;
  void stop(Status why) override;

 private:
  // CoordinatorDesk
  io::Reactor& reactor() override { return reactor_; }
  Master& master() override { return *master_; }
  Workers& workers() override { return *workers_; }
  Commander& commander() override { return *commander_; }
  const CoordinatorLog& log() const override { return log_; }
  const CoordinatorOptions& options() const override { return options_; }
  bool has_buffer(std::string_view buffer_id) const override;
  void on_assigned(Role role, json::Value task, const std::string& url) override;
  void on_run_over(const std::string& task_id) override;
  void look() override;

  bool oldest_layout() const { return !options_.aggregator.empty(); }
  void make_workers();
  void make_sync();
  ReplicaSync::Failed failed_workers() const;

  // Before training.
  void on_joined(Role role, const std::string& url);
  void on_failed(Role role, const std::string& url);
  void ask_for_workers();
  void demand();
  void follow_workers();
  void on_replicas(const Replicas& replicas);
  void send_learners();
  void print_lists(const Replicas& replicas);
  void want_all();
  void wait_for_workers();
  bool enough() const;

  // Training.
  void begin_training();
  void turn();
  bool queue_tasks(Role role);
  bool open_buffer(const json::Value& task);
  void close_buffer(std::string_view buffer_id);

  void end(Status status);
  void post(std::function<void()> work);

  io::Reactor& reactor_;
  const CoordinatorOptions options_;
  const std::shared_ptr<Commander> commander_;
  std::function<void(Status)> on_end_;
  const CoordinatorLog log_;

  TaskQueue learner_queue_{*this, Role::kLearner};
  TaskQueue collector_queue_{*this, Role::kCollector};
  std::map<std::string, std::shared_ptr<TaskRun>> runs_;  // by task_id
  std::set<std::string, std::less<>> buffers_;

  std::vector<std::string> collectors_;  // of di-server
  std::vector<std::string> learners_;
  std::set<std::string> failed_learners_;  // as the aggregator says
  std::string printed_;                    // the lists in the log
  int unprinted_ = 0;

  bool asked_ = false;  // for workers
  bool training_ = false;
  bool ending_ = false;
  io::TimePoint asked_at_{};
  io::TimePoint waited_since_{};
  std::unique_ptr<io::Timer> demand_timer_;
  std::unique_ptr<io::Timer> wait_timer_;
  std::unique_ptr<io::Timer> turn_timer_;
  std::unique_ptr<io::Timer> static_timer_;
  std::unique_ptr<io::Timer> release_timer_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();

  // Last, in this order: their callbacks use what is above.
  std::unique_ptr<Workers> workers_;
  std::unique_ptr<Master> master_;
  std::unique_ptr<DiServerClient> server_;
  std::unique_ptr<ReplicaSync> sync_;
};

}  // namespace divisi::dist
