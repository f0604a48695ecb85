// WorkQueue: keys that need work, each once, the urgent ones first.
//
//   WorkQueue queue(reactor, {}, [&] { take_more(); });
//   queue.add("default/job");                 // many times: worked on once
//   while (auto key = queue.take()) start(*key);    ... queue.done(key);
//
// Loop only. A key is worked on by one at a time; if it is added meanwhile, it comes once more
// after done().
#pragma once

#include "io/reactor.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

namespace divisi::kube {

// A change comes before what start-up and resync bring in floods.
enum class Priority { kChange, kFlood };

struct WorkQueueOptions {
  // The delay of a key that failed doubles from the first to the longest.
  io::Duration first_delay = std::chrono::milliseconds(5);
  io::Duration longest_delay = std::chrono::seconds(1000);
  // Of all keys that failed together.
  double retries_per_second = 10;
  double retry_burst = 100;
};

class WorkQueue {
 public:
  // `on_ready` runs on the loop when take() has something after it had nothing.
  WorkQueue(io::Reactor& reactor, WorkQueueOptions options, std::function<void()> on_ready);

  void add(std::string key, Priority priority = Priority::kChange);
  // The soonest of several wins.
  void add_after(std::string key, io::Duration delay);
  // After a failure: later each time, until forget().
  void add_failed(std::string key);
  void forget(const std::string& key) { failures_.erase(key); }
  int failures(const std::string& key) const;

  std::optional<std::string> take();
  void done(const std::string& key);

  std::size_t size() const noexcept { return lanes_[0].size() + lanes_[1].size(); }
  std::size_t working() const noexcept { return working_; }
  std::size_t delayed() const noexcept { return due_by_key_.size(); }
  // Of the key taken last, since it was ready to be taken.
  io::Duration waited() const noexcept { return waited_; }
  std::uint64_t added() const noexcept { return added_; }
  std::uint64_t retried() const noexcept { return retried_; }

 private:
  struct State {
    bool queued = false;   // in a lane
    bool working = false;  // between take() and done()
    bool again = false;    // added while it was worked on
    Priority priority = Priority::kFlood;
    io::TimePoint since{};  // when it came to the lanes
  };

  void arm();
  void fire();
  io::Duration bucket_delay();

  io::Reactor& reactor_;
  const WorkQueueOptions options_;
  const std::function<void()> on_ready_;

  std::unordered_map<std::string, State> states_;  // of those queued or worked on
  std::deque<std::string> lanes_[2];               // by Priority
  std::size_t working_ = 0;
  io::Duration waited_{0};
  std::uint64_t added_ = 0;
  std::uint64_t retried_ = 0;
  std::unordered_map<std::string, int> failures_;
  double tokens_;
  io::TimePoint tokens_at_;

  std::multimap<io::TimePoint, std::string> due_;
  std::unordered_map<std::string, std::multimap<io::TimePoint, std::string>::iterator> due_by_key_;
  std::unique_ptr<io::Timer> timer_;
  io::TimePoint timer_at_{};
};

}  // namespace divisi::kube
