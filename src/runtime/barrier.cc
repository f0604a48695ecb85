#include "runtime/barrier.h"

#include "base/deadline.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace divisi::runtime {

namespace {
constexpr const char* kRequest = "b_req";
constexpr const char* kAcknowledge = "b_ack";
// The epoch of a node that comes to no barrier any more: it has come to all of them.
constexpr std::uint64_t kLeft = std::numeric_limits<std::uint64_t>::max();
}  // namespace

Barrier::Barrier(mesh::Node& node, EventLoop& loop) : node_(node) {
  loop.on(kRequest, [this](std::uint64_t epoch, int from) {
    if (epoch == 0) return;  // nobody's
    const std::lock_guard lock(mutex_);
    const auto [heard, first] = requested_.try_emplace(from, epoch);
    // Events of a peer come in order: those before its first request were not for us.
    if (first && is_new_ && epoch != kLeft) missed_ = std::max(missed_, epoch - 1);
    heard->second = std::max(heard->second, epoch);
    // Whoever comes to a barrier has passed the one before. Its predecessor may have died before
    // it could say so.
    acknowledged_[from] = std::max(acknowledged_[from], epoch == kLeft ? kLeft : epoch - 1);
    changed_.notify_all();
  });
  loop.on(kAcknowledge, [this](std::uint64_t epoch, int from) {
    const std::lock_guard lock(mutex_);
    acknowledged_[from] = std::max(acknowledged_[from], epoch);
    changed_.notify_all();
  });
  node_.subscribe(kRequest, kRequest, loop.core());
  node_.subscribe(kAcknowledge, kAcknowledge, loop.core());
}

void Barrier::add_peer(int node, std::uint64_t incarnation) {
  const std::lock_guard lock(mutex_);
  const auto [known, first] = peers_.try_emplace(node, incarnation);
  if (!first && known->second == incarnation) return;
  known->second = incarnation;
  if (const auto left = requested_.find(node); left != requested_.end() && left->second == kLeft) {
    requested_.erase(left);
    acknowledged_.erase(node);
  }
  const auto reached = requested_.find(node);
  if (reached == requested_.end() || reached->second < epoch_) {
    newcomers_.insert(node);
  } else {
    // The predecessor had come to this barrier: its successor comes to the next one.
    acknowledged_[node] = std::max(acknowledged_[node], reached->second);
  }
  changed_.notify_all();
}

void Barrier::remove_peer(int node) {
  const std::lock_guard lock(mutex_);
  peers_.erase(node);
  newcomers_.erase(node);
  requested_.erase(node);
  acknowledged_.erase(node);
  changed_.notify_all();
}

void Barrier::wait(std::chrono::milliseconds timeout, const std::stop_token& stop) {
  const auto deadline = deadline_after(timeout);
  Lock lock(mutex_);
  await_turn(lock, deadline, stop);
  struct Turn {
    explicit Turn(Barrier& barrier) : of(barrier) { of.waiting_ = true; }
    ~Turn() {
      of.waiting_ = false;
      of.changed_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    Barrier& of;
  };
  const Turn turn(*this);  // goes before the lock does
  newcomers_.clear();      // they hear this one from its beginning
  bool passed = false;
  while (!passed) {
    epoch_ = std::max(epoch_ + 1, missed_ + 1);
    passed = phase(lock, kRequest, requested_, deadline, stop) &&
             phase(lock, kAcknowledge, acknowledged_, deadline, stop);
  }
  is_new_ = false;
}

void Barrier::await_turn(Lock& lock, std::chrono::steady_clock::time_point deadline,
                         const std::stop_token& stop) {
  if (changed_.wait_until(lock, stop, deadline, [this] { return !waiting_; })) return;
  const std::string text =
      fmt::format("barrier of node {}: another one of this process is not over", node_.id());
  if (stop.stop_requested()) throw Error(Code::kCancelled, text);
  throw TimeoutError(text);
}

void Barrier::leave() {
  // A full or closed link is no reason to wait: the peer hears of the end by it.
  SendOptions options;
  options.policy = Policy::kError;
  static_cast<void>(say(kRequest, kLeft, options));
}

Status Barrier::say(const char* topic, std::uint64_t epoch, const SendOptions& options) {
  PackScratch scratch;
  return node_.send(topic, pack_args(scratch, epoch, node_.id()), options);
}

void Barrier::repeat_to_newcomers(Lock& lock, bool acknowledged) {
  const std::set<int> newcomers = std::exchange(newcomers_, {});
  const std::uint64_t epoch = epoch_;
  lock.unlock();
  for (const int node : newcomers) {
    SendOptions options;
    options.to = Target::to_node(node);
    // One that is gone again is told when it is back.
    if (say(kRequest, epoch, options).ok() && acknowledged) {
      static_cast<void>(say(kAcknowledge, epoch, options));
    }
  }
  lock.lock();
}

bool Barrier::phase(Lock& lock, const char* topic, const Epochs& heard,
                    std::chrono::steady_clock::time_point deadline, const std::stop_token& stop) {
  const std::uint64_t epoch = epoch_;
  lock.unlock();
  const Status said = say(topic, epoch, {});
  lock.lock();
  throw_if_failed(said);
  const auto missing = [&] {
    std::string names;
    for (const auto& [peer, incarnation] : peers_) {
      const auto found = heard.find(peer);
      if (found == heard.end() || found->second < epoch) names += fmt::format(" {}", peer);
    }
    return names;
  };
  const auto late = [&] { return missed_ >= epoch; };
  for (;;) {
    if (!newcomers_.empty()) repeat_to_newcomers(lock, &heard == &acknowledged_);
    if (late()) return false;
    if (missing().empty()) return true;
    const auto something_new = [&] { return missing().empty() || late() || !newcomers_.empty(); };
    if (changed_.wait_until(lock, stop, deadline, something_new)) continue;
    const std::string unheard =
        fmt::format("barrier {} of node {}: no word from node{}", epoch, node_.id(), missing());
    if (stop.stop_requested()) throw Error(Code::kCancelled, unheard + " when it was given up");
    throw TimeoutError(unheard);
  }
}

}  // namespace divisi::runtime
