// TaskHandler: what a collector or a learner does with the tasks that its master sends.
//
// The slave calls run() and master_gone() on one worker thread, one at a time and in order; stop()
// comes from other threads. Exceptions that leave run() become a failed task.
#pragma once

#include "json/value.h"

namespace divisi::dist {

// What the master is sent: PUT /slave/task/complete or /slave/task/fail with this result.
struct TaskOutcome {
  bool completed = false;
  json::Value result{};  // an object; null is sent as {}
};

class TaskHandler {
 public:
  virtual ~TaskHandler() = default;

  // `data` is the object `data` of POST /task/new: it has "name" ("resource",
  // "collector_start_task", ...) and what that task needs. It may take long ("collector_data_task"
  // waits for data); an unknown name is answered with unknown_task().
  virtual TaskOutcome run(const json::Value& data) = 0;

  // The run() in progress shall return soon, and so shall each later one until master_gone() has
  // been called. What they return is not sent. Any thread; must not block.
  virtual void stop() {}

  // The master disconnected or is lost: its task (training, collecting) is over and nothing is
  // kept of it. Called after the run() in progress has returned; then the next master's tasks come.
  virtual void master_gone() {}

 protected:
  // The answer that the protocol wants for a task of unknown name.
  static TaskOutcome unknown_task() {
    return {.completed = false, .result = json::Object{{"message", "task name error"}}};
  }
};

}  // namespace divisi::dist
