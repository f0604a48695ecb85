// What both processes have: a cluster, signals that end them, and addresses for probes.
#pragma once

#include "base/log.h"
#include "flags.h"
#include "http/server.h"
#include "kube/health.h"
#include "kube/metrics.h"
#include "kube/session.h"

#include <csignal>
#include <future>
#include <memory>

namespace divisi::apps {

// SIGTERM and SIGINT, blocked in every thread that is started after this object and taken by
// wait(). Made before everything else.
class EndSignal {
 public:
  EndSignal();
  int wait() const;  // blocks; the signal

 private:
  sigset_t set_{};
};

// Listens where `address` says, if it says so. Loop only; kInvalid when it cannot.
Result<std::unique_ptr<http::Server>> serve_probes(io::Reactor& reactor, const Listen& address,
                                                   kube::HealthOptions options);

// process_resident_memory_bytes and the like, as Prometheus' own libraries name them.
void add_process_metrics(kube::Metrics& metrics);

// rest_client_requests_total, for as long as it lives.
class CountedAnswers {
 public:
  CountedAnswers(kube::Transport& transport, kube::Metrics& metrics);
  ~CountedAnswers();
  CountedAnswers(const CountedAnswers&) = delete;
  CountedAnswers& operator=(const CountedAnswers&) = delete;

 private:
  kube::Transport& transport_;
};

// Below the 10 s that pods of these processes are given to end.
inline constexpr std::chrono::seconds kDrain{8};

int run_operator(const OperatorFlags& flags, const EndSignal& end);
int run_server(const ServerFlags& flags, const EndSignal& end);

// One line on stderr and the exit code of a process that cannot go on.
int complain(const Status& status);

// A process from its start to its end. What lives on the loop is a Process, made and destroyed
// there: start(session, flags) fails or goes on; stop(done) lets what runs come to its end, which
// is not waited for longer than the pod has.
template <class Process, class Flags>
int run_until_ended(const Flags& flags, const EndSignal& end) {
  auto session = kube::Session::open(flags.common.config);
  if (!session) return complain(session.error());
  io::Reactor& reactor = (*session)->reactor();
  std::unique_ptr<Process> process;
  Status status;
  reactor.run_on_loop([&] {
    process = std::make_unique<Process>();
    status = process->start(**session, flags);
  });
  if (status.ok()) {
    end.wait();
    log::info("ending");
    // Shared: the loop may answer after nobody waits any more.
    const auto stopped = std::make_shared<std::promise<void>>();
    reactor.post([&process, stopped] { process->stop([stopped] { stopped->set_value(); }); });
    if (stopped->get_future().wait_for(kDrain) != std::future_status::ready) {
      log::warning("ends while something still runs: it did not come to its end in time");
    }
  }
  reactor.run_on_loop([&] { process.reset(); });
  return status.ok() ? 0 : complain(status);
}

}  // namespace divisi::apps
