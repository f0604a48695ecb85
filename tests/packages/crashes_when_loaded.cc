// Dies in a static constructor.
#include "divisi/main.h"

#include <csignal>

namespace {
const int kCrash = std::raise(SIGSEGV);
int start() {
  return kCrash;
}
}  // namespace
DIVISI_MAIN(start)
