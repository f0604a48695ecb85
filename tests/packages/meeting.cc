// Every node says hello once to those who are there and once to each who comes later, and leaves
// when it has heard as many others as it was told to expect.
#include "divisi/main.h"
#include "divisi/parallel.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

namespace meeting {

// DIVISI_TEST_PEERS: how many, or one number for each node id, "2,1,1".
std::size_t expected_peers(int node_id) {
  const char* const variable = std::getenv("DIVISI_TEST_PEERS");
  std::string text = variable == nullptr ? "0" : variable;
  if (text.find(',') == std::string::npos) return std::stoul(text);
  for (int i = 0; i < node_id; ++i) text = text.substr(text.find(',') + 1);
  return std::stoul(text);
}

int main() {
  divisi::Parallel& router = divisi::Parallel::instance();
  std::mutex mutex;
  std::condition_variable changed;
  std::set<int> heard;
  router.on("hello", [&](int node) {
    const std::lock_guard lock(mutex);
    if (!heard.insert(node).second) return;
    router.emit_to({.to = divisi::Target::to_node(node)}, "hello", router.node_id());
    changed.notify_all();
  });
  router.emit("hello", router.node_id());
  router.ready();

  std::unique_lock lock(mutex);
  const std::size_t wanted = expected_peers(router.node_id());
  const bool complete =
      changed.wait_for(lock, std::chrono::seconds(60), [&] { return heard.size() >= wanted; });
  std::string text;
  for (const int node : heard) text += (text.empty() ? "" : ",") + std::to_string(node);
  std::printf("node %d heard %s\n", router.node_id(), text.c_str());
  lock.unlock();
  router.off("hello");
  return complete ? 0 : 1;
}

}  // namespace meeting
DIVISI_MAIN(meeting::main)
