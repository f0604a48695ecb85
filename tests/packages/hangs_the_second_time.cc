// Its static constructor returns at once in the process that only looks whether it can be loaded.
// In the next one it says who it is, and waits for ever.
#include "divisi/main.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace {
int hang() {
  const std::string marker = std::getenv("DIVISI_TEST_MARKER");
  if (::mkdir((marker + "_first").c_str(), 0700) == 0) return 0;
  std::ofstream(marker) << ::getpid() << std::endl;
  while (true) ::pause();
}
const int kNever = hang();
int start() {
  return kNever;
}
}  // namespace
DIVISI_MAIN(start)
