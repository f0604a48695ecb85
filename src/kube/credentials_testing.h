// What the tests of credentials share: a folder of files, a loop whose time they move, and
// certificates.
#pragma once

#include "base/testing/temp_folder.h"
#include "io/reactor.h"
#include "io/tls.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace divisi::kube {

using divisi::testing::TempFolder;

// A loop that the test is: time stands still until advance(), and what threads post runs in
// run_until().
class ManualReactor final : public io::Reactor {
 public:
  io::TimePoint now() const override { return now_; }

  void post(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
    wake_.notify_one();
  }

  void run_on_loop(std::function<void()> work) override { work(); }

  std::unique_ptr<io::Timer> after(io::Duration delay, std::function<void()> work) override {
    const auto key = std::pair(now_ + delay, ++timers_made_);
    timers_[key] = std::move(work);
    return std::make_unique<Handle>(*this, key);
  }

  Result<std::unique_ptr<io::Listener>> listen(
      const io::Address&, std::function<void(std::shared_ptr<io::Stream>)>) override {
    return failure(Code::kUnavailable, "there is no network here");
  }
  std::unique_ptr<io::Timer> dial(
      const io::Address&, io::Duration,
      std::function<void(Result<std::shared_ptr<io::Stream>>)>) override {
    return nullptr;
  }
  void hand_off(std::function<void()> work, std::function<void()>, bool) override { work(); }

  void advance(io::Duration by) {
    const io::TimePoint end = now_ + by;
    while (!timers_.empty() && timers_.begin()->first.first <= end) {
      now_ = timers_.begin()->first.first;
      const auto work = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      work();
    }
    now_ = end;
    while (run_one(std::chrono::seconds(0))) {
    }
  }

  // False when a minute passed before.
  bool run_until(const std::function<bool()>& reached) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!reached()) {
      if (!run_one(deadline - std::chrono::steady_clock::now())) return false;
    }
    return true;
  }

 private:
  using TimerKey = std::pair<io::TimePoint, int>;
  class Handle final : public io::Timer {
   public:
    Handle(ManualReactor& owner, TimerKey key) : owner_(owner), key_(std::move(key)) {}
    ~Handle() override { owner_.timers_.erase(key_); }

   private:
    ManualReactor& owner_;
    TimerKey key_;
  };

  bool run_one(std::chrono::steady_clock::duration wait) {
    std::unique_lock lock(mutex_);
    if (!wake_.wait_for(lock, wait, [this] { return !posted_.empty(); })) return false;
    const auto work = std::move(posted_.front());
    posted_.pop_front();
    lock.unlock();
    work();
    return true;
  }

  io::TimePoint now_{std::chrono::hours(1)};
  int timers_made_ = 0;
  std::map<TimerKey, std::function<void()>> timers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> posted_;  // guarded by mutex_
};

// A self-signed certificate and its key, by the tool that everybody has.
inline io::TlsIdentity make_identity(const TempFolder& folder, const std::string& name) {
  const std::string command =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
      "/CN=" +
      name + " -keyout " + (folder / (name + ".key")) + " -out " + (folder / (name + ".crt")) +
      " 2>/dev/null";
  // NOLINTNEXTLINE(bugprone-command-processor): a test's own fixed text
  EXPECT_EQ(std::system(command.c_str()), 0);
  return {folder.read(name + ".crt"), folder.read(name + ".key")};
}

}  // namespace divisi::kube
