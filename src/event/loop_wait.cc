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
  bool done = false;
  WaitResult result;

  // Constant while the waiting thread waits. It does not go before it has taken `mutex` once more.
  bool wake_on_finish = false;
  std::shared_ptr<divisi::detail::Capture> capture;
  divisi::detail::Sleeper* sleeper = nullptr;
  std::uint64_t step = 0;

  std::atomic<bool> taken{false};  // whoever sets it gives the event

  void finish(WaitResult with) {
    const std::lock_guard lock(mutex);
    if (done) return;
    done = true;
    result = std::move(with);
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

WaitResult LoopCore::wait(std::string_view event, const WaitSpec& spec) {
  if (strand_of(EventTable::hash(event)).is_current()) {
    throw UsageError(fmt::format(
        "wait_for(\"{}\") inside a listener of event loop {}: the loop cannot run the event before "
        "this listener returns",
        event, name_));
  }
  const auto waiter = std::make_shared<Waiter>();
  waiter->wake_on_finish = spec.wake_on_finish;
  waiter->capture = spec.capture;
  waiter->sleeper = spec.sleeper;
  waiter->step = spec.step;
  // To remove it by its number: it may be gone before, and another one be where it was.
  const ListenerId registered = add(event, std::make_unique<WaitListener>(*this, event, waiter));
  if (spec.registered) spec.registered();
  {
    const std::lock_guard lock(waiters_mutex_);
    waiters_.push_back(waiter);
  }
  // From here on nothing is missed; what came just before is asked for.
  if (stopped()) {
    end_wait(*waiter, WakeReason::kStopped);
  } else if (errors_.has_error()) {
    end_wait(*waiter, WakeReason::kError);
  } else if (spec.already) {
    if (const auto reason = spec.already()) end_wait(*waiter, *reason);
  }
  WaitListener here(*this, event, waiter);
  here.id = registered;
  if (spec.step == 0 || !here.take_kept()) {
    if (const auto answer = early_.take(event)) {
      here.call(answer->view());
      rest();
    }
  }
  {
    const std::stop_callback cancel(spec.stop, [&] { end_wait(*waiter, WakeReason::kCancelled); });
    std::unique_lock lock(waiter->mutex);
    const auto is_done = [&] { return waiter->done; };
    const auto deadline = deadline_after(spec.timeout);
    if (spec.sleeper != nullptr) {
      while (!waiter->done) {
        lock.unlock();
        const auto slept = spec.sleeper->sleep(deadline);
        lock.lock();
        if (waiter->done || slept == divisi::detail::Sleeper::Slept::kWoken) continue;
        if (slept == divisi::detail::Sleeper::Slept::kInterrupted) {
          waiter->result.reason = WakeReason::kCancelled;
        }
        break;
      }
    } else {
      waiter->ended.wait_until(lock, deadline, is_done);
    }
    waiter->done = true;  // too late for anybody else
    lock.unlock();
  }
  table_.remove_exact(event, registered);
  const std::lock_guard lock(waiters_mutex_);
  std::erase(waiters_, waiter);
  return std::move(waiter->result);
}

void LoopCore::end_wait(Waiter& waiter, WakeReason reason) {
  waiter.finish({reason, {}, nullptr});
}

void LoopCore::wake_waiters(WakeReason reason) {
  std::vector<std::shared_ptr<Waiter>> waiters;
  {
    const std::lock_guard lock(waiters_mutex_);
    waiters = waiters_;
  }
  for (const auto& waiter : waiters) {
    if (reason != WakeReason::kFinish || waiter->wake_on_finish) end_wait(*waiter, reason);
  }
}

}  // namespace divisi::event
