// Router: what a Task sees of the network. There is one in a process, inactive until
// Parallel gives it a node (see parallel.h). Every member may be called from any thread.
#pragma once

#include "divisi/delivery.h"
#include "divisi/payload.h"
#include "event/loop_core.h"

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace divisi::runtime {

class Router {
 public:
  virtual ~Router() = default;

  virtual bool is_active() const = 0;
  virtual int node_id() const = 0;   // -1 while inactive
  virtual int local_id() const = 0;  // -1 while inactive
  virtual std::set<std::string> labels() const = 0;
  virtual int attach_to_count() const = 0;

  // Queues one event for the peers that `options.to` names. Throws Error: kTimeout naming the
  // peer that stayed full, kWouldBlock, kInvalid for an oversized message. No-op while inactive.
  virtual void send(std::string_view topic, const PayloadView& payload,
                    const SendOptions& options) = 0;

  // Remote events on `topic` are posted to `loop` under the name `event`, once each, however
  // many listeners the loop has. One subscription per (topic, loop); repeating it does nothing.
  virtual void subscribe(std::string_view topic, std::string_view event,
                         std::shared_ptr<event::LoopCore> loop) = 0;
  // True while events are kept for listeners to come (decision N32): the next listener is added as
  // one that is behind, and gets them by catch_up() after the subscription.
  virtual bool begin_catch_up() { return false; }
  virtual void catch_up(std::string_view /*topic*/, std::string_view /*event*/,
                        const std::shared_ptr<event::LoopCore>& /*loop*/, ListenerId /*id*/) {}
  virtual void cancel_catch_up() {}
  virtual void unsubscribe(std::string_view topic, const event::LoopCore* loop) = 0;
  virtual void unsubscribe_all(const event::LoopCore* loop) = 0;

  // This node has made its listeners: peers may prune from here on (decision N1).
  virtual void ready() = 0;

  // Waits until every queued event was acknowledged by its peer. False at the deadline.
  virtual bool flush(std::chrono::milliseconds deadline) = 0;

  // The same at the end of a task: for as long as acknowledgements advance, so that a peer is given
  // up only after this much silence, or when it is lost.
  virtual bool flush_at_end(std::chrono::milliseconds silence) = 0;

  // Whether new peers may link: not while a task stops, for what they send would find nobody.
  virtual void welcome_newcomers(bool /*welcome*/) {}

  virtual void announce_role(std::string role) = 0;

  // Directed events find this node by these labels too, instead of those the same task gave before.
  virtual void announce_labels(const void* task, std::set<std::string> labels) = 0;

  // True once this process was asked to end, by a signal or by its launcher: nobody is to wait on.
  virtual bool interrupted() const { return false; }

  // True when a task that starts now is to finish at once: interrupted(), or its hub was lost and
  // hub_lost says finish.
  virtual bool must_finish() const { return interrupted(); }

  // True while auto_recover still has retries: a task that ends by an exception then keeps
  // its `finish` to itself.
  virtual bool will_retry() const = 0;
};

// The process singleton.
Router& router();

}  // namespace divisi::runtime
