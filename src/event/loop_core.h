// LoopCore: what an EventLoop is made of, and the seam through which remote events enter it.
//
// Local emits and remote batches share one queue (the strand), run in the order they were posted
// by one thread at a time: the loop's own thread, started on first need, or a thread that posted
// a batch and has nothing better to do (drain_here), which saves a wake-up.
//
// Threads: every member may be called from any thread, unless it says otherwise.
#pragma once

#include "base/status.h"
#include "divisi/detail/waiting.h"
#include "divisi/event.h"
#include "divisi/payload.h"
#include "event/chain_events.h"
#include "event/early_events.h"
#include "event/error_slot.h"
#include "event/event_table.h"
#include "event/remote_event.h"
#include "event/strand.h"
#include "event/unheard.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace divisi::event {

// Why a wait ended.
enum class WakeReason {
  kEvent,
  kTimeout,
  kError,      // a listener of the loop failed: the error is stored
  kFailure,    // wake_waiters: the owner of the loop failed
  kFinish,     // wake_waiters: the owner finishes; only for waits with wake_on_finish
  kStopped,    // the loop was stopped
  kCancelled,  // the stop token
};

struct WaitSpec {
  std::chrono::nanoseconds timeout = kForever;
  bool wake_on_finish = false;
  std::stop_token stop = {};
  // Asked once after the wait is registered, so that a wake_waiters just before it is not missed:
  // a reason ends the wait at once.
  std::function<std::optional<WakeReason>()> already = {};
  // For front ends in other languages (divisi/detail/waiting.h); null: the arguments are turned
  // into Args, the thread sleeps until it is woken.
  std::shared_ptr<divisi::detail::Capture> capture = {};
  divisi::detail::Sleeper* sleeper = nullptr;
  std::function<void()> registered = {};  // called once, when no event is missed any more
  // The step of an async iteration that waits (chain_events.h); 0: none.
  std::uint64_t step = 0;
};

struct WaitResult {
  WakeReason reason = WakeReason::kTimeout;
  Args args;                        // kEvent
  std::exception_ptr decode_error;  // kEvent, but the arguments could not be turned into Args
};

class LoopCore final : public std::enable_shared_from_this<LoopCore>, private StrandOwner {
 public:
  static std::shared_ptr<LoopCore> create(std::string name, EventLoopOptions options);
  ~LoopCore() override;

  const std::string& name() const noexcept { return name_; }

  // --- listeners ---
  // Throw UsageError for a bad event name. A listener that is behind hears no remote event before
  // Dispatcher::caught_up, but what a batch dispatches to it alone.
  ListenerId add(std::string_view event, std::unique_ptr<divisi::detail::Listener> listener,
                 bool is_behind = false);
  void remove(std::string_view pattern);
  void remove(std::string_view pattern, ListenerId id);
  void remove_exact(std::string_view event, ListenerId id) { table_.remove_exact(event, id); }
  void remove_function(std::string_view pattern, const void* function);
  bool listened(std::string_view event) const;
  std::vector<std::string> events() const;
  // How many names the table has, those included that lost their listeners a while ago.
  std::size_t known_names() const { return table_.size(); }

  // `hook(event, listened)` is called whenever an event gets its first listener or loses its last,
  // in that order for each event, under a lock: it must not call back into the loop. It is called
  // at once for the events that already have listeners. An empty function removes it.
  using InterestHook = std::function<void(std::string_view event, bool listened)>;
  void set_interest_hook(InterestHook hook);

  // --- triggers ---
  // The calling thread emits to other processes: a wait may take what comes from here on.
  void note_emit() const noexcept { early_.note_emit(); }
  // Throws the stored error, unless a listener of the loop emits, which would fail for the fault of
  // another. Ignored once stopped.
  void emit(std::string_view event, divisi::detail::Emission& emission);
  // The same from a step of an async iteration: kept for the waits of earlier steps until
  // end_iteration().
  void emit(std::string_view event, divisi::detail::Emission& emission, std::uint64_t step);
  void end_iteration() { chain_.clear(); }

  // Queues a batch. True: the strand was idle and nobody was woken, so the caller must call
  // drain_here() or wake() next. False: whoever runs the strand will come to it, or the loop is
  // stopped and the batch was dropped.
  bool post(std::unique_ptr<Batch> batch);
  // Runs the strand on this thread until its queue is empty, or until `budget` is spent (looked at
  // between batches), when the loop's own thread takes over.
  void drain_here(std::chrono::nanoseconds budget = kForever);
  void wake();

  // Remote events that no listener gets are counted there from now on.
  void count_unheard_in(Unheard::Counter counter) { unheard_.count_in(std::move(counter)); }

  // Runs the listeners of `event` here and now if it has some and all of them asked for that.
  // False: post it.
  bool dispatch_inline(const RemoteEvent& event);

  // True while the calling thread runs a listener: of any loop's strand, or inline in an emit.
  static bool in_listener() noexcept;
  // True while the calling thread runs listeners on any loop's strand.
  static bool on_loop_thread() noexcept;
  // The same for this loop's own strands.
  bool is_current() const noexcept;

  // --- waiting ---
  WaitResult wait(std::string_view event, const WaitSpec& spec);
  // A wait in two steps: the first event from here on is kept, for the wait that follows.
  // `capture` and `step` as in WaitSpec.
  class Expected;
  std::shared_ptr<Expected> expect(std::string_view event,
                                   std::shared_ptr<divisi::detail::Capture> capture,
                                   std::uint64_t step);
  // `capture` and `step` of the spec are not looked at. A wait that ends without the event may be
  // repeated. Throws UsageError once it was given, and while another thread waits.
  WaitResult wait(Expected& expected, const WaitSpec& spec);
  // Nobody will wait.
  void forget(Expected& expected);
  // Ends the waits that are under way (kFinish: those that asked for it).
  void wake_waiters(WakeReason reason);

  // --- errors ---
  ErrorSlot& errors() noexcept { return errors_; }
  // From now on emit() throws no error: the owner of the loop does, where it wants to.
  void leave_errors_to_owner() noexcept { raises_in_emit_.store(false); }
  // Stores an error as if a listener had thrown it.
  void report(const std::exception_ptr& error, std::string_view event) noexcept;

  // --- end ---
  // Refuses new triggers, waits for the queued ones up to stop_timeout, removes all listeners.
  // Ok, or kTimeout: what was still queued is dropped. A later call only waits for the same. From
  // inside a listener of the loop it returns at once, and the loop ends after what is queued.
  Status stop();
  bool stopped() const noexcept { return stopped_.load(); }

 private:
  LoopCore(std::string name, EventLoopOptions options);

  // StrandOwner
  void run_trigger(Record& trigger, HeldListeners& held) noexcept override;
  void run_batch(Batch& batch, HeldListeners& held) noexcept override;

  class Sink;
  class Router;
  class ForwardedEvent;
  class ForwardedNews;
  class LastBatch;
  class UnknownTrigger;
  class ChainTrigger;
  struct Waiter;
  class WaitListener;

  Strand& strand_of(std::size_t hash) noexcept;
  void run_inline(EventEntry& entry, const ListenerList& list, divisi::detail::Emission& emission,
                  bool may_move);
  void run_stored(EventEntry& entry, const divisi::detail::StoredOps& ops, void* stored,
                  const Kwargs* kwargs, HeldListeners& held) noexcept;
  template <class Call>
  void run_one(Listener& listener, EventEntry& entry, const Call& call) noexcept;
  bool is_behind(ListenerId id);
  void forget_behind(ListenerId id);
  void stop_from_inside();
  EventEntry* find(std::string_view event) const;
  void refuse_inside_listener(std::string_view event);
  WaitResult await(const std::shared_ptr<Waiter>& waiter, const WaitSpec& spec,
                   const std::function<void()>& begun);

  static thread_local std::uint64_t step_of_trigger;  // that the thread runs; 0: of no step

  // Constant after construction.
  const std::string name_;
  const EventLoopOptions options_;

  // Provide their own synchronisation.
  EventTable table_;
  Unheard unheard_;
  EarlyEvents early_{unheard_};
  ChainEvents chain_;
  ErrorSlot errors_;
  // The vector is constant. One strand, or one that spreads batches and then one for each thread.
  std::vector<std::unique_ptr<Strand>> strands_;
  std::atomic<bool> raises_in_emit_{true};
  std::atomic<bool> stopped_{false};  // set by stop(); emit and post only look

  std::atomic<std::size_t> behind_count_{0};  // mirrors behind_, for dispatches without the lock
  std::mutex behind_mutex_;
  std::set<ListenerId> behind_;  // guarded by behind_mutex_

  std::mutex stop_mutex_;  // held by the outside thread that ends the strands

  // Guarded by waiters_mutex_.
  std::mutex waiters_mutex_;
  std::vector<std::shared_ptr<Waiter>> waiters_;
};

}  // namespace divisi::event
