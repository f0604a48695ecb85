#include "divisi/barrier.h"
#include "divisi/parallel.h"

namespace divisi {

Middleware barrier(std::chrono::milliseconds timeout) {
  return named("barrier", [timeout](Context&) {
    Parallel::instance().barrier(timeout);
    suspend();
    Parallel::instance().barrier(timeout);
  });
}

}  // namespace divisi
