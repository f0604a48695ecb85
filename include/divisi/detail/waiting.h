// How a front end in another language waits for an event (front_end.h).
#pragma once

#include "divisi/detail/listener.h"
#include "divisi/export.h"
#include "divisi/payload.h"

#include <chrono>

namespace divisi::detail {

// Takes the arguments of the event that a wait ends with, on the thread that runs the listeners.
class DIVISI_API Capture {
 public:
  virtual ~Capture() = default;
  virtual void take(const LocalCall& call) = 0;
  virtual void take(const PayloadView& payload) = 0;
};

// How a waiting thread sleeps, where it has to notice more than its own event (signals).
class DIVISI_API Sleeper {
 public:
  enum class Slept { kWoken, kDeadline, kInterrupted };
  virtual ~Sleeper() = default;
  virtual Slept sleep(std::chrono::steady_clock::time_point deadline) = 0;
  virtual void wake() noexcept = 0;  // from any thread; a wake before the sleep counts
};

}  // namespace divisi::detail
