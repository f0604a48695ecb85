// Ways for a main to end, one function each.
#include "divisi/main.h"
#include "divisi/parallel.h"
#include "divisi/task.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

int node_id() {
  return divisi::Parallel::instance().node_id();
}

void succeed() {}

// Who this node is.
void report() {
  const divisi::Parallel& router = divisi::Parallel::instance();
  std::string labels;
  for (const std::string& label : router.labels()) labels += (labels.empty() ? "" : ",") + label;
  std::printf("node=%d local=%d of=%d labels=%s listen=%s\n", router.node_id(), router.local_id(),
              router.n_parallel_workers(), labels.c_str(), router.address().c_str());
}

void fail() {
  throw std::runtime_error("the reward is not a number");
}

int refuse() {
  return 7;
}

// Throws until it has been called again twice.
void recover() {
  if (divisi::Parallel::instance().retries() < 2) throw std::runtime_error("not yet");
  std::printf("recovered after %d retries\n", divisi::Parallel::instance().retries());
}

// Node 0 dies, the others run until they are told to end.
void wait_for_finish() {
  auto running = divisi::task.start();
  divisi::task.use(
      [](divisi::Context&) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  std::printf("running node=%d\n", node_id());
  std::fflush(stdout);
  divisi::task.run();
  std::printf("finished node=%d\n", node_id());
}

void lose_node_zero() {
  if (node_id() == 0) std::raise(SIGKILL);
  wait_for_finish();
}

// The same once all of three run.
void lose_node_zero_of_three() {
  divisi::Parallel& router = divisi::Parallel::instance();
  std::atomic<int> up = 0;
  divisi::Subscription on_up;
  if (node_id() == 0) {
    on_up = router.on("up", [&] {
      if (++up == 2) std::raise(SIGKILL);
    });
  } else {
    router.emit("up");
  }
  wait_for_finish();
  std::printf("left node=%d\n", node_id());
}

void leave_by_exit() {
  std::exit(3);  // NOLINT(concurrency-mt-unsafe)
}

// A child that leaves by exit() is its parent's business alone.
void fork_and_exit() {
  const pid_t child = ::fork();
  if (child == 0) leave_by_exit();
  int status = 0;
  ::waitpid(child, &status, 0);
  const std::string path = divisi::Parallel::instance().address().substr(6);  // ipc://
  std::printf("child=%d socket=%s\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
              ::access(path.c_str(), F_OK) == 0 ? "there" : "gone");
}

// A child that throws out of main is its parent's business as well.
void fork_and_throw() {
  const pid_t child = ::fork();
  if (child == 0) throw std::runtime_error("only the child");
  int status = 0;
  ::waitpid(child, &status, 0);
  const std::string path = divisi::Parallel::instance().address().substr(6);  // ipc://
  std::printf("child=%d socket=%s\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
              ::access(path.c_str(), F_OK) == 0 ? "there" : "gone");
}

void print_much() {
  for (int i = 0; i < 1000; ++i) std::printf("line %d of many\n", i);
}

// Killed once; the next process of the same node ends well.
void die_once() {
  const char* const marker = std::getenv("DIVISI_TEST_MARKER");
  if (marker != nullptr && !std::ifstream(marker)) {
    std::ofstream(marker) << "was here";
    std::raise(SIGKILL);
  }
  std::printf("second life of node=%d\n", node_id());
}

}  // namespace

DIVISI_MAIN(succeed)
DIVISI_MAIN(report)
DIVISI_MAIN(fail)
DIVISI_MAIN(refuse)
DIVISI_MAIN(recover)
DIVISI_MAIN(wait_for_finish)
DIVISI_MAIN(lose_node_zero)
DIVISI_MAIN(lose_node_zero_of_three)
DIVISI_MAIN(leave_by_exit)
DIVISI_MAIN(fork_and_exit)
DIVISI_MAIN(fork_and_throw)
DIVISI_MAIN(print_much)
DIVISI_MAIN(die_once)
