// TaskRun: a task that a worker has started, until it is closed, fails or its worker is lost.
//
// Loop only. When it is over the commander has been asked finished() or dropped(), the worker is
// released, and CoordinatorDesk::on_run_over has been called.
#pragma once

#include "dist/coordinator_desk.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace divisi::dist {

class TaskRun : public std::enable_shared_from_this<TaskRun> {
 public:
  TaskRun(CoordinatorDesk& desk, Role role, json::Value task, std::string url);
  virtual ~TaskRun() = default;

  virtual void start() = 0;
  // For the end of the coordinator.
  void stop();

  const std::string& id() const { return id_; }
  std::string_view buffer_id() const { return task_.string_at({"buffer_id"}); }
  Role role() const { return role_; }

 protected:
  // Sends a task of that name and passes its result on. A failure is tried again after a pause, a
  // few times; then the task is dropped.
  void ask(json::Value data, std::function<void(const json::Value&)> on_result);
  // Runs `work` after a pause, unless the run is over by then.
  void later(io::Duration pause, std::function<void()> work);
  // Sends the closing task; its result ends the run.
  void close();
  void drop(DropReason reason, std::string_view why);

  CoordinatorDesk& desk_;
  const json::Value task_;

 private:
  void on_report(const json::Value& data, const std::function<void(const json::Value&)>& on_result,
                 const TaskReport& report);
  void end();

  const Role role_;
  const std::string id_;
  const std::string url_;
  int failures_ = 0;  // in a row
  bool over_ = false;
  std::unique_ptr<io::Timer> timer_;
};

std::shared_ptr<TaskRun> make_collector_run(CoordinatorDesk& desk, json::Value task,
                                            std::string url);
std::shared_ptr<TaskRun> make_learner_run(CoordinatorDesk& desk, json::Value task, std::string url);

}  // namespace divisi::dist
