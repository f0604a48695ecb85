#include "kube/work_queue.h"

#include "base/status.h"

#include <algorithm>
#include <utility>

namespace divisi::kube {

WorkQueue::WorkQueue(io::Reactor& reactor, WorkQueueOptions options, std::function<void()> on_ready)
    : reactor_(reactor),
      options_(options),
      on_ready_(std::move(on_ready)),
      tokens_(options.retry_burst),
      tokens_at_(reactor.now()) {}

void WorkQueue::add(std::string key, Priority priority) {
  State& state = states_[key];
  if (state.working) {
    state.priority = state.again ? std::min(state.priority, priority) : priority;
    state.again = true;
    return;
  }
  if (state.queued) {
    if (priority >= state.priority) return;
    auto& lane = lanes_[static_cast<int>(state.priority)];
    lane.erase(std::ranges::find(lane, key));
  } else {
    state.since = reactor_.now();
    ++added_;
  }
  const bool was_empty = size() == 0;
  state.queued = true;
  state.priority = priority;
  lanes_[static_cast<int>(priority)].push_back(std::move(key));
  if (was_empty && on_ready_) on_ready_();
}

std::optional<std::string> WorkQueue::take() {
  for (auto& lane : lanes_) {
    if (lane.empty()) continue;
    std::string key = std::move(lane.front());
    lane.pop_front();
    State& state = states_[key];
    state.queued = false;
    state.working = true;
    ++working_;
    waited_ = reactor_.now() - state.since;
    return key;
  }
  return std::nullopt;
}

void WorkQueue::done(const std::string& key) {
  const auto found = states_.find(key);
  DIVISI_CHECK(found != states_.end() && found->second.working, "done() follows take()");
  const State state = found->second;
  states_.erase(found);
  --working_;
  if (state.again) add(key, state.priority);
}

void WorkQueue::add_after(std::string key, io::Duration delay) {
  if (delay <= io::Duration(0)) return add(std::move(key));
  const io::TimePoint when = reactor_.now() + delay;
  if (const auto known = due_by_key_.find(key); known != due_by_key_.end()) {
    if (known->second->first <= when) return;
    due_.erase(known->second);
    due_by_key_.erase(known);
  }
  due_by_key_[key] = due_.emplace(when, key);
  arm();
}

void WorkQueue::add_failed(std::string key) {
  int& failures = failures_[key];
  io::Duration own = options_.longest_delay;
  // Beyond 40 doublings of a nanosecond any longest delay is passed.
  if (failures < 40) own = std::min(own, options_.first_delay * (std::int64_t{1} << failures));
  ++failures;
  ++retried_;
  const io::Duration delay = std::max(own, bucket_delay());
  add_after(std::move(key), delay);
}

int WorkQueue::failures(const std::string& key) const {
  const auto found = failures_.find(key);
  return found == failures_.end() ? 0 : found->second;
}

// A token for each retry; who comes when there is none waits until its own is there.
io::Duration WorkQueue::bucket_delay() {
  const io::TimePoint now = reactor_.now();
  const double passed = std::chrono::duration<double>(now - tokens_at_).count();
  tokens_ = std::min(options_.retry_burst, tokens_ + passed * options_.retries_per_second);
  tokens_at_ = now;
  tokens_ -= 1;
  if (tokens_ >= 0) return io::Duration(0);
  return std::chrono::duration_cast<io::Duration>(
      std::chrono::duration<double>(-tokens_ / options_.retries_per_second));
}

void WorkQueue::arm() {
  if (due_.empty()) {
    timer_.reset();
    return;
  }
  const io::TimePoint first = due_.begin()->first;
  if (timer_ != nullptr && timer_at_ <= first) return;
  timer_at_ = first;
  timer_ = reactor_.after(std::max(first - reactor_.now(), io::Duration(0)), [this] { fire(); });
}

void WorkQueue::fire() {
  timer_.reset();
  const io::TimePoint now = reactor_.now();
  while (!due_.empty() && due_.begin()->first <= now) {
    std::string key = std::move(due_.begin()->second);
    due_by_key_.erase(key);
    due_.erase(due_.begin());
    add(std::move(key));
  }
  arm();
}

}  // namespace divisi::kube
