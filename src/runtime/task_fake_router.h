// A router for tests: nodes of one process, linked by function calls. What one sends is copied and
// posted to the subscribed loops of all others, in order, as the real router would.
#pragma once

#include "event/loop_core.h"
#include "runtime/router.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace divisi::runtime::testing {

class FakeRouter final : public Router {
 public:
  struct Sent {
    std::string topic;
    Args args;
    SendOptions options;
  };

  explicit FakeRouter(int node_id = -1) : node_id_(node_id) {}
  ~FakeRouter() override = default;

  // Links two nodes both ways.
  static void link(FakeRouter& a, FakeRouter& b) {
    a.peers_.push_back(&b);
    b.peers_.push_back(&a);
  }

  bool is_active() const override { return node_id_ >= 0; }
  int node_id() const override { return node_id_; }
  int local_id() const override { return node_id_; }
  std::set<std::string> labels() const override { return launcher_labels; }
  int attach_to_count() const override { return 2; }

  void send(std::string_view topic, const PayloadView& payload,
            const SendOptions& options) override {
    if (on_send) on_send(topic);
    {
      const std::lock_guard lock(mutex_);
      sent_.push_back({std::string(topic), unpack_any(payload), options});
    }
    for (FakeRouter* peer : peers_) peer->receive(topic, payload, node_id_);
  }

  void subscribe(std::string_view topic, std::string_view event,
                 std::shared_ptr<event::LoopCore> loop) override {
    const std::lock_guard lock(mutex_);
    subscriptions_.push_back({std::string(topic), std::string(event), std::move(loop)});
  }
  void unsubscribe(std::string_view topic, const event::LoopCore* loop) override {
    const std::lock_guard lock(mutex_);
    std::erase_if(subscriptions_,
                  [&](const auto& s) { return s.topic == topic && s.loop.get() == loop; });
  }
  void unsubscribe_all(const event::LoopCore* loop) override {
    const std::lock_guard lock(mutex_);
    std::erase_if(subscriptions_, [&](const auto& s) { return s.loop.get() == loop; });
  }

  void ready() override { ++ready_calls; }
  bool flush(std::chrono::milliseconds) override {
    ++flushes;
    return true;
  }
  bool flush_at_end(std::chrono::milliseconds silence) override { return flush(silence); }
  void announce_role(std::string role) override { announced_role = std::move(role); }
  void announce_labels(const void*, std::set<std::string> labels) override {
    announced_labels = std::move(labels);
  }
  bool will_retry() const override { return retries_left; }

  std::vector<Sent> sent() const {
    const std::lock_guard lock(mutex_);
    return sent_;
  }
  std::vector<Sent> sent(std::string_view topic) const {
    std::vector<Sent> found = sent();
    std::erase_if(found, [&](const Sent& sent) { return sent.topic != topic; });
    return found;
  }
  std::size_t subscriptions(std::string_view topic) const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::count_if(subscriptions_.begin(), subscriptions_.end(),
                                                  [&](const auto& s) { return s.topic == topic; }));
  }
  std::size_t subscriptions() const {
    const std::lock_guard lock(mutex_);
    return subscriptions_.size();
  }

  // A remote event, as if a peer had sent it.
  void receive(std::string_view topic, const PayloadView& payload, int from) {
    // Held while posting, so that events of one sender keep their order.
    const std::lock_guard lock(mutex_);
    for (const Subscription& subscription : subscriptions_) {
      if (subscription.topic != topic) continue;
      auto batch = std::make_unique<OneEvent>(subscription.event, Payload::copy_of(payload), from);
      if (subscription.loop->post(std::move(batch))) subscription.loop->wake();
    }
  }

  std::set<std::string> launcher_labels;
  std::function<void(std::string_view)> on_send;
  std::atomic<bool> retries_left{false};
  std::atomic<int> ready_calls{0};
  std::atomic<int> flushes{0};
  std::string announced_role;
  std::set<std::string> announced_labels;

 private:
  struct Subscription {
    std::string topic;
    std::string event;
    std::shared_ptr<event::LoopCore> loop;
  };

  class OneEvent final : public event::Batch {
   public:
    OneEvent(std::string event, Payload payload, int from)
        : event_(std::move(event)), payload_(std::move(payload)), from_(from) {}
    void deliver(event::Dispatcher& sink) noexcept override {
      sink.dispatch({event_, payload_.view(), from_, 0});
    }

   private:
    const std::string event_;
    const Payload payload_;
    const int from_;
  };

  const int node_id_;
  std::vector<FakeRouter*> peers_;  // changed by link() only
  mutable std::mutex mutex_;
  std::vector<Sent> sent_;                   // guarded by mutex_
  std::vector<Subscription> subscriptions_;  // guarded by mutex_
};

}  // namespace divisi::runtime::testing
