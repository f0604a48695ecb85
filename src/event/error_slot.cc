#include "event/error_slot.h"

#include <utility>

namespace divisi::event {

bool ErrorSlot::store(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  if (error_ != nullptr) return false;
  error_ = std::move(error);
  seen_ = false;
  present_.store(true);
  return true;
}

std::exception_ptr ErrorSlot::get() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

std::exception_ptr ErrorSlot::take() {
  const std::lock_guard lock(mutex_);
  present_.store(false);
  return std::exchange(error_, nullptr);
}

std::exception_ptr ErrorSlot::take_unseen() {
  const std::lock_guard lock(mutex_);
  present_.store(false);
  std::exception_ptr error = std::exchange(error_, nullptr);
  return seen_ ? nullptr : error;
}

void ErrorSlot::raise_present() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = error_;
    seen_ = true;
  }
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace divisi::event
