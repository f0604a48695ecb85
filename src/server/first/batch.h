// Many requests to the cluster at once, but not all of them at once.
#pragma once

#include "base/status.h"

#include <cstddef>
#include <functional>

namespace divisi::server::first {

// Starts work(0) to work(count - 1), at most `width` at a time, each with what it calls at its end.
// After the first failure no more are started. `done` gets that failure when all that were
// started have ended; it may run inside this call.
void run_batch(std::size_t count, std::size_t width,
               std::function<void(std::size_t index, std::function<void(Status)> ended)> work,
               std::function<void(Status)> done);

// Enough to keep an API server busy; few enough that other clients are served in between.
inline constexpr std::size_t kWidth = 64;

}  // namespace divisi::server::first
