#include "runtime/fiber.h"

#include "base/log.h"
#include "base/sanitizer.h"
#include "base/status.h"
#include "divisi/error.h"
#include "runtime/crash_report.h"
#include "runtime/fiber_stack.h"

#include <boost/context/detail/fcontext.hpp>

#include <cstdint>
#include <cstring>
#include <cxxabi.h>
#include <utility>

#if DIVISI_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if DIVISI_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace divisi::runtime {
namespace {

namespace context = boost::context::detail;

// Thrown out of suspend() to unwind a fiber that will not go on. Derives from nothing, so that
// only a catch-all of the body can stop it.
struct UnwindFiber {};

// A body that catches everything in an endless loop round suspend() would never end. After this
// many attempts its stack is given up instead: locals are not destroyed, but nobody hangs.
constexpr int kUnwindAttempts = 16;

thread_local Fiber* innermost = nullptr;

// Out of line, because a fiber may change threads and the compiler must not keep the address
// of a thread-local from before the switch.
[[gnu::noinline]] Fiber* innermost_fiber() noexcept {
  return innermost;
}
[[gnu::noinline]] void set_innermost_fiber(Fiber* fiber) noexcept {
  innermost = fiber;
}

void fiber_entry(context::transfer_t from) {
  Fiber::enter(from.fctx, static_cast<Fiber*>(from.data));
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)) {
  DIVISI_CHECK(body_ != nullptr, "a fiber needs something to run");
}

Fiber::~Fiber() {
  DIVISI_CHECK(state_ != State::kRunning, "a fiber was destroyed while it ran");
  if (state_ == State::kSuspended) unwind();
#if DIVISI_TSAN
  if (tsan_fiber_ != nullptr) __tsan_destroy_fiber(tsan_fiber_);
#endif
}

bool Fiber::overflowed(const void* address) noexcept {
  const Fiber* const fiber = innermost_fiber();
  if (fiber == nullptr) return false;
  const auto end = reinterpret_cast<std::uintptr_t>(fiber->stack_);
  const auto where = reinterpret_cast<std::uintptr_t>(address);
  return where < end && where >= end - kFiberGuardBytes;
}

bool Fiber::inside() noexcept {
  return innermost_fiber() != nullptr;
}

bool Fiber::resume() {
  DIVISI_CHECK(state_ == State::kNew || state_ == State::kSuspended,
               "a fiber was resumed while it ran or after its end");
  cover_thread_by_crash_report();
  if (state_ == State::kNew) {
    stack_ = take_fiber_stack();
    const std::size_t bytes = fiber_stack_bytes();
    context_ = context::make_fcontext(stack_ + bytes, bytes, &fiber_entry);
#if DIVISI_TSAN
    tsan_fiber_ = __tsan_create_fiber(0);
#endif
  }
  switch_in();
  if (state_ == State::kSuspended) return true;
  if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
  return false;
}

void Fiber::switch_in() {
  state_ = State::kRunning;
  Fiber* const outer = innermost_fiber();
  set_innermost_fiber(this);

  static_assert(sizeof(ExceptionState) == 16);
  auto* const globals = reinterpret_cast<ExceptionState*>(abi::__cxa_get_globals());
  const ExceptionState hosts = *globals;
  *globals = exceptions_;
#if DIVISI_ASAN
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, stack_, fiber_stack_bytes());
#endif
#if DIVISI_TSAN
  tsan_host_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_fiber_, 0);
#endif
  const context::transfer_t back = context::jump_fcontext(context_, this);
#if DIVISI_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  context_ = back.fctx;
  exceptions_ = *globals;
  *globals = hosts;
  set_innermost_fiber(outer);

  if (state_ == State::kDone) {
#if DIVISI_ASAN
    // The entry's own frame never returned, so its red zones are still marked.
    __asan_unpoison_memory_region(stack_, fiber_stack_bytes());
#endif
    give_back_fiber_stack(std::exchange(stack_, nullptr));
  }
}

void Fiber::on_switched_in() noexcept {
#if DIVISI_ASAN
  __sanitizer_finish_switch_fiber(asan_fake_stack_, &asan_host_bottom_, &asan_host_size_);
#endif
}

void Fiber::switch_out([[maybe_unused]] bool last) {
#if DIVISI_ASAN
  __sanitizer_start_switch_fiber(last ? nullptr : &asan_fake_stack_, asan_host_bottom_,
                                 asan_host_size_);
#endif
#if DIVISI_TSAN
  __tsan_switch_to_fiber(tsan_host_, 0);
#endif
  const context::transfer_t again = context::jump_fcontext(host_context_, nullptr);
  host_context_ = again.fctx;
  on_switched_in();
}

void Fiber::enter(void* transferred_context, Fiber* self) noexcept {
  self->asan_fake_stack_ = nullptr;
  self->on_switched_in();
  self->host_context_ = transferred_context;
  try {
    self->body_();
  } catch (const UnwindFiber&) {  // NOLINT(bugprone-empty-catch): thrown to get here
  } catch (...) {
    self->failure_ = std::current_exception();
  }
  // What the body captured goes with its stack, not with the Fiber object.
  self->body_ = nullptr;
  self->state_ = State::kDone;
  self->switch_out(true);
  std::terminate();  // nobody resumes a fiber that ended
}

void Fiber::suspend() {
  Fiber* const self = innermost_fiber();
  if (self == nullptr) {
    throw UsageError(
        "divisi::suspend() was called outside a middleware: it only works on the thread on "
        "which the task runs the middleware");
  }
  if (self->unwinding_) {
    // A destructor that suspends while the stack is unwound must not throw: it just goes on.
    if (std::uncaught_exceptions() > 0) return;
    if (++self->swallowed_ < kUnwindAttempts) throw UnwindFiber{};
  }
  self->state_ = State::kSuspended;
  self->switch_out(false);
  if (self->unwinding_) throw UnwindFiber{};
}

void Fiber::unwind() noexcept {
  unwinding_ = true;
  switch_in();
  if (state_ == State::kSuspended) {
    log::error(
        "a middleware caught the exception that ends it {} times and suspended again; its stack "
        "is given up and its locals are not destroyed",
        kUnwindAttempts);
    return;
  }
  if (failure_ != nullptr) {
    try {
      std::rethrow_exception(std::exchange(failure_, nullptr));
    } catch (const std::exception& error) {
      log::error("a middleware that was discarded while suspended threw: {}", error.what());
    } catch (...) {
      log::error("a middleware that was discarded while suspended threw an unknown exception");
    }
  }
}

}  // namespace divisi::runtime
