#include "event/error_slot.h"

#include <utility>

namespace divisi::event {

bool ErrorSlot::store(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  if (error_ != nullptr) return false;
  error_ = std::move(error);
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

void ErrorSlot::raise_present() {
  if (const std::exception_ptr error = take()) std::rethrow_exception(error);
}

}  // namespace divisi::event
