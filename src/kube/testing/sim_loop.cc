#include "kube/testing/sim_loop.h"

#include <utility>

namespace divisi::kube::testing {

class SimLoop::SimTimer final : public io::Timer {
 public:
  SimTimer(std::weak_ptr<Timers> timers, Key key) : timers_(std::move(timers)), key_(key) {}
  ~SimTimer() override {
    if (const auto timers = timers_.lock()) timers->erase(key_);
  }

 private:
  const std::weak_ptr<Timers> timers_;
  const Key key_;
};

std::chrono::system_clock::time_point SimLoop::wall() const {
  constexpr std::chrono::sys_days kStart{std::chrono::year(2026) / 1 / 1};
  return kStart +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(now_.time_since_epoch());
}

std::unique_ptr<io::Timer> SimLoop::after(io::Duration delay, std::function<void()> work) {
  const Key key{now_ + std::max(delay, io::Duration(0)), next_++};
  timers_->emplace(key, std::move(work));
  return std::make_unique<SimTimer>(timers_, key);
}

void SimLoop::hand_off(std::function<void()> work, std::function<void()>, bool) {
  post(std::move(work));
}

Result<std::unique_ptr<io::Listener>> SimLoop::listen(
    const io::Address&, std::function<void(std::shared_ptr<io::Stream>)>) {
  return failure(Code::kUnavailable, "there is no network in a simulation");
}

std::unique_ptr<io::Timer> SimLoop::dial(
    const io::Address&, io::Duration,
    std::function<void(Result<std::shared_ptr<io::Stream>>)> on_done) {
  return after(io::Duration(0), [on_done = std::move(on_done)] {
    on_done(failure(Code::kUnavailable, "there is no network in a simulation"));
  });
}

bool SimLoop::step(io::TimePoint until) {
  if (!posted_.empty()) {
    const auto work = std::move(posted_.front());
    posted_.pop_front();
    work();
    return true;
  }
  const auto first = timers_->begin();
  if (first == timers_->end() || first->first.when > until) {
    now_ = std::max(now_, until);
    return false;
  }
  now_ = std::max(now_, first->first.when);
  const auto work = std::move(first->second);
  timers_->erase(first);
  work();
  return true;
}

void SimLoop::run_for(io::Duration time) {
  const io::TimePoint until = now_ + time;
  while (step(until)) {
  }
}

bool SimLoop::run_until(const std::function<bool()>& done, io::Duration most) {
  const io::TimePoint until = now_ + most;
  while (!done()) {
    if (!step(until)) return done();
  }
  return true;
}

}  // namespace divisi::kube::testing
