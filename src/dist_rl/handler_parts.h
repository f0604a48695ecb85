// What the handlers of collectors and learners share.
#pragma once

#include "dist/task_handler.h"
#include "json/value.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

namespace divisi::dist_rl {

inline dist::TaskOutcome completed(json::Value result) {
  return {.completed = true, .result = std::move(result)};
}

inline dist::TaskOutcome refused(std::string why) {
  return {.completed = false, .result = json::Object{{"message", std::move(why)}}};
}

// A flag that others wait at. Any thread.
class StopFlag {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    stopped_ = false;
  }
  bool is_set() const {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }
  // True when it was set, at once or within `time`.
  bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return stopped_; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
};

}  // namespace divisi::dist_rl
