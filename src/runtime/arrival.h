// Arrival: a middleware waits for what listeners of its task bring.
//
//   std::unique_lock lock(arrival.mutex);        // guards what they bring
//   arrival.wait(task, lock, timeout, [&] { return !received.empty(); });
//
// and in the listener, under the same mutex: received.push_back(...); arrival.tell();
//
// Ends with the task's `finish` too, and with everything else that ends Task::wait_for, which does
// the sleeping: a stop token stands for the event, so what comes before the wait is not missed.
#pragma once

#include "divisi/task.h"

#include <chrono>
#include <functional>
#include <mutex>
#include <stop_token>

namespace divisi::runtime {

class Arrival {
 public:
  enum class Woken {
    kReady,    // what was waited for is there
    kTimeout,  // it did not come in time
    kEnded,    // the task finishes, failed, or was interrupted
  };

  std::mutex mutex;

  // Something has changed. With `mutex` held.
  void tell() { wake_.request_stop(); }

  // Until `ready`, which is asked with `mutex` held. One thread at a time. Throws the error of a
  // listener that the task has stored.
  Woken wait(Task& owner, std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds timeout,
             const std::function<bool()>& ready);

 private:
  std::stop_source wake_{std::nostopstate};  // guarded by mutex; of the wait under way
};

}  // namespace divisi::runtime
