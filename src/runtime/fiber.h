// Fiber: a call that can stop in the middle and go on later, with a stack of its own.
//
//   Fiber fiber([] { forward(); Fiber::suspend(); backward(); });
//   fiber.resume();   // runs forward(), returns true: it suspended
//   fiber.resume();   // runs backward(), returns false: it ended
//
// This is how any middleware may suspend (decision N6): no coroutine keyword is involved, the
// callable just calls suspend() at any depth. Fibers nest: suspend() stops the innermost one.
//
// Threads: one fiber runs on one thread at a time, but each resume() may come from another
// thread, if the caller orders the two (a mutex, a join). Hence a body holds no mutex, no address
// of a thread-local and no thread id across suspend().
//
// Guarantees: what the body throws leaves resume(). Destroying a suspended fiber unwinds its
// stack, so destructors of its locals run. Cost: a pooled stack and two switches of some 20 ns.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>

namespace divisi::runtime {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Runs the body up to its next suspend() or its end. True: it suspended. Must not be called
  // on a fiber that runs or has ended.
  bool resume();

  bool suspended() const noexcept { return state_ == State::kSuspended; }
  bool done() const noexcept { return state_ == State::kDone; }

  // Stops the innermost fiber of the calling thread. Throws UsageError outside every fiber.
  static void suspend();
  static bool inside() noexcept;
  // For a signal handler: did the innermost fiber of the thread fault by leaving its stack?
  static bool overflowed(const void* address) noexcept;

  // The entry of a new stack; not for callers.
  [[noreturn]] static void enter(void* transferred_context, Fiber* self) noexcept;

 private:
  enum class State { kNew, kRunning, kSuspended, kDone };

  // What libstdc++ keeps per thread about exceptions in flight (__cxa_eh_globals). It belongs
  // to the fiber, so that one may suspend in a catch block and be unwound in a destructor.
  struct ExceptionState {
    void* caught = nullptr;
    unsigned int uncaught = 0;
  };

  void switch_in();
  void switch_out(bool last);
  void on_switched_in() noexcept;
  void unwind() noexcept;

  std::function<void()> body_;
  State state_ = State::kNew;
  bool unwinding_ = false;
  int swallowed_ = 0;  // how often the body caught the unwinding exception and suspended again
  std::exception_ptr failure_;

  std::byte* stack_ = nullptr;    // lowest usable byte; null until the first resume
  void* context_ = nullptr;       // where the fiber goes on
  void* host_context_ = nullptr;  // where its resumer goes on
  ExceptionState exceptions_;

  // Only the sanitizers read these; kept in every build so that the layout is one.
  [[maybe_unused]] void* tsan_fiber_ = nullptr;
  [[maybe_unused]] void* tsan_host_ = nullptr;
  [[maybe_unused]] void* asan_fake_stack_ = nullptr;
  [[maybe_unused]] const void* asan_host_bottom_ = nullptr;
  [[maybe_unused]] std::size_t asan_host_size_ = 0;
};

}  // namespace divisi::runtime
