// TestNode: a Node over real sockets with a loop to listen on, and what tests wait with.
#pragma once

#include "divisi/event.h"
#include "mesh/node.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace divisi::mesh::testing {

// Long enough for a busy machine under a sanitizer; reached only by a failing test.
inline constexpr std::chrono::seconds kDeadline{60};

// Asks again and again until it is so, or the deadline has passed.
bool eventually(const std::function<bool()>& is_so);

// A door that callbacks can be made to wait at.
class Door {
 public:
  void open();
  void pass();  // waits until it is open

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// Values in the order in which they came.
template <class T>
class Inbox {
 public:
  void add(T value) {
    const std::lock_guard lock(mutex_);
    values_.push_back(std::move(value));
    changed_.notify_all();
  }
  // False at the deadline.
  bool reaches(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kDeadline, [&] { return values_.size() >= count; });
  }
  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }
  std::vector<T> values() {
    const std::lock_guard lock(mutex_);
    return values_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<T> values_;
};

class TestNode {
 public:
  // Throws if the node cannot start.
  TestNode(int id, std::string listen, std::vector<std::string> dial, NodeOptions options = {});
  // Says goodbye, unless close() or kill() came first.
  ~TestNode();

  Node* operator->() { return node_.get(); }
  Node& node() { return *node_; }
  EventLoop& loop() { return *loop_; }
  Inbox<std::pair<PeerChange, int>>& changes() { return changes_; }
  bool hears(PeerChange change, int peer);

  void on_loop(std::function<void()> work) { reactor_->run_on_loop(std::move(work)); }

  // The process ends without a word; the kernel closes its sockets.
  void kill() { node_.reset(); }
  void close(std::chrono::milliseconds deadline) { node_->close(deadline); }

  template <class F>
  void on(const std::string& name, F&& fn) {
    loop_->on(name, std::forward<F>(fn));
    node_->subscribe(name, name, loop_->core());
  }
  template <class... A>
  Status emit(const std::string& name, const A&... args) {
    return send(name, SendOptions(), args...);
  }
  template <class... A>
  Status send(const std::string& name, const SendOptions& options, const A&... args) {
    PackScratch scratch;
    return node_->send(name, pack_args(scratch, args...), options);
  }

  PeerStats stats_of(int peer) const;
  bool linked_with(int peer) const;

 private:
  Inbox<std::pair<PeerChange, int>> changes_;
  std::unique_ptr<io::Reactor> reactor_ = io::make_reactor();
  std::unique_ptr<EventLoop> loop_ = std::make_unique<EventLoop>("test");
  std::unique_ptr<Node> node_;
};

// Joins and waits until both know each other.
void link(TestNode& a, TestNode& b);

}  // namespace divisi::mesh::testing
