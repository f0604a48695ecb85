// SimLoop: a loop whose time moves only when everything before it has run. Nothing sleeps.
#pragma once

#include "io/reactor.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>

namespace divisi::kube::testing {

class SimLoop final : public io::Reactor {
 public:
  io::TimePoint now() const override { return now_; }
  // The calendar's time: begins at one fixed moment.
  std::chrono::system_clock::time_point wall() const;

  void post(std::function<void()> work) override { posted_.push_back(std::move(work)); }
  void run_on_loop(std::function<void()> work) override { work(); }
  std::unique_ptr<io::Timer> after(io::Duration delay, std::function<void()> work) override;
  void hand_off(std::function<void()> work, std::function<void()> otherwise, bool heavy) override;
  // There is no network here.
  Result<std::unique_ptr<io::Listener>> listen(
      const io::Address& where,
      std::function<void(std::shared_ptr<io::Stream>)> on_accept) override;
  std::unique_ptr<io::Timer> dial(
      const io::Address& where, io::Duration timeout,
      std::function<void(Result<std::shared_ptr<io::Stream>>)> on_done) override;

  // Lets so much time pass.
  void run_for(io::Duration time);
  // Until `done`, at most so long; false when that has passed.
  bool run_until(const std::function<bool()>& done, io::Duration most = std::chrono::hours(1));

 private:
  struct Key {
    io::TimePoint when;
    std::uint64_t id = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  class SimTimer;
  using Timers = std::map<Key, std::function<void()>>;

  bool step(io::TimePoint until);

  io::TimePoint now_{std::chrono::hours(1000)};
  std::deque<std::function<void()>> posted_;
  std::shared_ptr<Timers> timers_ = std::make_shared<Timers>();
  std::uint64_t next_ = 0;
};

}  // namespace divisi::kube::testing
