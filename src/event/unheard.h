// Unheard: counts the remote events of a loop that no listener got, for whoever delivers them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace divisi::event {

class Unheard {
 public:
  // Shared, because a loop outlives the node that asks.
  using Counter = std::shared_ptr<std::atomic<std::uint64_t>>;

  // From here on. Until then nobody asks.
  void count_in(Counter counter) {
    const std::lock_guard lock(mutex_);
    counter_ = std::move(counter);
  }
  void add(std::uint64_t events) {
    const std::lock_guard lock(mutex_);
    if (counter_ != nullptr) counter_->fetch_add(events);
  }

 private:
  std::mutex mutex_;
  Counter counter_;  // guarded by mutex_
};

}  // namespace divisi::event
