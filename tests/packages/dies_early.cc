// The worker of node 1 dies before it has joined.
#include "divisi/main.h"
#include "divisi/parallel.h"

#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

namespace {
const bool kDied = [] {
  std::ifstream file("/proc/self/cmdline");
  const std::string command{std::istreambuf_iterator<char>(file), {}};
  return command.find("divisi-worker-node-1") != std::string::npos && std::raise(SIGKILL) == 0;
}();

void start() {
  std::printf("node=%d%s\n", divisi::Parallel::instance().node_id(), kDied ? " is dead" : "");
}
}  // namespace
DIVISI_MAIN(start)
