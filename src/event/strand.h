// Strand: a queue of triggers and batches that one thread at a time runs, in order.
//
// Posting takes one short lock; whoever runs the strand takes the whole queue at once. A sleeping
// strand is woken once however many records come until it runs.
#pragma once

#include "divisi/event.h"
#include "event/record_queue.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace divisi::event {

class Strand;

// `hook` is called by every thread that runs a strand, whenever it has run what it had taken from
// the queue: before it looks for more, sleeps, or does something else. For front ends whose
// listeners need a lock (an interpreter's): it is held for a whole batch instead of each event.
void set_rest_hook(void (*hook)() noexcept) noexcept;
void rest() noexcept;  // calls it

// What a strand does with its records, on the thread that runs it.
class StrandOwner {
 public:
  virtual ~StrandOwner() = default;
  virtual void run_trigger(Record& trigger, HeldListeners& held) noexcept = 0;
  virtual void run_batch(Batch& batch, HeldListeners& held) noexcept = 0;
};

class Strand {
 public:
  // `owner` must outlive the strand. `keep_alive` gives what the strand's thread holds on to.
  using KeepAlive = std::function<std::shared_ptr<void>()>;
  Strand(StrandOwner& owner, std::string thread_name, KeepAlive keep_alive);
  ~Strand();
  Strand(const Strand&) = delete;
  Strand& operator=(const Strand&) = delete;

  enum class Posted {
    kDone,
    kStale,   // not queued: the table has forgotten the entry
    kClosed,  // dropped
  };
  // Queues a trigger and sees to it that somebody runs it.
  Posted post(EventEntry& entry, divisi::detail::Emission& emission, void* stored);

  // Queues a batch. True: the strand is now claimed by the caller, who must wake() or drain_here().
  bool post(std::unique_ptr<Batch> batch);
  // The same, and wakes the strand if need be.
  void post_and_wake(std::unique_ptr<Batch> batch);
  void wake();
  // Runs the records here until there are none, or hands over to the strand's own thread when
  // `budget` is spent. Does nothing if another thread runs the strand.
  void drain_here(std::chrono::nanoseconds budget);

  // Nothing queued, nothing running.
  bool idle();
  // The calling thread is running this strand.
  bool is_current() const noexcept;
  // The calling thread is running any strand.
  static bool any_current() noexcept;

  // Refuses new records from now on.
  void close();
  // Waits until everything queued has run. False at the deadline: the rest will be dropped.
  // Not from inside the strand.
  bool drain(std::chrono::steady_clock::time_point deadline);
  // Lets the strand's own thread end once it has nothing to do.
  void end();
  // And waits for it, unless drain() has given up: a listener that does not return then keeps
  // the thread, and through it the loop, alive.
  void end_and_join();

  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  bool idle_locked() const noexcept { return state_ == State::kIdle && incoming_.empty(); }

 private:
  enum class State {
    kIdle,
    kClaimed,  // post() returned true; the caller decides who runs it
    kWoken,    // the own thread has been told
    kRunning,
  };
  class Current;

  void thread_main();
  void run(std::chrono::nanoseconds budget);
  void run_front(HeldListeners& held);
  bool hand_over();
  bool wake_locked();
  void start_thread_locked();

  // Constant after construction.
  StrandOwner& owner_;
  const std::string thread_name_;
  const KeepAlive keep_alive_;

  // Owned by the thread that set kRunning.
  RecordQueue running_;

  // Set by drain() when it gives up: records are destroyed instead of run.
  std::atomic<bool> dropping_{false};

  // Mirrors kWoken for the own thread, which polls it before it sleeps; it decides under mutex_.
  std::atomic<bool> woken_{false};

  std::mutex mutex_;
  std::condition_variable wake_;   // the own thread sleeps here
  std::condition_variable quiet_;  // drain() waits here
  // All below: guarded by mutex_.
  State state_ = State::kIdle;
  RecordQueue incoming_;
  bool closed_ = false;
  bool ended_ = false;
  bool asleep_ = false;  // the own thread waits for wake_
  int waiting_ = 0;      // threads in drain()
  std::thread thread_;
};

}  // namespace divisi::event
