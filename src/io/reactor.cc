// The real Reactor: epoll, two threads that take turns at being the loop.
//
// The loop is with one thread at a time. When a turn has produced callbacks to run, that thread
// runs them itself, right after the read that the kernel woke it for, while the other may take the
// loop over: at once if there is much to run, otherwise when it sees that the callbacks have lasted
// a tick (it looks once a millisecond while there is traffic, and sleeps when there is none). So a
// small event costs a single wake-up, and a callback that blocks holds up nobody's input for long.
#include "io/reactor.h"

#include "base/log.h"
#include "io/epoll_reactor.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <utility>
#include <vector>

namespace divisi::io {

namespace {

constexpr auto kTick = std::chrono::milliseconds(1);

// Ticks without any change after which the watching thread goes to sleep for good.
constexpr int kIdleTicks = 10;

constexpr int kEventsPerTurn = 64;

// A timer's handle: forgets it when destroyed.
class TimerHandle final : public Timer {
 public:
  TimerHandle(EpollReactor& reactor, EpollReactor::TimerKey key) : reactor_(reactor), key_(key) {}
  ~TimerHandle() override { reactor_.forget_timer(key_); }

 private:
  EpollReactor& reactor_;
  const EpollReactor::TimerKey key_;
};

}  // namespace

EpollReactor::EpollReactor()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  DIVISI_CHECK(epoll_ >= 0 && wake_ >= 0, "the kernel has descriptors for the loop");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeId;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event);
  threads_[0] = std::thread([this] { run(true); });
  threads_[1] = std::thread([this] { run(false); });
}

EpollReactor::~EpollReactor() {
  stopping_.store(true);
  post([] {});
  {
    const std::lock_guard lock(monitor_mutex_);
    monitor_wake_.notify_all();
  }
  for (auto& thread : threads_) thread.join();
  // What is left may hold timers and descriptors of this loop: it goes while the loop is whole.
  std::exchange(posted_, {}).clear();
  std::exchange(watchers_, {}).clear();
  std::exchange(timers_, {}).clear();
  ::close(epoll_);
  ::close(wake_);
}

void EpollReactor::post(std::function<void()> work) {
  bool wake = false;
  {
    const std::lock_guard lock(posted_mutex_);
    wake = posted_.empty();
    posted_.push_back(std::move(work));
  }
  // The loop looks at the list before it sleeps, so only the first entry needs a wake-up.
  if (wake) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
  }
}

void EpollReactor::run_on_loop(std::function<void()> work) {
  std::promise<void> done;
  post([&] {
    work();
    done.set_value();
  });
  done.get_future().wait();
}

std::unique_ptr<Timer> EpollReactor::after(Duration delay, std::function<void()> work) {
  const TimerKey key{now() + delay, next_id_++};
  timers_.emplace(key, std::move(work));
  return std::make_unique<TimerHandle>(*this, key);
}

void EpollReactor::forget_timer(const TimerKey& key) {
  timers_.erase(key);
}

void EpollReactor::hand_off(std::function<void()> work, std::function<void()> otherwise,
                            bool heavy) {
  handed_off_.push_back({std::move(work), std::move(otherwise), heavy});
}

std::uint64_t EpollReactor::watch(int fd, std::uint32_t events, std::shared_ptr<Watcher> watcher) {
  const std::uint64_t id = next_id_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  watchers_.emplace(id, std::move(watcher));
  return id;
}

void EpollReactor::change(std::uint64_t id, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
}

void EpollReactor::unwatch(std::uint64_t id, int fd) {
  if (watchers_.erase(id) > 0) ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

// One turn: wait, then everything that is due.
void EpollReactor::turn() {
  timespec timeout{};
  if (!timers_.empty()) {
    const auto left = std::max(Duration::zero(), timers_.begin()->first.when - now());
    const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
    timeout = {seconds.count(), (left - seconds).count()};
  }
  epoll_event events[kEventsPerTurn];
  int count =
      ::epoll_pwait2(epoll_, events, kEventsPerTurn, timers_.empty() ? nullptr : &timeout, nullptr);
  if (count < 0 && errno == ENOSYS) {  // before Linux 5.11, and in some sandboxes
    const auto left =
        std::chrono::seconds(timeout.tv_sec) + std::chrono::nanoseconds(timeout.tv_nsec);
    const auto rounded = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    count = ::epoll_wait(
        epoll_, events, kEventsPerTurn,
        timers_.empty() ? -1 : static_cast<int>(std::min<std::int64_t>(rounded, 60'000)));
  }
  for (int i = 0; i < count; ++i) {
    const std::uint64_t id = events[i].data.u64;  // a copy: the kernel's struct is packed
    if (id == kWakeId) {
      std::uint64_t ignored = 0;
      [[maybe_unused]] const ssize_t n = ::read(wake_, &ignored, sizeof ignored);
      continue;
    }
    const auto found = watchers_.find(id);
    if (found == watchers_.end()) continue;  // gone since the kernel looked
    const auto watcher = found->second;      // may remove itself
    watcher->on_event(events[i].events);
  }
  std::vector<std::function<void()>> posted;
  {
    const std::lock_guard lock(posted_mutex_);
    posted.swap(posted_);
  }
  for (auto& work : posted) work();
  if (timers_.empty()) return;
  const auto current = now();
  while (!timers_.empty() && timers_.begin()->first.when <= current) {
    auto node = timers_.extract(timers_.begin());
    node.mapped()();
  }
}

// state_ is the number of the current run of callbacks times two, plus one while they may be
// overtaken. Each change is a sequentially consistent exchange: whoever gets the loop sees all that
// its predecessor wrote.
void EpollReactor::run(bool leads) {
  for (;;) {
    if (!leads && !monitor()) return;
    if (!lead()) return;
    leads = false;
  }
}

// Is the loop until another thread takes it (true) or the reactor ends (false).
bool EpollReactor::lead() {
  while (!stopping_.load()) {
    turn();
    if (handed_off_.empty()) continue;
    auto mine = std::exchange(handed_off_, {});
    const bool watched = monitor_ready_.load();
    for (std::size_t i = watched ? 1 : 0; i < mine.size(); ++i) mine[i].otherwise();
    if (!watched) continue;  // nobody could take the loop while callbacks run here
    const std::uint64_t open = (state_.load() & ~std::uint64_t{1}) + 3;
    state_.store(open);
    if (mine.front().heavy || monitor_asleep_.load()) {
      const std::lock_guard lock(monitor_mutex_);
      take_now_ = mine.front().heavy;
      monitor_asleep_.store(false);
      monitor_wake_.notify_one();
    }
    mine.front().work();
    std::uint64_t expected = open;
    if (!state_.compare_exchange_strong(expected, open - 1)) return true;
  }
  const std::lock_guard lock(monitor_mutex_);
  monitor_wake_.notify_all();
  return false;
}

// Watches the leader; true once this thread has taken the loop.
bool EpollReactor::monitor() {
  std::unique_lock lock(monitor_mutex_);
  std::uint64_t seen = state_.load();
  int unchanged = 0;
  monitor_ready_.store(true);
  while (!stopping_.load()) {
    if (unchanged >= kIdleTicks) {
      monitor_asleep_.store(true);
      // The leader looks at the flag after it has opened the state, we at the state after the flag.
      if ((state_.load() & 1) == 0) {
        monitor_wake_.wait(lock, [this] { return stopping_.load() || !monitor_asleep_.load(); });
      }
      monitor_asleep_.store(false);
      unchanged = 0;
    } else if (!take_now_) {
      monitor_wake_.wait_for(lock, kTick);
    }
    const bool at_once = std::exchange(take_now_, false);
    std::uint64_t state = state_.load();
    const bool open = (state & 1) != 0;
    if (open && (at_once || state == seen)) {
      monitor_ready_.store(false);
      if (state_.compare_exchange_strong(state, state - 1 + 2)) return true;
      monitor_ready_.store(true);
    }
    unchanged = state == seen ? unchanged + 1 : 0;
    seen = state;
  }
  return false;
}

std::unique_ptr<Reactor> make_reactor() {
  return std::make_unique<EpollReactor>();
}

}  // namespace divisi::io
