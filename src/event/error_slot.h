// ErrorSlot: the first error of a loop's listeners, kept until somebody takes it.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>

namespace divisi::event {

class ErrorSlot {
 public:
  // False: there was one already, and it stays.
  bool store(std::exception_ptr error) noexcept;

  bool has_error() const noexcept { return present_.load(); }
  std::exception_ptr get() const;
  std::exception_ptr take();

  // Throws the error, if there is one: once, to the first that asks.
  void raise() {
    if (has_error()) [[unlikely]]
      raise_present();
  }

 private:
  void raise_present();

  std::atomic<bool> present_{false};  // mirrors error_, for emit's check without the lock

  mutable std::mutex mutex_;
  std::exception_ptr error_;  // guarded by mutex_
};

}  // namespace divisi::event
