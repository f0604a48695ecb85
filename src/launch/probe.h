// Trying something that may crash.
#pragma once

#include "base/status.h"

#include <functional>

namespace divisi::launch {

// Forks, calls `work` in the child with its output thrown away, and returns what it returned.
// A child that dies by a signal is kInternal, naming the signal. When `stop_fd` becomes readable
// the child is killed: kCancelled. Call it while the process has one thread.
Status run_in_child(const std::function<Status()>& work, int stop_fd);

}  // namespace divisi::launch
