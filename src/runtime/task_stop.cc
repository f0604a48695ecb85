// The end of a task's life, in the order that loses nothing.
#include "base/log.h"
#include "divisi/error.h"
#include "runtime/task_session.h"

#include <utility>

namespace divisi::runtime {
namespace {

// Cleanup always completes: each step is tried, and the first thing that went wrong is told.
template <class Step>
void attempt(std::exception_ptr& first, Step step) {
  try {
    step();
  } catch (...) {
    if (first == nullptr) {
      first = std::current_exception();
      return;
    }
    try {
      throw;
    } catch (const std::exception& error) {
      log::error("another error while the task stopped: {}", error.what());
    } catch (...) {
      log::error("another error of an unknown type while the task stopped");
    }
  }
}

}  // namespace

std::exception_ptr Session::stop(bool failed) {
  // What nobody has heard of yet is thrown at the end.
  std::exception_ptr first = loop.core()->errors().take();
  if (distributed) router.welcome_newcomers(false);
  run_finish_hooks(first);
  attempt(first, [&] { tell_finish(failed); });
  accepting.store(false);
  attempt(first, [&] { loop.stop(); });
  attempt(first, [&] {
    if (distributed && !router.flush_at_end(options.stop_timeout)) {
      log::warning("not everything that was sent has reached the peers: one took nothing for {} ms",
                   options.stop_timeout.count());
    }
  });
  attempt(first, [&] { join_pool(); });
  attempt(first, [&] {
    if (!distributed) return;
    router.unsubscribe_all(loop.core().get());
    router.announce_labels(this, {});
    router.welcome_newcomers(true);
  });
  clear();
  return first;
}

void Session::leave(bool failed) {
  if (failed) loop.off("*");
  std::vector<std::function<void(Context&)>> hooks;
  {
    const std::lock_guard lock(mutex_);
    hooks.swap(finish_hooks_);
  }
  if (hooks.empty()) return;
  log::warning(
      "main ended without task.stop(): {} on_finish hooks are not called, for what they refer to "
      "may be gone; call task.stop() at the end of main, or keep what task.start() returns",
      hooks.size());
}

void Session::run_finish_hooks(std::exception_ptr& first) {
  std::vector<std::function<void(Context&)>> hooks;
  {
    const std::lock_guard lock(mutex_);
    hooks.swap(finish_hooks_);
  }
  const std::shared_ptr<Context> context = ctx();
  for (const auto& hook : hooks) attempt(first, [&] { hook(*context); });
}

void Session::tell_finish(bool failed) {
  if (!distributed) return;
  // An attempt that will be repeated ends nobody else's work.
  if (failed && router.will_retry()) return;
  PackScratch scratch;
  const PayloadView& payload =
      failed ? pack_args(scratch, true, kw("failed", true)) : pack_args(scratch, true);
  send("finish", payload, {});
  loop.emit("finish", true);
}

void Session::join_pool() {
  Pool* pool = nullptr;
  {
    const std::lock_guard lock(mutex_);
    pool_allowed_ = false;
    pool = pool_.get();
  }
  if (pool == nullptr) return;
  pool->close();
  // A job that stops its own task cannot be waited for; its thread ends with it.
  const bool own_job = pool->is_current();
  const bool joined = pool->join(own_job ? std::chrono::milliseconds(0) : options.stop_timeout);
  if (joined) return;
  steps_->abandon();
  if (own_job) return;
  log::error("a middleware still runs after stop_timeout={}ms; its thread is left to itself",
             options.stop_timeout.count());
}

void Session::clear() {
  discard_suspended();
  std::vector<Registered> middleware;
  std::vector<Wrapper> wrappers;
  const std::lock_guard lock(mutex_);
  middleware.swap(middleware_);
  wrappers.swap(wrappers_);
  subscribed_.clear();
}

}  // namespace divisi::runtime
