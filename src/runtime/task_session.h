// Session: one life of a Task, from start to stop. Everything here is internal to runtime/.
//
// Jobs of the pool and events hold a session by shared_ptr or weak_ptr, so that one that comes
// late finds a stopped session, never a new one.
#pragma once

#include "divisi/task.h"
#include "runtime/pool.h"
#include "runtime/router.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace divisi::runtime {

// A middleware between its two parts.
struct Suspended {
  std::uint64_t slot;  // which top-level call it belongs to: the order of the backward phase
  std::shared_ptr<Context> ctx;  // outlives the call, which refers to it
  Lock lock;
  MiddlewareCall call;
};

// The calls of a group, destroyed from the back: what is still suspended is unwound in reverse.
struct CallStack {
  std::vector<MiddlewareCall> calls;
  CallStack() = default;
  CallStack(const CallStack&) = delete;
  CallStack& operator=(const CallStack&) = delete;
  ~CallStack() {
    while (!calls.empty()) calls.pop_back();
  }
};

struct Registered {
  Middleware fn;
  Lock lock;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(StartOptions options, Router& router, std::shared_ptr<std::atomic<bool>> finish,
          std::uint64_t life);
  ~Session();

  void start();

  // --- pipeline ---
  void use(Middleware fn, const UseOptions& options);
  void use_wrapper(Wrapper wrapper);
  void on_finish(std::function<void(Context&)> hook);
  std::size_t middleware_count() const;
  std::size_t backward_stack_size() const;

  void run(std::int64_t max_step);
  // `turn`: the place in the queue for the lock, 0 for whoever comes first.
  Back forward(Middleware fn, std::shared_ptr<Context> ctx, Lock lock, std::uint64_t turn = 0);
  void forward_on_pool(Middleware fn, std::shared_ptr<Context> ctx, Lock lock);
  void backward(bool on_pool);
  void backward(std::vector<Back> stack, bool on_pool);
  void backward(const Back& back);
  void submit(std::function<void()> job);
  void sync();
  void renew();
  void fail(std::exception_ptr failure);
  void run_parallel(const std::vector<Middleware>& parts, Context& ctx);
  void allow_pool();
  // The step of an async iteration that the calling thread runs; 0: none.
  std::uint64_t step() const noexcept;
  // For a front end with a pipeline of its own: gives the step before.
  std::uint64_t enter_step(std::uint64_t step) noexcept;

  // The shared pointer of `ctx` if it is the current context, else one that owns nothing.
  std::shared_ptr<Context> share(Context& ctx) const;
  std::shared_ptr<Context> ctx() const;

  // --- labels and roles ---
  std::set<std::string> labels() const;
  bool match_labels(std::string_view pattern) const;
  std::set<std::string> roles() const;
  void add_role(std::string_view role);
  bool has_role(std::string_view role) const;
  // Is this node one of those that `target` means?
  bool is_meant(const Target& target) const;

  // --- events ---
  ListenerId listen(std::string_view event, std::unique_ptr<divisi::detail::Listener> listener,
                    ListenOptions options, bool once);
  void off(std::string_view pattern);
  void off(std::string_view pattern, ListenerId id);
  void off_function(std::string_view pattern, const void* function);
  std::optional<Args> wait_for(std::string_view event, const WaitForOptions& options);
  // The same, told by reason.
  event::WaitResult wait(std::string_view event, event::WaitSpec spec);
  std::optional<Args> given(event::WaitResult result, std::string_view event,
                            const WaitForOptions& options);
  // The part of a wait that the event does not end.
  std::optional<event::WakeReason> ends_waits(bool wake_on_finish);
  // Subscribes. The number, if it was not subscribed before, is for unsubscribe_unused().
  std::optional<std::uint64_t> subscribe(std::string_view event);
  // Unless somebody has listened to it or waited for it since.
  void unsubscribe_unused(std::string_view event, std::uint64_t number);
  void send(std::string_view event, const PayloadView& payload, const SendOptions& options);
  // The thread that started the task, or that runs it, is the one that errors of its listeners are
  // thrown to; in a listener nobody is.
  void own() { owner_.store(std::this_thread::get_id()); }
  bool owned_here() const;
  void raise_stored();  // for the owner
  void set_finish(bool finish);
  void interrupt();  // the process is asked to end

  // --- end ---
  // The first call does the work and returns what went wrong, if anything; see Task::stop.
  std::exception_ptr stop(bool failed);
  // Before the stop of a session that main left running: takes away what may refer to objects of
  // main, which are gone. Queued events still run, unless main failed.
  void leave(bool failed);

  // Constant after construction.
  const StartOptions options;
  Router& router;
  const bool distributed;    // the router was active at the start
  const std::uint64_t life;  // counts the starts of a task

  // Provide their own synchronisation.
  EventLoop loop;
  std::atomic<bool> accepting{true};  // cleared by stop; emits look at it and are ignored then
  std::atomic<bool> stopping{false};  // set by the one call of stop that does the work

 private:
  class LockHold;
  class SlotScope;

  void push(std::shared_ptr<Suspended> suspended);
  std::shared_ptr<Suspended> pop();
  bool take(const std::shared_ptr<Suspended>& suspended);
  void resume(Suspended& suspended);
  void resume_all();
  const void* turn_key(const Lock& lock) const noexcept;
  void await_turn(const Lock& lock, std::uint64_t slot);
  void end_turn(const Lock& lock);
  void discard_suspended() noexcept;
  void iterate();
  std::optional<Registered> middleware_at(std::size_t index) const;
  Pool& pool();
  void listen_to_finish();
  void unsubscribe_unheard(std::string_view pattern);
  std::vector<std::string> heard_events() const;  // sorted; with mutex_ held
  std::vector<std::string> forget_unheard();      // with mutex_ held
  std::set<std::string> initial_labels() const;
  void announce_labels();
  void run_finish_hooks(std::exception_ptr& first);
  void tell_finish(bool failed);
  void join_pool();
  void clear();

  std::atomic<std::thread::id> owner_{std::this_thread::get_id()};
  const std::shared_ptr<std::atomic<bool>> finish_;  // the task's flag
  const std::shared_ptr<JobGroup> steps_;            // what sync() waits for
  std::recursive_mutex own_mutex_;                   // Lock(true); recursive, as wrapped steps nest
  std::mutex submit_mutex_;  // before mutex_: makes a forward's number and its submission one step

  std::mutex
      subscribe_mutex_;  // before mutex_: makes a change of subscribed_ and of the router one

  mutable std::mutex mutex_;
  // Guarded by mutex_; never held while user code runs.
  std::shared_ptr<Context> ctx_;
  std::vector<Registered> middleware_;
  std::vector<Wrapper> wrappers_;
  std::vector<std::function<void(Context&)>> finish_hooks_;
  std::vector<std::shared_ptr<Suspended>> stack_;  // by slot, then in the order of suspension
  std::uint64_t next_slot_ = 0;
  std::uint64_t discarded_ = 0;  // up to this slot nothing is resumed any more
  std::map<const void*, std::deque<std::uint64_t>> turns_;  // by mutex: who may lock it next
  std::condition_variable turn_changed_;
  std::unique_ptr<Pool> pool_;
  bool pool_allowed_;
  std::exception_ptr failure_;  // the first one that sync() found
  std::set<std::string> labels_;
  std::set<std::string, std::less<>> roles_;
  // Events that the router posts to `loop`, by when they were last listened to or waited for.
  std::map<std::string, std::uint64_t, std::less<>> subscribed_;
  std::uint64_t uses_ = 0;
  std::size_t most_subscribed_ = 0;  // when there are more, those that nobody hears are looked for
  std::vector<ListenerId> finish_listeners_;  // the user's, beside our own
};

}  // namespace divisi::runtime
