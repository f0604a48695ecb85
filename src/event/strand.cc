#include "event/strand.h"

#include "base/log.h"
#include "base/status.h"
#include "event/spin.h"

#include <csignal>
#include <pthread.h>
#include <system_error>
#include <utility>

namespace divisi::event {

namespace {

using Clock = std::chrono::steady_clock;

// Signals belong to the threads of the program, not to ours; faults stay where they happen.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) {
      sigdelset(&all, fault);
    }
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

// Alone in its cache line: every thread that runs a strand reads it all the time.
alignas(64) std::atomic<void (*)() noexcept> rest_hook{nullptr};

}  // namespace

void set_rest_hook(void (*hook)() noexcept) noexcept {
  rest_hook.store(hook);
}

void rest() noexcept {
  if (auto* const hook = rest_hook.load(std::memory_order_relaxed)) hook();
}

// Marks the calling thread as running a strand. They nest: a listener may drain another loop.
class Strand::Current {
 public:
  explicit Current(const Strand* strand)
      : strand_(strand), outer_(std::exchange(innermost, this)) {}
  ~Current() { innermost = outer_; }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  static bool any() noexcept { return innermost != nullptr; }
  static bool is(const Strand* strand) noexcept {
    for (const Current* at = innermost; at != nullptr; at = at->outer_) {
      if (at->strand_ == strand) return true;
    }
    return false;
  }

 private:
  static thread_local constinit const Current* innermost;

  const Strand* strand_;
  const Current* outer_;
};

thread_local constinit const Strand::Current* Strand::Current::innermost = nullptr;

Strand::Strand(StrandOwner& owner, std::string thread_name, KeepAlive keep_alive)
    : owner_(owner), thread_name_(std::move(thread_name)), keep_alive_(std::move(keep_alive)) {}

Strand::~Strand() {
  if (!thread_.joinable()) return;
  // The own thread holds what owns the strand, so it has ended or is the one destroying it.
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

Strand::Posted Strand::post(EventEntry& entry, divisi::detail::Emission& emission, void* stored) {
  bool notify = false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Posted::kClosed;
    if (entry.forgotten) return Posted::kStale;
    incoming_.push(entry, *emission.ops, stored, std::move(emission.kwargs));
    if (state_ == State::kIdle) notify = wake_locked();
  }
  if (notify) wake_.notify_one();
  return Posted::kDone;
}

bool Strand::post(std::unique_ptr<Batch> batch) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  incoming_.push(std::move(batch));
  if (state_ != State::kIdle) return false;
  state_ = State::kClaimed;
  return true;
}

void Strand::post_and_wake(std::unique_ptr<Batch> batch) {
  if (post(std::move(batch))) wake();
}

// The caller holds mutex_. True: notify wake_ after letting go of it.
bool Strand::wake_locked() {
  if (!thread_.joinable()) start_thread_locked();
  state_ = State::kWoken;
  woken_.store(true);
  return std::exchange(asleep_, false);
}

void Strand::wake() {
  bool notify = false;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kClaimed) notify = wake_locked();
  }
  if (notify) wake_.notify_one();
}

void Strand::start_thread_locked() {
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this, alive = keep_alive_()] { thread_main(); });
  } catch (const std::system_error& error) {
    throw Error(Code::kUnavailable, fmt::format("starting the thread of event loop {}: {}",
                                                thread_name_, error.what()));
  }
  // The kernel keeps 15 characters.
  pthread_setname_np(thread_.native_handle(), thread_name_.substr(0, 15).c_str());
}

void Strand::thread_main() {
  Spin spin;
  for (;;) {
    spin.until([this] { return woken_.load(std::memory_order_relaxed); });
    {
      std::unique_lock lock(mutex_);
      while (state_ != State::kWoken) {
        if (ended_) return;
        asleep_ = true;
        wake_.wait(lock);
        asleep_ = false;
      }
      state_ = State::kRunning;
      woken_.store(false);
    }
    run(kForever);
  }
}

void Strand::drain_here(std::chrono::nanoseconds budget) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kClaimed) return;
    state_ = State::kRunning;
  }
  run(budget);
}

void Strand::run(std::chrono::nanoseconds budget) {
  const Current current(this);
  const bool bounded = budget != kForever;
  const auto begin = bounded ? Clock::now() : Clock::time_point();
  HeldListeners held;
  for (;;) {
    // Nobody may find the strand idle while it holds on to listeners.
    held.clear();
    rest();
    {
      const std::lock_guard lock(mutex_);
      incoming_.take_spare(running_);
      if (running_.empty()) incoming_.swap_records(running_);
      if (running_.empty()) {
        state_ = State::kIdle;
        if (waiting_ > 0) quiet_.notify_all();
        return;
      }
    }
    while (!running_.empty()) {
      run_front(held);
      if (bounded && Clock::now() - begin > budget && hand_over()) {
        held.clear();
        rest();
        return;
      }
    }
  }
}

void Strand::run_front(HeldListeners& held) {
  Record& record = running_.front();
  if (!dropping_.load(std::memory_order_relaxed)) [[likely]] {
    if (record.entry != nullptr) {
      owner_.run_trigger(record, held);
    } else {
      owner_.run_batch(*record.batch, held);
    }
  }
  running_.pop();
}

// Lets the own thread go on with what is left. False: nothing is.
bool Strand::hand_over() {
  bool notify = false;
  {
    const std::lock_guard lock(mutex_);
    if (running_.empty() && incoming_.empty()) return false;
    notify = wake_locked();
  }
  if (notify) wake_.notify_one();
  return true;
}

bool Strand::idle() {
  const std::lock_guard lock(mutex_);
  return idle_locked();
}

bool Strand::is_current() const noexcept {
  return Current::is(this);
}

bool Strand::any_current() noexcept {
  return Current::any();
}

void Strand::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

bool Strand::drain(Clock::time_point deadline) {
  if (dropping_.load()) return false;  // has given up before
  std::unique_lock lock(mutex_);
  if (state_ == State::kIdle && !incoming_.empty()) {
    // Only if the own thread could not be started: do its work.
    state_ = State::kRunning;
    lock.unlock();
    run(kForever);
    return true;
  }
  ++waiting_;
  const bool quiet = quiet_.wait_until(lock, deadline, [this] { return idle_locked(); });
  --waiting_;
  if (!quiet) dropping_.store(true);
  return quiet;
}

void Strand::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_one();
}

void Strand::end_and_join() {
  end();
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    thread.swap(thread_);
  }
  if (!thread.joinable()) return;
  if (dropping_.load() || thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
  } else {
    thread.join();
  }
}

}  // namespace divisi::event
