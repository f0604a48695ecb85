// EpollReactor: see reactor.cc for its threads and sockets.cc for its streams.
#pragma once

#include "io/reactor.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

namespace divisi::io {

class EpollReactor final : public Reactor {
 public:
  // Told about the events of one descriptor. Loop only.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    virtual void on_event(std::uint32_t events) = 0;
  };

  struct TimerKey {
    TimePoint when;
    std::uint64_t id = 0;
    friend auto operator<=>(const TimerKey&, const TimerKey&) = default;
  };

  EpollReactor();
  ~EpollReactor() override;

  TimePoint now() const override { return std::chrono::steady_clock::now(); }
  void post(std::function<void()> work) override;
  void run_on_loop(std::function<void()> work) override;
  std::unique_ptr<Timer> after(Duration delay, std::function<void()> work) override;
  Result<std::unique_ptr<Listener>> listen(
      const Address& where, std::function<void(std::shared_ptr<Stream>)> on_accept) override;
  std::unique_ptr<Timer> dial(
      const Address& where, Duration timeout,
      std::function<void(Result<std::shared_ptr<Stream>>)> on_done) override;
  void hand_off(std::function<void()> work, std::function<void()> otherwise, bool heavy) override;

  // For the descriptors of sockets.cc. Loop only. A watcher is level-triggered.
  std::uint64_t watch(int fd, std::uint32_t events, std::shared_ptr<Watcher> watcher);
  void change(std::uint64_t id, int fd, std::uint32_t events);
  void unwatch(std::uint64_t id, int fd);
  void forget_timer(const TimerKey& key);

 private:
  static constexpr std::uint64_t kWakeId = 0;
  struct HandedOff {
    std::function<void()> work, otherwise;
    bool heavy;
  };

  void run(bool leads);
  bool lead();
  bool monitor();
  void turn();

  const int epoll_;
  const int wake_;

  std::mutex posted_mutex_;
  std::vector<std::function<void()>> posted_;  // guarded by posted_mutex_

  // Loop only.
  std::unordered_map<std::uint64_t, std::shared_ptr<Watcher>> watchers_;
  std::map<TimerKey, std::function<void()>> timers_;
  std::vector<HandedOff> handed_off_;
  std::uint64_t next_id_ = kWakeId + 1;

  // Who has the loop; see run().
  std::atomic<std::uint64_t> state_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> monitor_ready_{false};   // a thread is in monitor()
  std::atomic<bool> monitor_asleep_{false};  // and needs a notification
  std::mutex monitor_mutex_;
  std::condition_variable monitor_wake_;
  bool take_now_ = false;  // guarded by monitor_mutex_

  std::thread threads_[2];
};

}  // namespace divisi::io
