// Routes: which loops listen to which topic, and the way of received events to them.
//
// Until the node is ready, events are kept, and every listener that comes gets those of its name
// (decisions N1 and N32). Every member may be called from any thread; deliver() by the loop only.
#pragma once

#include "event/loop_core.h"
#include "mesh/inbound.h"
#include "mesh/options.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace divisi::mesh {

using LoopPtr = std::shared_ptr<event::LoopCore>;

// The memory that events of one peer take while they wait for their callbacks: their bytes, and
// what they cost besides, which is most of a small one. The receiver's credit follows it.
struct FlowGauge {
  std::atomic<std::uint64_t> queued{0};  // up on the loop, down by whoever ran the callbacks
  std::mutex mutex;
  std::function<void()> on_drained;  // guarded by mutex; called when much was consumed
  std::atomic<std::uint64_t> consumed_since_told{0};
  std::uint64_t tell_after = 0;  // constant after construction
  void consumed(std::uint64_t bytes);
  // Batches outlive the node in the loops that hold them: nobody is told any more.
  void stop_telling();
};

class Routes {
 public:
  explicit Routes(std::size_t hold_bytes, bool trace = false)
      : hold_bytes_(hold_bytes), trace_(trace) {}

  // True if the topic had no listener before: peers must hear of it. Events held for the topic that
  // nobody got yet are posted to `loop` first.
  bool subscribe(std::string_view topic, std::string_view event, const LoopPtr& loop);
  // True if this was the last listener of the topic.
  bool unsubscribe(std::string_view topic, const event::LoopCore* loop);
  // The topics that lost their last listener.
  std::vector<std::string> unsubscribe_all(const event::LoopCore* loop);

  // A further listener of a loop. True: the node is not ready; add the listener as one that is
  // behind, subscribe, then call catch_up(), which posts what is held to that listener alone, or
  // cancel_catch_up(). Nothing is forgotten in between.
  bool begin_catch_up();
  void catch_up(std::string_view topic, std::string_view event, const LoopPtr& loop, ListenerId id);
  void cancel_catch_up();

  std::vector<std::string> topics() const;

  // From now on events without a listener are dropped and counted; so are those held.
  void stop_holding();

  // Posts the events to their loops, in order. `idle` gets the loops that somebody must drain or
  // wake. Clears `received`.
  void deliver(Received& received, int from_node, const std::shared_ptr<FlowGauge>& gauge,
               std::vector<LoopPtr>& idle);

  // An event of this process itself for the listeners of `topic`.
  void post_local(std::string_view topic, const Payload& payload, int self);

  std::uint64_t unlistened() const;
  std::uint64_t held() const;

 private:
  // Shared, because a batch may still wait in a loop when the route, or the node, is gone.
  using Name = std::shared_ptr<const std::string>;
  struct Sink {
    LoopPtr loop;
    Name event;
  };
  struct Route {
    std::vector<Sink> sinks;
  };
  struct HeldEvent {
    InEvent event;  // lies in `message`
    Buffer message;
    int from_node = -1;
  };
  struct Held {
    std::deque<HeldEvent> events;
    std::size_t unheard = 0;  // of these, the last ones, which nobody got yet
  };
  class EventBatch;
  class CaughtUp;

  // With mutex_ held.
  const Route* find(InTopic& topic);
  bool keeps() const { return holding_ || catching_up_ > 0; }
  bool make_room(std::size_t bytes);
  void hold(const InEvent& event, const Buffer& owner, int from_node, bool is_heard);
  bool post_held(std::string_view topic, const Name& name, const LoopPtr& loop,
                 std::optional<ListenerId> listener);
  void end_catch_up();
  void forget_held();

  const std::size_t hold_bytes_;
  const bool trace_;  // deliveries of events with a trace id are logged
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::unordered_map<std::string, Route> routes_;
  std::uint64_t version_ = 1;  // changes with routes_
  bool holding_ = true;
  std::size_t catching_up_ = 0;  // begin_catch_up() without its end
  std::unordered_map<std::string, Held> held_;
  std::size_t held_bytes_ = 0;
  std::size_t heard_bytes_ = 0;    // of these, of events that somebody got
  std::uint64_t held_events_ = 0;  // that nobody got
  std::uint64_t unlistened_ = 0;   // here: nobody had subscribed

  // And by the loops: somebody had, but listens no more.
  const event::Unheard::Counter unheard_ = std::make_shared<std::atomic<std::uint64_t>>(0);
};

}  // namespace divisi::mesh
