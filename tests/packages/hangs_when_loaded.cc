// Its static constructor says who it is, and waits for ever.
#include "divisi/main.h"

#include <cstdlib>
#include <fstream>
#include <unistd.h>

namespace {
int hang() {
  std::ofstream(std::getenv("DIVISI_TEST_MARKER")) << ::getpid() << std::endl;
  while (true) ::pause();
}
const int kNever = hang();
int start() {
  return kNever;
}
}  // namespace
DIVISI_MAIN(start)
