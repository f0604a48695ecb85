#include "divisi/barrier.h"
#include "divisi/parallel.h"

namespace divisi {

namespace {

// A process that is asked to end does not wait for others; its task finishes after this iteration.
void meet(std::chrono::milliseconds timeout) {
  try {
    Parallel::instance().barrier(timeout);
  } catch (const Error& error) {
    if (error.code() != Code::kCancelled) throw;
  }
}

}  // namespace

Middleware barrier(std::chrono::milliseconds timeout) {
  return named("barrier", [timeout](Context&) {
    meet(timeout);
    suspend();
    meet(timeout);
  });
}

}  // namespace divisi
