#include "runtime/barrier.h"

#include <algorithm>
#include <string>

namespace divisi::runtime {

namespace {
constexpr const char* kRequest = "b_req";
constexpr const char* kAcknowledge = "b_ack";
}  // namespace

Barrier::Barrier(mesh::Node& node, EventLoop& loop) : node_(node) {
  const auto listen = [&](const char* topic, Epochs& heard) {
    loop.on(topic, [this, &heard](std::uint64_t epoch, int from) {
      const std::lock_guard lock(mutex_);
      heard[from] = std::max(heard[from], epoch);
      changed_.notify_all();
    });
    node_.subscribe(topic, topic, loop.core());
  };
  listen(kRequest, requested_);
  listen(kAcknowledge, acknowledged_);
}

void Barrier::add_peer(int node) {
  const std::lock_guard lock(mutex_);
  peers_.insert(node);
}

void Barrier::remove_peer(int node) {
  const std::lock_guard lock(mutex_);
  peers_.erase(node);
  requested_.erase(node);
  acknowledged_.erase(node);
  changed_.notify_all();
}

void Barrier::wait(std::chrono::milliseconds timeout) {
  const std::lock_guard turn(turn_);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::unique_lock lock(mutex_);
  ++epoch_;
  phase(lock, kRequest, requested_, deadline);
  phase(lock, kAcknowledge, acknowledged_, deadline);
}

void Barrier::phase(std::unique_lock<std::mutex>& lock, const char* topic, const Epochs& heard,
                    std::chrono::steady_clock::time_point deadline) {
  const std::uint64_t epoch = epoch_;
  lock.unlock();
  PackScratch scratch;
  throw_if_failed(node_.send(topic, pack_args(scratch, epoch, node_.id()), {}));
  lock.lock();
  const auto missing = [&] {
    std::string names;
    for (const int peer : peers_) {
      const auto found = heard.find(peer);
      if (found == heard.end() || found->second < epoch) names += fmt::format(" {}", peer);
    }
    return names;
  };
  if (!changed_.wait_until(lock, deadline, [&] { return missing().empty(); })) {
    throw TimeoutError(
        fmt::format("barrier {} of node {}: no word from node{}", epoch, node_.id(), missing()));
  }
}

}  // namespace divisi::runtime
