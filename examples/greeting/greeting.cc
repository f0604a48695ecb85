// Two processes greet each other: node 1 says "Hi", node 0 prints it.
//
//   build/release/bin/greeting                      # one command, two processes
//   ditask --package build/release/examples --main greeting.greet --parallel-workers 2 --topology
//   mesh
#include <chrono>
#include <cstdio>
#include <divisi/divisi.h>
#include <string>

using divisi::task;

void greet() {
  const auto running = task.start();
  const int node = task.router().node_id();
  if (node == 0) {
    task.on("greeting",
            [](const std::string& message) { std::printf("node 0 heard: %s\n", message.c_str()); });
    // Nothing is lost if the greeting was faster than this line: events without a listener are
    // kept for the first one.
    task.wait_for("done", {.timeout = std::chrono::seconds(10)});
  } else {
    for (int i = 1; i <= 3; ++i) {
      task.emit("greeting", divisi::only_remote,
                "Hi " + std::to_string(i) + " from node " + std::to_string(node));
    }
    std::printf("node %d said Hi three times\n", node);
    task.emit("done", divisi::only_remote);
  }
  std::fflush(stdout);
}
DIVISI_MAIN(greet)
DIVISI_MAIN_AS("main", greet)  // for: ditask --main greeting.main

int main() {
  return divisi::Parallel::runner({.n_parallel_workers = 2, .log_level = "warning"}).run(greet);
}
