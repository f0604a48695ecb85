#include "runtime/task_core.h"

#include "divisi/error.h"
#include "mesh/node_labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <pthread.h>
#include <set>
#include <utility>

namespace divisi::runtime {
namespace {

// The tasks of this process, for the moment after a fork and for a signal.
struct Tasks {
  std::mutex mutex;
  std::set<TaskCore*> all;

  static Tasks& instance() {
    static Tasks& tasks = *new Tasks;  // tasks may outlive static objects
    return tasks;
  }

 private:
  // The forking thread holds the mutex over the fork: the child finds the list whole.
  Tasks() {
    ::pthread_atfork([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                     [] {
                       for (TaskCore* const task : instance().all) task->forked();
                       instance().mutex.unlock();
                     });
  }
};

}  // namespace

TaskCore::TaskCore(Router& network, StartOptions start_options)
    : router(network), defaults(std::move(start_options)) {
  Tasks& tasks = Tasks::instance();
  const std::lock_guard lock(tasks.mutex);
  tasks.all.insert(this);
}

TaskCore::~TaskCore() {
  Tasks& tasks = Tasks::instance();
  const std::lock_guard lock(tasks.mutex);
  tasks.all.erase(this);
}

void TaskCore::interrupt_all(const Router& router) {
  std::vector<std::shared_ptr<Session>> running;
  {
    Tasks& tasks = Tasks::instance();
    const std::lock_guard lock(tasks.mutex);
    for (const TaskCore* const task : tasks.all) {
      const std::lock_guard of_task(task->mutex_);
      if (&task->router == &router && task->current.load() != nullptr) {
        running.push_back(task->latest_);
      }
    }
  }
  for (const auto& session : running) session->interrupt();
}

void TaskCore::forked() noexcept {
  std::construct_at(&mutex_);  // whoever held it is not here
  current.store(nullptr);
  emitting.store(0);
  // Never destroyed: that would wait for the parent's threads.
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): a child without memory ends here
  static auto& parents = *new std::vector<std::shared_ptr<Session>>;
  if (latest_ != nullptr) retired_.push_back(std::move(latest_));
  std::ranges::move(retired_, std::back_inserter(parents));
  retired_.clear();
}

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
    if (was_started_) refuse(call);
  }
  begin(defaults, true);
  return require(call);
}

std::shared_ptr<Session> TaskCore::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

std::uint64_t TaskCore::start(StartOptions options) {
  return begin(std::move(options), false);
}

std::uint64_t TaskCore::begin(StartOptions options, bool implicit) {
  constexpr int kMostWorkers = 4096;
  if (options.n_async_workers < 1 || options.n_async_workers > kMostWorkers) {
    throw UsageError(fmt::format("n_async_workers must be 1 to {}, not {}", kMostWorkers,
                                 options.n_async_workers));
  }
  throw_if_failed(mesh::check_labels(options.labels));
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
    was_started_ = true;
    implicit_ = implicit;
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

void TaskCore::main_ended(bool failed) {
  std::shared_ptr<Session> left;
  {
    const std::lock_guard lock(mutex_);
    // One that began before main is not main's to end.
    if (current.load() != nullptr && implicit_ && latest_->distributed) left = latest_;
    was_started_ = current.load() != nullptr && left == nullptr;
  }
  if (left == nullptr) return;
  left->leave(failed);
  stop(left->life, failed);
}

}  // namespace divisi::runtime
