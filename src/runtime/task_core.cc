#include "runtime/task_core.h"

#include "divisi/error.h"

#include <fmt/format.h>

#include <utility>

namespace divisi::runtime {

void TaskCore::refuse(std::string_view call) {
  throw UsageError(fmt::format(
      "Task::{} was called while the task is not running: the task must be started first, with "
      "task.start()",
      call));
}

std::shared_ptr<Session> TaskCore::require(std::string_view call) const {
  {
    const std::lock_guard lock(mutex_);
    if (current.load() != nullptr) return latest_;
  }
  refuse(call);
}

std::shared_ptr<Session> TaskCore::require_or_start(std::string_view call) {
  {
    const std::lock_guard lock(mutex_);
    if (current.load() != nullptr) return latest_;
    if (lives_ > 0) refuse(call);
  }
  start(defaults);
  return require(call);
}

std::shared_ptr<Session> TaskCore::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

std::uint64_t TaskCore::start(StartOptions options) {
  if (options.n_async_workers < 1) {
    throw UsageError(
        fmt::format("n_async_workers must be at least 1, not {}", options.n_async_workers));
  }
  std::vector<std::shared_ptr<Session>> freed;
  std::shared_ptr<Session> session;
  {
    const std::lock_guard lock(mutex_);
    if (current.load() != nullptr) {
      throw UsageError("Task::start was called while the task is running: stop it first");
    }
    if (latest_ != nullptr) retired_.push_back(std::move(latest_));
    if (emitting.load() == 0) freed.swap(retired_);
    finish->store(false);
    session = std::make_shared<Session>(std::move(options), router, finish, ++lives_);
    latest_ = session;
    session->start();
    current.store(session.get());
  }
  return session->life;
}

std::shared_ptr<Session> TaskCore::session_of(std::uint64_t life) const {
  const std::lock_guard lock(mutex_);
  if (current.load() == nullptr) return nullptr;
  return life == 0 || latest_->life == life ? latest_ : nullptr;
}

void TaskCore::stop(std::uint64_t life, bool failed) {
  const std::shared_ptr<Session> session = session_of(life);
  if (session == nullptr || session->stopping.exchange(true)) return;
  const std::exception_ptr error = session->stop(failed);
  {
    const std::lock_guard lock(mutex_);
    current.store(nullptr);
  }
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace divisi::runtime
