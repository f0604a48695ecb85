// TaskCore: what a Task is made of: its current session, and how calls reach it.
#pragma once

#include "divisi/task.h"
#include "runtime/router.h"
#include "runtime/task_session.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace divisi::runtime {

class TaskCore {
 public:
  TaskCore(Router& network, StartOptions start_options);
  ~TaskCore();
  TaskCore(const TaskCore&) = delete;
  TaskCore& operator=(const TaskCore&) = delete;

  // The running session. Throws UsageError saying that `call` needs a started task.
  std::shared_ptr<Session> require(std::string_view call) const;
  // The same, but a task that was never started is started now (the cluster guide's way), until
  // it is stopped or main ends.
  std::shared_ptr<Session> require_or_start(std::string_view call);
  // The running session or the last one; null before the first start.
  std::shared_ptr<Session> latest() const;

  std::uint64_t start(StartOptions options);
  // Stops the session of that number (0: whichever runs) and throws what it found, unless it
  // was stopped already.
  void stop(std::uint64_t life, bool failed);

  // The task of the process, when its main has ended: what was started implicitly there is stopped,
  // so that the next main begins as the first did. Throws as stop() does.
  void main_ended(bool failed);
  static TaskCore& of_process();
  // The process is asked to end: every task on that router finishes after this iteration, and its
  // waits end. At once, however much the task's loop still has to do.
  static void interrupt_all(const Router& router);
  // In a child of fork(): the session stays with the parent, its threads are not here. The task is
  // not running, and may be started anew.
  void forked() noexcept;

  [[noreturn]] static void refuse(std::string_view call);

  Router& router;
  const StartOptions defaults;
  const std::shared_ptr<std::atomic<bool>> finish = std::make_shared<std::atomic<bool>>(false);
  const int entered = std::uncaught_exceptions();  // when the task was made, for its destructor

  // The way of an emit, without a lock: it counts itself in, then reads `current`. A session is
  // freed only when nobody was counted in after `current` stopped naming it.
  std::atomic<std::int64_t> emitting{0};
  std::atomic<Session*> current{nullptr};

 private:
  std::uint64_t begin(StartOptions options, bool implicit);
  std::shared_ptr<Session> session_of(std::uint64_t life) const;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::shared_ptr<Session> latest_;
  std::vector<std::shared_ptr<Session>> retired_;  // wait for emits that may still hold them
  std::uint64_t lives_ = 0;
  bool was_started_ = false;  // since main began
  bool implicit_ = false;     // so was the latest
};

}  // namespace divisi::runtime
