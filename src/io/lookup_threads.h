// LookupThreads: name lookups off the loop, where a name server may take long. At most a few run at
// a time, however many addresses are dialled: the others wait for their turn.
#pragma once

#include "base/status.h"

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace divisi::io {

class LookupThreads {
 public:
  static LookupThreads& instance();

  // Runs `lookup` on one of the threads. Fails if there is none and the system gives none.
  Status run(std::function<void()> lookup);

 private:
  LookupThreads();
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<std::function<void()>> waiting_;
  std::size_t threads_ = 0;
  std::size_t idle_ = 0;
};

}  // namespace divisi::io
