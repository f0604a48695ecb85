// Its static constructor installs a handler of SIGTERM, as some libraries do. With the variable
// DIVISI_TEST_CHAIN that one calls the handler it has found.
#include "divisi/main.h"
#include "divisi/task.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

volatile std::sig_atomic_t handled = 0;
struct sigaction found{};
const bool chains = std::getenv("DIVISI_TEST_CHAIN") != nullptr;

void handle(int signal, siginfo_t* info, void* context) {
  handled = handled + 1;
  if (!chains) return;
  if ((found.sa_flags & SA_SIGINFO) != 0) {
    found.sa_sigaction(signal, info, context);
  } else if (found.sa_handler != SIG_DFL && found.sa_handler != SIG_IGN) {
    found.sa_handler(signal);
  }
}

const int installed = [] {
  struct sigaction action{};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO;
  return ::sigaction(SIGTERM, &action, &found);
}();

int start() {
  auto running = divisi::task.start();
  divisi::task.use(
      [](divisi::Context&) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  std::printf("running\n");
  std::fflush(stdout);
  divisi::task.run();
  std::printf("finished, handled=%d\n", static_cast<int>(handled));
  return installed;
}

}  // namespace
DIVISI_MAIN(start)
