// LoopCore's waiting: a one-shot listener that hands its arguments to a blocked thread.
#include "base/deadline.h"
#include "event/loop_core.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <utility>

namespace divisi::event {

struct LoopCore::Waiter {
  std::mutex mutex;
  std::condition_variable ended;
  // Guarded by mutex.
  bool came = false;  // the event, which is in `result`
  WaitResult result;
  std::optional<WakeReason> woken;             // by something else, the present wait
  divisi::detail::Sleeper* sleeper = nullptr;  // of the present wait

  bool wake_on_finish = false;  // constant while it is one of waiters_
  // Constant.
  std::shared_ptr<divisi::detail::Capture> capture;
  std::uint64_t step = 0;
  bool is_kept = false;  // the event, when a wait has ended without it

  std::atomic<bool> taken{false};  // whoever sets it gives the event

  void finish(WaitResult with) {
    const std::lock_guard lock(mutex);
    if (came || (woken && !is_kept)) return;
    came = true;
    result = std::move(with);
    tell();
  }
  void wake(WakeReason reason) {
    const std::lock_guard lock(mutex);
    if (is_over()) return;
    woken = reason;
    tell();
  }
  bool is_over() const { return came || woken.has_value(); }  // mutex held

 private:
  void tell() {
    if (sleeper != nullptr) {
      sleeper->wake();
    } else {
      ended.notify_all();
    }
  }
};

class LoopCore::WaitListener final : public Listener {
 public:
  WaitListener(LoopCore& core, std::string_view event, std::shared_ptr<Waiter> waiter)
      : core_(core), event_(event), waiter_(std::move(waiter)) {
    once = waiter_->step == 0;
  }

  void call(const divisi::detail::LocalCall& call) override {
    if (waiter_->step == 0 || step_of_trigger <= waiter_->step) {
      if (begin()) finish(call, [&] { return divisi::detail::local_args(call); });
    } else if (const auto kept = core_.chain_.take(event_, waiter_->step, waiter_->taken)) {
      // Not always this one: an older one may have come just before the wait was registered.
      remove();
      finish_kept(*kept);
    }
  }
  void call(const PayloadView& payload) override {
    if (begin()) finish(payload, [&] { return unpack_any(payload); });
  }

  // What a later step emitted before the wait; false if there is none.
  bool take_kept() {
    const auto kept = core_.chain_.take(event_, waiter_->step, waiter_->taken);
    if (kept == nullptr) return false;
    remove();
    finish_kept(*kept);
    rest();
    return true;
  }

 private:
  bool begin() {
    if (waiter_->taken.exchange(true)) return false;
    remove();
    return true;
  }
  // Before the waiting thread goes on: what comes from here on is not for this wait. (The loop
  // removes listeners that are `once` itself.)
  void remove() {
    if (!once) core_.table_.remove_exact(event_, id);
  }

  void finish_kept(const StoredCall& kept) {
    divisi::detail::ArgRef refs[divisi::detail::kMaxArguments];
    kept.refer(refs);
    const divisi::detail::LocalCall call{{refs, kept.ops.count}, kept.kwargs.get()};
    finish(call, [&] { return divisi::detail::local_args(call); });
  }

  // What is wrong with the arguments is the waiter's business, not the loop's.
  template <class Call, class Make>
  void finish(const Call& call, Make make) {
    WaitResult result{WakeReason::kEvent, {}, nullptr};
    try {
      if (waiter_->capture != nullptr) {
        waiter_->capture->take(call);  // not under the mutex: it may wait for an interpreter's lock
      } else {
        result.args = make();
      }
    } catch (...) {
      result.decode_error = std::current_exception();
    }
    waiter_->finish(std::move(result));
  }

  LoopCore& core_;
  const std::string event_;
  const std::shared_ptr<Waiter> waiter_;
};

class LoopCore::Expected {
 public:
  Expected(std::string_view event, std::shared_ptr<Waiter> waiter)
      : event_(event), waiter_(std::move(waiter)) {}

 private:
  friend class LoopCore;
  const std::string event_;
  const std::shared_ptr<Waiter> waiter_;
  ListenerId id_{};
  std::atomic<bool> is_waiting_{false};
  std::atomic<bool> is_given_{false};
};

void LoopCore::refuse_inside_listener(std::string_view event) {
  if (!strand_of(EventTable::hash(event)).is_current()) return;
  throw UsageError(fmt::format(
      "wait_for(\"{}\") inside a listener of event loop {}: the loop cannot run the event before "
      "this listener returns",
      event, name_));
}

WaitResult LoopCore::wait(std::string_view event, const WaitSpec& spec) {
  refuse_inside_listener(event);
  const auto waiter = std::make_shared<Waiter>();
  waiter->capture = spec.capture;
  waiter->step = spec.step;
  // To remove it by its number: it may be gone before, and another one be where it was.
  const ListenerId registered = add(event, std::make_unique<WaitListener>(*this, event, waiter));
  WaitResult result = await(waiter, spec, [&] {
    WaitListener here(*this, event, waiter);
    here.id = registered;
    if (spec.step != 0 && here.take_kept()) return;
    if (const auto answer = early_.take(event)) {
      here.call(answer->view());
      rest();
    }
  });
  table_.remove_exact(event, registered);
  return result;
}

std::shared_ptr<LoopCore::Expected> LoopCore::expect(
    std::string_view event, std::shared_ptr<divisi::detail::Capture> capture, std::uint64_t step) {
  const auto waiter = std::make_shared<Waiter>();
  waiter->capture = std::move(capture);
  waiter->step = step;
  waiter->is_kept = true;
  auto expected = std::make_shared<Expected>(event, waiter);
  expected->id_ = add(event, std::make_unique<WaitListener>(*this, event, waiter));
  if (step != 0) {
    WaitListener here(*this, event, waiter);
    here.id = expected->id_;
    here.take_kept();
  }
  return expected;
}

WaitResult LoopCore::wait(Expected& expected, const WaitSpec& spec) {
  if (expected.is_waiting_.exchange(true)) {
    throw UsageError(
        fmt::format("two threads wait for one expected event '{}'; expect() it once for each",
                    expected.event_));
  }
  try {
    if (expected.is_given_.load()) {
      throw UsageError(
          fmt::format("the expected event '{}' was given to an earlier wait(): expect() it again",
                      expected.event_));
    }
    bool came = false;
    {
      const std::lock_guard lock(expected.waiter_->mutex);
      came = expected.waiter_->came;
    }
    if (!came) refuse_inside_listener(expected.event_);
    WaitResult result = await(expected.waiter_, spec, {});
    expected.is_given_.store(result.reason == WakeReason::kEvent);
    expected.is_waiting_.store(false);
    return result;
  } catch (...) {
    expected.is_waiting_.store(false);
    throw;
  }
}

void LoopCore::forget(Expected& expected) {
  table_.remove_exact(expected.event_, expected.id_);
}

// `begun` is called when no event is missed any more.
WaitResult LoopCore::await(const std::shared_ptr<Waiter>& waiter, const WaitSpec& spec,
                           const std::function<void()>& begun) {
  if (spec.registered) spec.registered();
  {
    const std::lock_guard lock(waiter->mutex);
    waiter->sleeper = spec.sleeper;
    waiter->woken.reset();
  }
  waiter->wake_on_finish = spec.wake_on_finish;
  {
    const std::lock_guard lock(waiters_mutex_);
    waiters_.push_back(waiter);
  }
  // From here on nothing is missed; what came just before is asked for.
  if (stopped()) {
    waiter->wake(WakeReason::kStopped);
  } else if (errors_.has_error()) {
    waiter->wake(WakeReason::kError);
  } else if (spec.already) {
    if (const auto reason = spec.already()) waiter->wake(*reason);
  }
  if (begun) begun();
  WaitResult result;
  {
    const std::stop_callback cancel(spec.stop, [&] { waiter->wake(WakeReason::kCancelled); });
    std::unique_lock lock(waiter->mutex);
    const auto deadline = deadline_after(spec.timeout);
    if (spec.sleeper != nullptr) {
      while (!waiter->is_over()) {
        lock.unlock();
        const auto slept = spec.sleeper->sleep(deadline);
        lock.lock();
        if (waiter->is_over() || slept == divisi::detail::Sleeper::Slept::kWoken) continue;
        if (slept == divisi::detail::Sleeper::Slept::kInterrupted) {
          result.reason = WakeReason::kCancelled;
        }
        break;
      }
    } else {
      waiter->ended.wait_until(lock, deadline, [&] { return waiter->is_over(); });
    }
    waiter->sleeper = nullptr;
    if (waiter->came) {
      result = std::move(waiter->result);
    } else if (waiter->woken) {
      result.reason = *waiter->woken;
    }
    lock.unlock();
  }
  const std::lock_guard lock(waiters_mutex_);
  std::erase(waiters_, waiter);
  return result;
}

void LoopCore::wake_waiters(WakeReason reason) {
  std::vector<std::shared_ptr<Waiter>> waiters;
  {
    const std::lock_guard lock(waiters_mutex_);
    waiters = waiters_;
  }
  for (const auto& waiter : waiters) {
    if (reason != WakeReason::kFinish || waiter->wake_on_finish) waiter->wake(reason);
  }
}

}  // namespace divisi::event
