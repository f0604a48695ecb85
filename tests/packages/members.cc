// Says who its peers are whenever that changes, until it is asked to end: "peers 1,2", and "peers
// 1,2!" where node 2 is lost. DIVISI_TEST_PROGRESS=1: it also reports its progress.
#include "divisi/main.h"
#include "divisi/parallel.h"
#include "divisi/progress.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace members {

std::string peers(const divisi::Parallel& router) {
  std::string text;
  for (const auto& peer : router.peers()) {
    if (!peer.connected && !peer.lost) continue;
    text += (text.empty() ? "" : ",") + std::to_string(peer.node_id) + (peer.lost ? "!" : "");
  }
  return text;
}

int follow() {
  const divisi::Parallel& router = divisi::Parallel::instance();
  std::printf("node %d begins\n", router.node_id());
  if (std::getenv("DIVISI_TEST_PROGRESS") != nullptr) {
    divisi::report_progress({.env_steps_per_second = 120.5, .episode_return = 17.25});
    divisi::report_progress({.eta_seconds = 60.5, .extra = {{"loss", 0.5}}, .whole_job = false});
  }
  std::string last = "?";
  while (!router.interrupted()) {
    if (std::string now = peers(router); now != last) {
      std::printf("peers %s.\n", now.c_str());
      std::fflush(stdout);
      last = std::move(now);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return 0;
}

}  // namespace members
DIVISI_MAIN(members::follow)
