#include "runtime/crash_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <execinfo.h>
#include <string>
#include <unistd.h>

namespace divisi::runtime {

namespace {

constexpr int kFrames = 24;
constexpr std::size_t kStackBytes = 64 << 10;  // backtrace() needs some 10 KiB

std::array<char, kStackBytes> handler_stack;
std::array<char, 64> who;  // "node 3 crashed: SIG", made before anything can crash

void put(const char* text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

// Only calls that are safe in a handler: write, and backtrace after its first call.
void report(int signal) {
  put(who.data());
  const char* const name = ::sigabbrev_np(signal);
  put(name == nullptr ? "?" : name);
  put("\n");
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

  stack_t stack{};
  if (::sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_DISABLE) != 0) {
    stack = {};
    stack.ss_sp = handler_stack.data();
    stack.ss_size = handler_stack.size();
    ::sigaltstack(&stack, nullptr);
  }
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    struct sigaction action{};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action = {};
    action.sa_handler = report;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_ONSTACK | SA_NODEFER);
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace divisi::runtime
