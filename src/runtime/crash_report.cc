#include "runtime/crash_report.h"

#include "runtime/fiber.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <execinfo.h>
#include <memory>
#include <string>
#include <unistd.h>

namespace divisi::runtime {

namespace {

constexpr int kFrames = 24;
constexpr std::size_t kStackBytes = 64 << 10;  // backtrace() needs some 10 KiB

std::atomic<bool> installed{false};
std::array<char, 64> who;  // "node 3 crashed: SIG", made before anything can crash

// Where a thread's handler runs when its own stack is full.
class HandlerStack {
 public:
  HandlerStack() {
    stack_t stack{};
    if (::sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_DISABLE) == 0) return;
    memory_ = std::make_unique<char[]>(kStackBytes);
    stack = {};
    stack.ss_sp = memory_.get();
    stack.ss_size = kStackBytes;
    ::sigaltstack(&stack, nullptr);
  }
  ~HandlerStack() {
    if (memory_ == nullptr) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    ::sigaltstack(&none, nullptr);
  }
  HandlerStack(const HandlerStack&) = delete;
  HandlerStack& operator=(const HandlerStack&) = delete;

 private:
  std::unique_ptr<char[]> memory_;  // null: the thread has one of somebody else
};

void put(const char* text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

// Only calls that are safe in a handler: write, and backtrace after its first call.
void report(int signal, siginfo_t* info, void*) {
  put(who.data());
  const char* const name = ::sigabbrev_np(signal);
  put(name == nullptr ? "?" : name);
  put("\n");
  if (signal == SIGSEGV && Fiber::overflowed(info->si_addr)) {
    put("a middleware needs more stack than it has: put large arrays on the heap, or give it more "
        "by the variable DIVISI_FIBER_STACK_KIB\n");
  }
  std::array<void*, kFrames> frames{};
  const int count = ::backtrace(frames.data(), kFrames);
  constexpr int kOwn = 1;  // this function
  if (count > kOwn) ::backtrace_symbols_fd(frames.data() + kOwn, count - kOwn, STDERR_FILENO);
  ::raise(signal);  // SA_RESETHAND has restored the default: the same death, now for real
}

}  // namespace

void install_crash_report(int node_id) {
  const std::string text = fmt::format("node {} crashed: SIG", node_id);
  std::ranges::copy(text, who.begin());  // 31 characters at most, the rest stays 0

  std::array<void*, 1> frame{};
  ::backtrace(frame.data(), 1);  // loads what the unwinder needs, while loading is allowed

  installed.store(true);
  cover_thread_by_crash_report();
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    struct sigaction action{};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action = {};
    action.sa_sigaction = report;
    action.sa_flags = static_cast<int>(SA_SIGINFO | SA_RESETHAND | SA_ONSTACK | SA_NODEFER);
    ::sigaction(signal, &action, nullptr);
  }
}

void cover_thread_by_crash_report() {
  if (!installed.load(std::memory_order_relaxed)) return;
  thread_local const HandlerStack stack;
  static_cast<void>(stack);
}

}  // namespace divisi::runtime
