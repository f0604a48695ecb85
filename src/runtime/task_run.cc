// The iterations of a task: forward, backward, sync.
#include "base/log.h"
#include "divisi/error.h"
#include "runtime/task_session.h"

#include <algorithm>
#include <functional>
#include <ranges>
#include <utility>

namespace divisi::runtime {
namespace {

// The top-level call that the calling thread runs; 0 outside. Read and written out of line only,
// because a middleware may go on on another thread.
struct Slot {
  const Session* session = nullptr;
  std::uint64_t number = 0;
};
thread_local Slot slot_of_thread;
[[gnu::noinline]] Slot current_slot() noexcept {
  return slot_of_thread;
}
[[gnu::noinline]] void set_current_slot(Slot slot) noexcept {
  slot_of_thread = slot;
}

// A job came after stop() had begun.
class PoolClosed : public UsageError {
 public:
  PoolClosed() : UsageError("the task is stopping and takes no more jobs") {}
};

}  // namespace

// In async mode middleware suspend in any order, but the backward phase reverses the order in
// which they were submitted. So each top-level call takes a number when it is submitted, and
// whatever suspends inside it is sorted under that number.
class Session::SlotScope {
 public:
  SlotScope(const Session& session, std::uint64_t slot) noexcept : outer_(current_slot()) {
    set_current_slot({&session, slot});
  }
  ~SlotScope() { set_current_slot(outer_); }
  SlotScope(const SlotScope&) = delete;
  SlotScope& operator=(const SlotScope&) = delete;

 private:
  const Slot outer_;
};

std::uint64_t Session::step() const noexcept {
  const Slot slot = current_slot();
  return options.async_mode && slot.session == this ? slot.number : 0;
}

std::uint64_t Session::enter_step(std::uint64_t step) noexcept {
  const Slot outer = current_slot();
  set_current_slot({this, step});
  return outer.session == this ? outer.number : 0;
}

// Holds the mutex of a middleware while one of its parts runs. Jobs of the pool take theirs in the
// order of their submission: of two middleware under one mutex the first registered runs first,
// whichever thread wakes up earlier.
class Session::LockHold {
 public:
  LockHold(Session& session, const Lock& lock, std::uint64_t turn = 0) {
    if (turn != 0) session.await_turn(lock, turn);
    if (lock.is_own()) own_ = std::unique_lock(session.own_mutex_);
    if (lock.custom() != nullptr) custom_ = std::unique_lock(*lock.custom());
    if (turn != 0) session.end_turn(lock);
  }

 private:
  std::unique_lock<std::recursive_mutex> own_;
  std::unique_lock<std::mutex> custom_;
};

const void* Session::turn_key(const Lock& lock) const noexcept {
  return lock.is_own() ? static_cast<const void*>(&own_mutex_) : lock.custom();
}

void Session::await_turn(const Lock& lock, std::uint64_t slot) {
  const void* const key = turn_key(lock);
  if (key == nullptr) return;
  std::unique_lock guard(mutex_);
  turn_changed_.wait(guard, [&] { return turns_[key].front() == slot; });
}

void Session::end_turn(const Lock& lock) {
  const void* const key = turn_key(lock);
  if (key == nullptr) return;
  const std::lock_guard guard(mutex_);
  turns_[key].pop_front();
  turn_changed_.notify_all();
}

void Session::push(std::shared_ptr<Suspended> suspended) {
  const std::lock_guard lock(mutex_);
  if (suspended->slot <= discarded_) return;  // its iteration was abandoned while it still ran
  const auto after = std::ranges::upper_bound(stack_, suspended->slot, std::ranges::less(),
                                              [](const auto& other) { return other->slot; });
  stack_.insert(after, std::move(suspended));
}

std::shared_ptr<Suspended> Session::pop() {
  const std::lock_guard lock(mutex_);
  if (stack_.empty()) return nullptr;
  auto top = std::move(stack_.back());
  stack_.pop_back();
  return top;
}

bool Session::take(const std::shared_ptr<Suspended>& suspended) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(stack_, suspended);
  if (found == stack_.end()) return false;
  stack_.erase(found);
  return true;
}

std::size_t Session::backward_stack_size() const {
  const std::lock_guard lock(mutex_);
  return stack_.size();
}

Back Session::forward(Middleware fn, std::shared_ptr<Context> ctx, Lock lock, std::uint64_t turn) {
  const Slot current = current_slot();
  std::uint64_t slot = current.session == this ? current.number : 0;
  if (slot == 0) {
    const std::lock_guard guard(mutex_);
    slot = ++next_slot_;
  }
  Context& context = *ctx;
  auto suspended = std::make_shared<Suspended>(
      Suspended{slot, std::move(ctx), std::move(lock), MiddlewareCall(std::move(fn), context)});
  {
    const SlotScope scope(*this, slot);
    const LockHold hold(*this, suspended->lock, turn);
    if (!suspended->call.forward()) return {};
  }
  Back back;
  back.session_ = weak_from_this();
  back.suspended_ = suspended;
  push(std::move(suspended));
  return back;
}

void Session::forward_on_pool(Middleware fn, std::shared_ptr<Context> ctx, Lock lock) {
  // Number and place in the pool's queue go together: a job never waits for the turn of one that
  // starts after it.
  const std::lock_guard submitting(submit_mutex_);
  std::uint64_t slot = 0;
  {
    const std::lock_guard guard(mutex_);
    slot = ++next_slot_;
    if (const void* const key = turn_key(lock)) turns_[key].push_back(slot);
  }
  submit([self = shared_from_this(), slot, fn = std::move(fn), ctx = std::move(ctx),
          lock = std::move(lock)] {
    const SlotScope scope(*self, slot);
    self->forward(fn, ctx, lock, slot);
  });
}

void Session::resume(Suspended& suspended) {
  const SlotScope scope(*this, suspended.slot);
  const LockHold hold(*this, suspended.lock);
  suspended.call.backward();
}

void Session::resume_all() {
  while (const std::shared_ptr<Suspended> top = pop()) resume(*top);
}

void Session::backward(bool on_pool) {
  if (!on_pool) {
    resume_all();
    return;
  }
  submit([self = shared_from_this()] { self->resume_all(); });
}

void Session::backward(std::vector<Back> stack, bool on_pool) {
  auto resume_given = [self = shared_from_this(), stack = std::move(stack)] {
    for (const Back& back : std::views::reverse(stack)) self->backward(back);
  };
  on_pool ? submit(std::move(resume_given)) : resume_given();
}

void Session::backward(const Back& back) {
  const std::shared_ptr<Suspended> suspended = back.suspended_.lock();
  if (suspended != nullptr && take(suspended)) resume(*suspended);
}

void Session::discard_suspended() noexcept {
  {
    const std::lock_guard lock(mutex_);
    discarded_ = next_slot_;
  }
  while (pop() != nullptr) {
  }
}

void Session::allow_pool() {
  const std::lock_guard lock(mutex_);
  pool_allowed_ = true;
}

// Threads are made when the first job comes: most tasks of a job never need them.
Pool& Session::pool() {
  const std::lock_guard lock(mutex_);
  if (stopping.load()) throw PoolClosed();
  if (!pool_allowed_) {
    throw UsageError("this task has no pool: use async_executor in async or parallel mode");
  }
  if (pool_ == nullptr) pool_ = std::make_unique<Pool>(options.n_async_workers);
  return *pool_;
}

void Session::submit(std::function<void()> job) {
  if (!steps_->submit(pool(), std::move(job))) throw PoolClosed();
}

void Session::fail(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ == nullptr) failure_ = std::move(failure);
  }
  loop.core()->wake_waiters(event::WakeReason::kFailure);
}

void Session::sync() {
  {
    const std::lock_guard lock(mutex_);
    if (pool_ != nullptr && pool_->is_current()) {
      throw UsageError(
          "Task::sync was called from a job of the task's pool: it would wait for itself");
    }
  }
  if (const std::exception_ptr failure = steps_->wait_for_all_or_failure(); failure != nullptr) {
    fail(failure);
    std::rethrow_exception(failure);
  }
  raise_stored();
}

void Session::iterate() {
  if (options.async_mode)
    loop.core()->end_iteration();  // of one that failed, or of steps outside of run()
  for (std::size_t i = 0;; ++i) {
    std::optional<Registered> next = middleware_at(i);
    if (!next) break;
    if (options.async_mode) {
      forward_on_pool(std::move(next->fn), ctx(), std::move(next->lock));
    } else {
      forward(std::move(next->fn), ctx(), std::move(next->lock));
    }
  }
  sync();
  if (stopping.load()) return;  // what was suspended is gone
  backward(options.async_mode);
  sync();
  if (options.async_mode) loop.core()->end_iteration();
}

void Session::run(std::int64_t max_step) {
  own();
  if (distributed) router.ready();
  if (middleware_count() == 0) return;
  try {
    for (std::int64_t step = 0; step < max_step; ++step) {
      iterate();
      if (step + 1 == max_step) set_finish(true);
      if (finish_->load() || stopping.load()) break;
      renew();
    }
  } catch (const PoolClosed&) {
    // Somebody else stopped the task, or a middleware did: the run just ends.
    discard_suspended();
  } catch (...) {
    discard_suspended();
    steps_->settle();
    throw;
  }
}

void Session::run_parallel(const std::vector<Middleware>& parts, Context& ctx) {
  CallStack stack;
  std::vector<MiddlewareCall>& calls = stack.calls;
  for (const Middleware& part : parts) calls.emplace_back(part, ctx);

  const auto on_pool = [&](const std::function<void(MiddlewareCall&)>& part) {
    Pool& threads = pool();
    const auto group = std::make_shared<JobGroup>();
    bool accepted = true;
    for (MiddlewareCall& call : calls) {
      accepted = group->submit(threads, [&part, &call] { part(call); }) && accepted;
    }
    const std::exception_ptr failure = group->wait_for_all(threads);
    if (failure != nullptr) std::rethrow_exception(failure);
    if (!accepted) throw PoolClosed();
  };

  on_pool([](MiddlewareCall& call) { call.forward(); });
  if (std::ranges::none_of(calls, [](const auto& call) { return call.suspended(); })) {
    return;
  }
  suspend();
  on_pool([](MiddlewareCall& call) { call.backward(); });
}

}  // namespace divisi::runtime
