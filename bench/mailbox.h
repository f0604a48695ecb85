// The peer of a queued listener: a queue with a mutex whose reader takes everything at once, and
// is woken only if it sleeps. The least that handing work to another thread can be.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace divisi::bench {

class Mailbox {
 public:
  Mailbox() : thread_([this] { run(); }) {}
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;
  ~Mailbox() {
    post({});
    thread_.join();
  }

  void post(std::function<void()> work) {
    bool wake = false;
    {
      std::lock_guard lock(mutex_);
      wake = std::exchange(asleep_, false);
      queue_.push_back(std::move(work));
    }
    if (wake) ready_.notify_one();
  }

 private:
  void run() {
    std::vector<std::function<void()>> batch;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        while (queue_.empty()) {
          asleep_ = true;
          ready_.wait(lock);
        }
        batch.swap(queue_);
      }
      for (auto& work : batch) {
        if (!work) return;
        work();
      }
      batch.clear();
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  bool asleep_ = false;                       // guarded by mutex_
  std::vector<std::function<void()>> queue_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace divisi::bench
