// ProgressReporter: hands figures to the di-server, the latest of each name, not too often.
//
// report() may be called from any thread and never waits. A server that is away is tried again
// with the next figures, or after a pause; the debug log says so.
#pragma once

#include "io/reactor.h"
#include "json/value.h"
#include "runtime/job_server.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace divisi::runtime {

using Figures = std::map<std::string, double>;

class ProgressReporter {
 public:
  static constexpr std::chrono::milliseconds kInterval{2'000};

  ProgressReporter(io::Reactor& reactor, JobServer server,
                   std::chrono::milliseconds interval = kInterval);
  ~ProgressReporter();  // not on the loop
  ProgressReporter(const ProgressReporter&) = delete;
  ProgressReporter& operator=(const ProgressReporter&) = delete;

  // Figures of the job, and those of one process, named by `who` ("3": rank 3).
  void report(const Figures& job, const std::string& who, const Figures& process);

  // Waits until the server has everything; false at the deadline. Not on the loop.
  bool flush(std::chrono::milliseconds deadline);

 private:
  struct Unsent {
    Figures job{};
    std::map<std::string, Figures> ranks{};
    bool empty() const { return job.empty() && ranks.empty(); }
    void add(const Unsent& other, bool other_is_newer);
    json::Value body() const;
  };

  // Loop only.
  void send_when_due();
  void send();
  void sent(const Status& status);

  io::Reactor& reactor_;
  const JobServer server_;
  const std::chrono::milliseconds interval_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  Unsent unsent_;
  Unsent on_its_way_;
  bool posted_ = false;    // the loop will look at unsent_
  bool flushing_ = false;  // somebody waits: do not wait for the interval

  // Loop only.
  std::unique_ptr<http::Client> client_;
  std::unique_ptr<http::Call> call_;
  std::unique_ptr<io::Timer> timer_;
  io::TimePoint next_{};
  std::chrono::milliseconds pause_;  // until the next one: the interval, longer after failures
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// For the end of a worker's main: what this process has reported, if it has.
void flush_progress(std::chrono::milliseconds deadline);

}  // namespace divisi::runtime
