// report_progress(): the figures of this process on their way to the di-server of its DIJob.
#include "divisi/progress.h"

#include "base/log.h"
#include "divisi/error.h"
#include "runtime/network.h"
#include "runtime/progress_reporter.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <unistd.h>

namespace divisi {

namespace {

using runtime::Figures;
using runtime::Network;
using runtime::ProgressReporter;

constexpr std::size_t kMostExtra = 64;
constexpr std::size_t kLongestName = 63;

// Made by the first report, and never destroyed: threads that outlive main may still report.
struct Process {
  std::once_flag once;
  std::atomic<ProgressReporter*> reporter{nullptr};  // null outside of a DIJob
  int rank = -1;
  pid_t owner = 0;  // in a child of fork() there is no loop
};

Process& process() {
  static auto* const made = new Process;
  return *made;
}

ProgressReporter* reporter() {
  Process& here = process();
  if (here.owner != 0 && here.owner != ::getpid()) return nullptr;
  std::call_once(here.once, [&] {
    here.owner = ::getpid();
    const auto server = runtime::job_server_of_environment();
    if (!server) {
      log::warning("{}; progress is not reported", server.error().message());
      return;
    }
    if (!server->has_value()) return;
    here.rank = (*server)->rank;
    here.reporter = new ProgressReporter(Network::instance().reactor(), **server);
  });
  return here.reporter;
}

// "3": rank 3; "3.1": the second of the workers that rank 3 has.
std::string name_of_process() {
  const auto job = Network::instance().membership();
  const int workers = job == nullptr ? 1 : job->config.n_workers;
  int rank = process().rank;
  if (rank < 0) rank = job == nullptr ? 0 : job->config.node_id / workers;
  if (workers == 1) return fmt::format("{}", rank);
  return fmt::format("{}.{}", rank, job->config.local_id);
}

void check_extra(const std::map<std::string, double>& extra) {
  if (extra.size() > kMostExtra) {
    throw UsageError(fmt::format("report_progress: {} extra figures, at most {} are allowed",
                                 extra.size(), kMostExtra));
  }
  for (const auto& [name, value] : extra) {
    if (name.empty() || name.size() > kLongestName) {
      throw UsageError(
          fmt::format("report_progress: the name '{}' has {} characters; 1 to {} are "
                      "allowed",
                      log::printable(name.substr(0, kLongestName)), name.size(), kLongestName));
    }
  }
}

}  // namespace

void report_progress(const Progress& progress) {
  check_extra(progress.extra);
  ProgressReporter* const to = reporter();
  if (to == nullptr) return;
  Figures figures = progress.extra;
  const auto put = [&](const char* name, const std::optional<double>& value) {
    if (value) figures[name] = *value;
  };
  put("env_steps_per_second", progress.env_steps_per_second);
  put("return", progress.episode_return);
  put("eta_seconds", progress.eta_seconds);
  std::erase_if(figures, [](const auto& figure) { return !std::isfinite(figure.second); });
  to->report(progress.whole_job ? figures : Figures(), name_of_process(), figures);
}

}  // namespace divisi

namespace divisi::runtime {

void flush_progress(std::chrono::milliseconds deadline) {
  ProgressReporter* const reporter = process().reporter.load();
  if (reporter != nullptr && process().owner == ::getpid()) reporter->flush(deadline);
}

}  // namespace divisi::runtime
