// Prints where it sees the router, to be compared with what the program itself sees (N9).
#include "divisi/main.h"
#include "divisi/parallel.h"

#include <cstdio>

namespace {
int start() {
  std::printf("router at %p\n", static_cast<void*>(&divisi::Parallel::instance()));
  return 0;
}
}  // namespace
DIVISI_MAIN(start)

// The same question for a test program that has loaded this object.
extern "C" __attribute__((visibility("default"))) const void* divisi_test_router_address() {
  return &divisi::Parallel::instance();
}
