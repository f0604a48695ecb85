// TaskQueue: tasks of one role that wait for a worker.
//
// Each task is tried by itself: a worker that is slow to start one holds up no other. A try needs
// an idle worker and, for a collector, its replay buffer. It is repeated after a pause, and at once
// when a worker becomes idle or a buffer opens; too old a task is dropped. Loop only.
#pragma once

#include "dist/coordinator_desk.h"

#include <chrono>
#include <map>
#include <memory>
#include <string>

namespace divisi::dist {

class TaskQueue {
 public:
  TaskQueue(CoordinatorDesk& desk, Role role) : desk_(desk), role_(role) {}

  void put(json::Value task);
  // Something a task may have waited for has happened.
  void kick();
  // Drops all, for the end of the coordinator.
  void drop_all();
  bool contains(const std::string& task_id) const { return entries_.contains(task_id); }

 private:
  struct Entry {
    std::string id;
    json::Value task;
    io::TimePoint put{};
    double put_wall = 0;     // seconds since 1970, for the log
    io::TimePoint popped{};  // begin of the round of tries
    bool starting = false;   // a worker has been sent the task
    bool refused = false;    // a worker did not take it: the next try waits for its pause
    std::unique_ptr<io::Timer> retry;
  };
  using EntryPtr = std::shared_ptr<Entry>;

  io::Duration limit() const;
  void attempt(const EntryPtr& entry, bool say);
  bool too_old(const EntryPtr& entry);
  void send(const EntryPtr& entry, const Workers::Idle& worker);
  void on_start_report(const EntryPtr& entry, const std::string& url, const json::Value& task,
                       const TaskReport& report);
  void retry_later(const EntryPtr& entry);

  CoordinatorDesk& desk_;
  const Role role_;
  std::map<std::string, EntryPtr> entries_;  // by task_id
};

}  // namespace divisi::dist
