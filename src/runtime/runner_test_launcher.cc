// A launcher for runner_test.cc: runs the workers its arguments ask for and exits with their code.
//
//   runner_test_launcher [--lost=POLICY] [--grace=MS] [--ipc-dir=DIR] FUNCTION N [ARGS...]
#include "base/log.h"
#include "divisi/main.h"
#include "runtime/entry.h"
#include "runtime/runner.h"
#include "runtime/worker.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

namespace {

using divisi::runtime::WorkerConfig;

// The network of these workers: a socket file, and a flag that finish() sets.
WorkerConfig current;
std::mutex mutex;
std::condition_variable finish_asked;
bool finish = false;  // guarded by mutex
std::atomic<int> dead_peer{-1};
std::condition_variable told;
std::string gone_for_good;  // where it listened; guarded by mutex

constexpr auto kDeadline = std::chrono::seconds(30);  // only a broken launcher lets us wait so long

// For others_end_while_it_joins().
divisi::Status wait_for_word() {
  std::unique_lock lock(mutex);
  if (told.wait_for(lock, kDeadline, [] { return !gone_for_good.empty(); })) return {};
  return {divisi::Code::kTimeout, "nobody said that a sibling has ended"};
}

divisi::Status activate(const WorkerConfig& config) {
  current = config;
  const std::string path = divisi::runtime::ipc_path(config.listen);
  if (path.empty()) return {};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return {divisi::Code::kUnavailable, "cannot listen on " + config.listen};
  }
  if (config.entry.name == "cannot_come_back" && config.restarts > 0) {
    return {divisi::Code::kUnavailable, "cannot listen on " + config.listen + " any more"};
  }
  const bool waits = config.entry.name == "others_end_while_it_joins" && config.restarts > 0;
  return waits ? wait_for_word() : divisi::Status();
}

const bool hooks_installed = [] {
  divisi::runtime::WorkerHooks hooks;
  hooks.activate = activate;
  hooks.deactivate = [](bool) {
    ::unlink(divisi::runtime::ipc_path(current.listen).c_str());
    return divisi::Status();
  };
  hooks.request_finish = [] {
    const std::lock_guard lock(mutex);
    finish = true;
    finish_asked.notify_all();
  };
  hooks.peer_died = [](int node, const std::string& address) {
    dead_peer = node;
    dead_peer.notify_all();
    const std::lock_guard lock(mutex);
    gone_for_good = address;
    told.notify_all();
  };
  divisi::runtime::set_worker_hooks(std::move(hooks));
  return true;
}();

int argument(const std::vector<std::string>& args, std::size_t index) {
  return index < args.size() ? std::stoi(args[index]) : -1;
}

// Says that it runs, and ends when it is asked to.
int patient() {
  std::printf("up %d\n", ::getpid());
  std::unique_lock lock(mutex);
  finish_asked.wait(lock, [] { return finish; });
  std::printf("finished\n");
  return 0;
}
DIVISI_MAIN(patient)

int deaf() {
  std::printf("up %d\n", ::getpid());
  while (true) ::pause();
}
DIVISI_MAIN(deaf)

// Node args[0] dies by signal args[1]; the others are patient.
int one_dies(const std::vector<std::string>& args) {
  if (current.node_id != argument(args, 0)) return patient();
  std::fprintf(stderr, "last words\n");
  ::raise(argument(args, 1));
  return 0;
}
DIVISI_MAIN(one_dies)

// As one_dies, but the others end by themselves when they hear of the death.
int others_hear(const std::vector<std::string>& args) {
  if (current.node_id != argument(args, 0)) {
    dead_peer.wait(-1);
    std::printf("heard of %d\n", dead_peer.load());
    return 0;
  }
  if (current.restarts > 0) {
    std::printf("came back, restart %d\n", current.restarts);
    return 0;
  }
  ::raise(argument(args, 1));
  return 0;
}
DIVISI_MAIN(others_hear)

// Node 1 dies once. Node 0 ends well when the next life of node 1 listens, which waits for it.
int others_end_while_it_joins() {
  if (current.restarts > 0) {
    const std::lock_guard lock(mutex);
    std::printf("joined without %s\n", gone_for_good.c_str());
    return 0;
  }
  if (current.node_id == 1) ::raise(SIGKILL);
  dead_peer.wait(-1);
  std::string theirs = divisi::runtime::ipc_path(current.listen);
  theirs.replace(theirs.size() - 5, 1, "1");  // ..._0.ipc
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (::access(theirs.c_str(), F_OK) != 0) {
    if (std::chrono::steady_clock::now() > deadline) return 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return 0;
}
DIVISI_MAIN(others_end_while_it_joins)

// Node 1 dies once, and its next life cannot join. The others take longer to finish than those
// would get that have joined nothing yet.
int cannot_come_back() {
  if (current.node_id == 1) ::raise(SIGKILL);
  std::unique_lock lock(mutex);
  finish_asked.wait(lock, [] { return finish; });
  std::this_thread::sleep_for(std::chrono::milliseconds(1'500));
  std::printf("finished\n");
  return 0;
}
DIVISI_MAIN(cannot_come_back)

int leaves_a_child() {
  if (std::system("sleep 600 & echo child $!") != 0) return 1;
  return 0;
}
DIVISI_MAIN(leaves_a_child)

int nothing() {
  return 0;
}
DIVISI_MAIN(nothing)

}  // namespace

int main(int argc, char** argv) {
  using namespace divisi::runtime;
  RunnerOptions options;
  PlanOptions plan_options;
  int next = 1;
  for (; next < argc && std::strncmp(argv[next], "--", 2) == 0; ++next) {
    const std::string text = argv[next];
    const std::string value = text.substr(text.find('=') + 1);
    if (text.starts_with("--lost=")) options.worker_lost = parse_worker_lost(value).value();
    if (text.starts_with("--grace=")) options.grace = std::chrono::milliseconds(std::stoi(value));
    if (text.starts_with("--ipc-dir=")) ::setenv("TMPDIR", value.c_str(), 1);
  }
  if (argc < next + 2) return kExitUsage;
  plan_options.common.entry.name = argv[next];
  plan_options.n_parallel_workers = std::stoi(argv[next + 1]);
  plan_options.common.args.assign(argv + next + 2, argv + argc);
  const auto plan = plan_workers(plan_options);
  if (!plan) {
    divisi::log::error("{}", plan.error().message());
    return kExitUsage;
  }
  const RunResult result = run_workers(options, plan->workers);
  if (!result.ok()) std::fprintf(stderr, "launcher: %s\n", result.status.message().c_str());
  return result.exit_code;
}
