// bench_startup WORKERS
//
// From the call of the runner to the moment the last worker's `main` was entered, and to the
// moment the last worker saw all others; beside it, exec-and-reap of this same binary doing
// nothing, WORKERS times: one after another, and all at once. Prints one JSON line.
#include "divisi/main.h"
#include "divisi/parallel.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <spawn.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace divisi::bench {
namespace {

using Clock = std::chrono::steady_clock;  // one clock for all processes of a host

constexpr const char* kNothing = "--nothing";
constexpr const char* kReportVariable = "DIVISI_BENCH_STARTUP_REPORT";

// What each worker appends to the launcher's report file, in one write.
struct Record {
  Clock::time_point entered;
  Clock::time_point meshed;
  std::int64_t peers;
};

int worker_main() {
  Record record{};
  record.entered = Clock::now();
  Parallel& router = Parallel::instance();
  const auto others = static_cast<std::size_t>(router.n_parallel_workers() - 1);
  router.wait_for_peers(others, std::chrono::seconds(30));
  record.meshed = Clock::now();
  record.peers = static_cast<std::int64_t>(router.peers().size());
  const int fd = ::open(std::getenv(kReportVariable), O_WRONLY | O_APPEND | O_CLOEXEC);
  const bool written = ::write(fd, &record, sizeof record) == static_cast<ssize_t>(sizeof record);
  ::close(fd);
  router.barrier();  // nobody leaves before the last one has counted
  return written ? 0 : 1;
}
DIVISI_MAIN(worker_main)

pid_t spawn_nothing() {
  char self[] = "/proc/self/exe";
  std::string argument = kNothing;
  char* argv[] = {self, argument.data(), nullptr};
  pid_t pid = 0;
  if (::posix_spawn(&pid, self, nullptr, nullptr, argv, environ) != 0) {
    throw std::runtime_error("cannot start this program again");
  }
  return pid;
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double exec_and_reap(int count, bool at_once) {
  const auto start = Clock::now();
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    children.push_back(spawn_nothing());
    if (!at_once) ::waitpid(children.back(), nullptr, 0);
  }
  if (at_once) {
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  }
  return milliseconds_since(start);
}

struct Startup {
  double last_main_ms = 0;
  double mesh_ms = 0;
  double total_ms = 0;  // until the runner returned
  std::int64_t links = 0;
};

Startup start_workers(int count) {
  const int fd = ::memfd_create("report", MFD_CLOEXEC);
  if (fd < 0) throw std::runtime_error("cannot make a report file");
  const std::string path = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd);
  ::setenv(kReportVariable, path.c_str(), 1);
  Startup result;
  const auto start = Clock::now();
  ParallelOptions options;
  options.n_parallel_workers = count;
  options.log_level = "error";
  Parallel::runner(options)(worker_main);
  result.total_ms = milliseconds_since(start);
  Record record{};
  while (::read(fd, &record, sizeof record) == static_cast<ssize_t>(sizeof record)) {
    const auto after = [&](Clock::time_point when) {
      return std::chrono::duration<double, std::milli>(when - start).count();
    };
    result.last_main_ms = std::max(result.last_main_ms, after(record.entered));
    result.mesh_ms = std::max(result.mesh_ms, after(record.meshed));
    result.links += record.peers;
  }
  ::close(fd);
  return result;
}

int run(int workers) {
  exec_and_reap(1, false);  // the binary and its libraries into the page cache
  const double exec_ms = exec_and_reap(workers, false);
  const double exec_at_once_ms = exec_and_reap(workers, true);
  const Startup startup = start_workers(workers);
  std::printf(
      "{\"workers\":%d,\"last_main_ms\":%.2f,\"mesh_ms\":%.2f,\"total_ms\":%.2f,\"exec_ms\":%.2f,"
      "\"exec_at_once_ms\":%.2f,\"sent\":%lld,\"received\":%lld,\"disordered\":0}\n",
      workers, startup.last_main_ms, startup.mesh_ms, startup.total_ms, exec_ms, exec_at_once_ms,
      static_cast<long long>(workers) * (workers - 1), static_cast<long long>(startup.links));
  return 0;
}

}  // namespace
}  // namespace divisi::bench

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == divisi::bench::kNothing) return 0;
  const int workers = argc > 1 ? std::atoi(argv[1]) : 0;
  if (workers < 1) {
    std::fprintf(stderr, "usage: bench_startup WORKERS\n");
    return 2;
  }
  try {
    return divisi::bench::run(workers);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_startup: %s\n", error.what());
    return 1;
  }
}
