// Says who its peers are, whenever that changes, until it is told to end.
#include "divisi/main.h"
#include "divisi/parallel.h"
#include "divisi/task.h"

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

namespace {

std::string connected_peers() {
  std::string text;
  for (const divisi::PeerInfo& peer : divisi::Parallel::instance().peers()) {
    if (peer.connected) text += (text.empty() ? "" : ",") + std::to_string(peer.node_id);
  }
  return text;
}

void watch() {
  const auto running = divisi::task.start();
  std::string told = "nobody yet";
  divisi::task.use([&told](divisi::Context&) {
    if (std::string now = connected_peers(); now != told) {
      told = std::move(now);
      std::printf("node %d peers %s\n", divisi::Parallel::instance().node_id(), told.c_str());
      std::fflush(stdout);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  divisi::task.run();
}

}  // namespace
DIVISI_MAIN_AS("main", watch)
