#include "runtime/finish_watcher.h"

#include "base/deadline.h"
#include "divisi/error.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <poll.h>
#include <unistd.h>
#include <utility>

namespace divisi::runtime {

namespace {

// Where nobody else would tell a main of a signal, a handler that it has brought must not keep the
// signal for itself. When it was installed nobody says, so it is looked for.
constexpr int kComeFirstEvery = 250;  // milliseconds

}  // namespace

FinishWatcher::FinishWatcher(Options options)
    : options_(std::move(options)),
      own_signals_(options_.signals == nullptr ? std::make_unique<const SignalWatch>(kEndSignals)
                                               : nullptr),
      signals_(options_.signals == nullptr ? *own_signals_ : *options_.signals) {
  auto pipe = io::make_pipe();
  if (!pipe) throw Error(Code::kUnavailable, pipe.error().message());
  wake_ = *std::move(pipe);
  thread_ = std::thread([this] { watch(); });
}

FinishWatcher::~FinishWatcher() {
  wake_.write.reset();
  thread_.join();
}

void FinishWatcher::watch() {
  // Signals go to the program's own threads, whose waits they are meant to interrupt.
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  while (true) {
    const bool has_channel = options_.channel != nullptr && !channel_ended_;
    std::array<pollfd, 3> fds{{{wake_.read.get(), POLLIN, 0},
                               {signals_.fd(), POLLIN, 0},
                               {has_channel ? options_.channel->fd() : -1, POLLIN, 0}}};
    const int ready = ::poll(fds.data(), fds.size(), milliseconds_left());
    if (ready == 0) {
      if (signal_ == 0) {
        SignalWatch::come_first();
      } else if (options_.on_overdue) {
        options_.on_overdue(signal_);
      }
    }
    if (fds[0].revents != 0) return;
    if (fds[1].revents != 0) take_signals();
    if (fds[2].revents != 0) take_reports();
  }
}

int FinishWatcher::milliseconds_left() const {
  if (!options_.grace) return -1;
  if (signal_ == 0) return kComeFirstEvery;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000));
}

void FinishWatcher::take_signals() {
  while (const auto caught = signals_.next_caught()) {
    if (signal_ == 0) {
      first_ = *caught;
      request_finish(caught->number);
    } else if (is_impatient(first_, *caught) && options_.on_overdue) {
      options_.on_overdue(signal_);
    }
  }
}

bool FinishWatcher::finish_within(std::chrono::milliseconds time) const {
  std::unique_lock lock(mutex_);
  return came_.wait_for(lock, time, [this] { return signal_ != 0; });
}

void FinishWatcher::request_finish(int signal) {
  {
    const std::lock_guard lock(mutex_);
    signal_ = signal;
  }
  came_.notify_all();
  if (options_.grace) deadline_ = deadline_after(*options_.grace);
  if (options_.on_finish) options_.on_finish(signal);
}

void FinishWatcher::take_reports() {
  if (options_.channel == nullptr) return;
  while (const auto report = options_.channel->receive(channel_ended_)) {
    if (report->kind == WorkerReport::Kind::kPeerDied && options_.on_peer_died) {
      options_.on_peer_died(report->value, report->text);
    } else if (report->kind == WorkerReport::Kind::kFinish && signal_ == 0) {
      request_finish(SIGTERM);
    }
  }
  if (channel_ended_ && options_.on_orphaned) options_.on_orphaned();
}

}  // namespace divisi::runtime
