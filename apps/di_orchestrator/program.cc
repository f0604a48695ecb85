#include "program.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <unistd.h>
#include <utility>

namespace divisi::apps {
namespace {

double resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  long whole = 0;
  long resident = 0;
  statm >> whole >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

double cpu_seconds() {
  timespec spent{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + static_cast<double>(spent.tv_nsec) * 1e-9;
}

}  // namespace

EndSignal::EndSignal() {
  ::sigemptyset(&set_);
  ::sigaddset(&set_, SIGTERM);
  ::sigaddset(&set_, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
}

int EndSignal::wait() const {
  int signal = 0;
  while (::sigwait(&set_, &signal) != 0) {
  }
  return signal;
}

Result<std::unique_ptr<http::Server>> serve_probes(io::Reactor& reactor, const Listen& address,
                                                   kube::HealthOptions options) {
  if (!address) return std::unique_ptr<http::Server>();
  options.address = *address;
  return kube::serve_health(reactor, std::move(options));
}

void add_process_metrics(kube::Metrics& metrics) {
  metrics.gauge("process_resident_memory_bytes", "Resident memory size in bytes.", resident_bytes);
  metrics.counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.",
                  cpu_seconds);
}

CountedAnswers::CountedAnswers(kube::Transport& transport, kube::Metrics& metrics)
    : transport_(transport) {
  transport_.count_answers(&metrics);
}

CountedAnswers::~CountedAnswers() {
  transport_.count_answers(nullptr);
}

int complain(const Status& status) {
  std::fprintf(stderr, "di-orchestrator: %s\n", status.message().c_str());
  return status.code() == Code::kInvalid ? 2 : 1;
}

}  // namespace divisi::apps
