#include "base/log.h"
#include "dist/task_runner.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace divisi::dist {
namespace {

// An exception is the door's business: the master gets a failed task with its text.
TaskOutcome run_guarded(TaskHandler& handler, const json::Value& data) {
  std::string why = "an exception of unknown type";
  try {
    return handler.run(data);
  } catch (const std::exception& error) {
    why = error.what();
  } catch (...) {  // NOLINT(bugprone-empty-catch): `why` says it
  }
  log::error("task {}: {}", log::printable(std::string(data.string_at({"name"}))),
             log::printable(why));
  return {.completed = false, .result = json::Object{{"message", std::move(why)}}};
}

void forget_guarded(TaskHandler& handler) {
  try {
    handler.master_gone();
  } catch (const std::exception& error) {
    log::error("dropping the tasks of a master that is gone: {}",
               log::printable(std::string(error.what())));
  }
}

class ThreadRunner final : public TaskRunner {
 public:
  ThreadRunner(io::Reactor& reactor, std::shared_ptr<TaskHandler> handler)
      : reactor_(reactor), handler_(std::move(handler)), thread_([this] { work(); }) {}

  ~ThreadRunner() override {
    handler_->stop();
    {
      const std::scoped_lock lock(mutex_);
      closed_ = true;
      jobs_.clear();
    }
    changed_.notify_one();
    thread_.join();
  }

  void run(json::Value data, std::function<void(TaskOutcome)> done) override {
    auto shared = std::make_shared<json::Value>(std::move(data));
    add([this, shared, done = std::move(done)]() mutable {
      auto outcome = std::make_shared<TaskOutcome>(run_guarded(*handler_, *shared));
      post([outcome, done = std::move(done)] { done(std::move(*outcome)); });
    });
  }

  void master_gone(std::function<void()> done) override {
    handler_->stop();
    add([this, done = std::move(done)] {
      forget_guarded(*handler_);
      post(done);
    });
  }

 private:
  void add(std::function<void()> job) {
    {
      const std::scoped_lock lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
  }

  // Back to the loop, unless the runner is gone by then.
  void post(std::function<void()> work) {
    reactor_.post([weak = std::weak_ptr(alive_), work = std::move(work)] {
      if (weak.lock()) work();
    });
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closed_ || !jobs_.empty(); });
      if (closed_) return;
      const auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  io::Reactor& reactor_;
  const std::shared_ptr<TaskHandler> handler_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_. At most one task and one farewell: the slave sees to it.
  std::deque<std::function<void()>> jobs_;
  bool closed_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<TaskRunner> make_thread_runner(io::Reactor& reactor,
                                               std::shared_ptr<TaskHandler> handler) {
  return std::make_unique<ThreadRunner>(reactor, std::move(handler));
}

}  // namespace divisi::dist
