// Every node says hello once to those who are there and once to each who comes later, and leaves
// when it has heard as many others as it was told to expect.
#include "divisi/main.h"
#include "divisi/parallel.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
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

// Shared with the listener, which may still be running for a late hello when main leaves.
struct Guests {
  std::mutex mutex;
  std::condition_variable changed;
  std::set<int> heard;
};

int main() {
  divisi::Parallel& router = divisi::Parallel::instance();
  const auto guests = std::make_shared<Guests>();
  const auto on_hello = router.on("hello", [&router, guests](int node) {
    {
      const std::lock_guard lock(guests->mutex);
      if (guests->heard.contains(node)) return;
    }
    // The answer first: main may leave as soon as the list is complete.
    try {
      router.emit_to({.to = divisi::Target::to_node(node)}, "hello", router.node_id());
    } catch (const divisi::Error&) {
      // It has heard everybody, us among them, and has left.
    }
    const std::lock_guard lock(guests->mutex);
    guests->heard.insert(node);
    guests->changed.notify_all();
  });
  router.emit("hello", router.node_id());
  router.ready();

  std::unique_lock lock(guests->mutex);
  const std::size_t wanted = expected_peers(router.node_id());
  const bool complete = guests->changed.wait_for(lock, std::chrono::seconds(60),
                                                 [&] { return guests->heard.size() >= wanted; });
  std::string text;
  for (const int node : guests->heard) text += (text.empty() ? "" : ",") + std::to_string(node);
  std::printf("node %d heard %s\n", router.node_id(), text.c_str());
  return complete ? 0 : 1;
}

}  // namespace meeting
DIVISI_MAIN(meeting::main)
