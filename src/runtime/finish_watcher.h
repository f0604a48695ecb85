// FinishWatcher: the thread of a worker that hears what comes from outside main: SIGTERM, SIGINT,
// SIGHUP or the launcher's word (finish, please), and that a sibling has died.
#pragma once

#include "io/process.h"
#include "runtime/signal_watch.h"
#include "runtime/worker_channel.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace divisi::runtime {

class FinishWatcher {
 public:
  struct Options {
    std::function<void(int signal)> on_finish;  // once, at the first of them
    // Node id, and its address if it will not be started again.
    std::function<void(int, const std::string&)> on_peer_died{};
    const WorkerChannel* channel = nullptr;  // to the launcher, if there is one
    std::function<void()> on_orphaned{};     // the launcher is gone
    // Watches already, and outlives this; nullptr: signals are heard from the constructor on.
    const SignalWatch* signals = nullptr;
    // Without a launcher nobody else would end a main that does not listen: after `grace`, or at
    // an impatient SIGINT, `on_overdue` gets the signal and ends the process.
    std::optional<std::chrono::milliseconds> grace{};
    std::function<void(int)> on_overdue{};
  };

  explicit FinishWatcher(Options options);
  ~FinishWatcher();  // no callback runs afterwards
  FinishWatcher(const FinishWatcher&) = delete;
  FinishWatcher& operator=(const FinishWatcher&) = delete;

  // The first that came, or 0; the launcher counts as SIGTERM.
  int signal() const noexcept { return signal_; }
  // Waits at most so long; whether one has come.
  bool finish_within(std::chrono::milliseconds time) const;

 private:
  void watch();
  void take_signals();
  void take_reports();
  void request_finish(int signal);
  int milliseconds_left() const;

  const Options options_;
  const std::unique_ptr<const SignalWatch> own_signals_;  // without Options::signals
  const SignalWatch& signals_;
  io::PipePair wake_;
  std::atomic<int> signal_{0};
  mutable std::mutex mutex_;
  mutable std::condition_variable came_;            // signal_ was set
  std::chrono::steady_clock::time_point deadline_;  // of the watching thread
  CaughtSignal first_;                              // of the watching thread; what signal_ was
  bool channel_ended_ = false;                      // of the watching thread
  std::thread thread_;
};

}  // namespace divisi::runtime
