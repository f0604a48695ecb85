#include "runtime/fiber_stack.h"

#include "base/status.h"
#include "divisi/error.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <pthread.h>
#include <string_view>
#include <sys/mman.h>
#include <vector>

namespace divisi::runtime {
namespace {

// A pipeline suspends as many fibers at once as it has middleware: 64 covers every program we
// know, and keeps what they touched: 64 MiB if all of them filled their stacks.
constexpr std::size_t kPooledStacks = 64;

struct StackPool {
  std::mutex mutex;
  std::vector<std::byte*> free;
};

// Never destroyed: fibers of detached threads may end after main.
StackPool& pool() {
  static StackPool& instance = *new StackPool;
  return instance;
}

// The forking thread holds the mutex over the fork: a task of the child has middleware too.
[[gnu::constructor(500)]] void hold_over_fork() {
  pool();
  const auto release = [] { pool().mutex.unlock(); };
  ::pthread_atfork([] { pool().mutex.lock(); }, release, release);
}

constexpr const char* kVariable = "DIVISI_FIBER_STACK_KIB";
constexpr std::size_t kLeastKib = 64;
constexpr std::size_t kMostKib = std::size_t{1} << 20;

std::byte* map_stack() {
  const std::size_t usable = fiber_stack_bytes();
  void* base = ::mmap(nullptr, kFiberGuardBytes + usable, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    throw Error(Code::kUnavailable,
                fmt::format("mapping a stack of {} KiB for a middleware: {}; too many suspended "
                            "middleware, or the limit vm.max_map_count is too low",
                            usable >> 10, errno_text(errno)));
  }
  if (::mprotect(base, kFiberGuardBytes, PROT_NONE) != 0) {
    const int error = errno;
    ::munmap(base, kFiberGuardBytes + usable);
    throw Error(Code::kUnavailable,
                fmt::format("guarding a middleware's stack: {}", errno_text(error)));
  }
  return static_cast<std::byte*>(base) + kFiberGuardBytes;
}

}  // namespace

Result<std::size_t> parse_fiber_stack_kib(const char* text) {
  if (text == nullptr) return kFiberStackBytes;
  const std::string_view given = text;
  std::size_t kib = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), kib);
  if (error != std::errc() || end != given.data() + given.size() || kib < kLeastKib ||
      kib > kMostKib) {
    return failure(Code::kInvalid, "{}='{}' is not a whole number of KiB from {} to {}", kVariable,
                   given, kLeastKib, kMostKib);
  }
  constexpr std::size_t kPages = std::size_t{64} << 10;  // the largest pages there are
  return ((kib << 10) + kPages - 1) / kPages * kPages;
}

std::size_t fiber_stack_bytes() {
  static const std::size_t bytes = [] {
    const auto parsed = parse_fiber_stack_kib(std::getenv(kVariable));
    if (!parsed) throw UsageError(parsed.error().message());
    return *parsed;
  }();
  return bytes;
}

std::byte* take_fiber_stack() {
  StackPool& stacks = pool();
  {
    const std::lock_guard lock(stacks.mutex);
    if (!stacks.free.empty()) {
      std::byte* stack = stacks.free.back();
      stacks.free.pop_back();
      return stack;
    }
    stacks.free.reserve(kPooledStacks);
  }
  return map_stack();
}

void give_back_fiber_stack(std::byte* stack) noexcept {
  StackPool& stacks = pool();
  {
    const std::lock_guard lock(stacks.mutex);
    if (stacks.free.size() < kPooledStacks) {
      stacks.free.push_back(stack);  // reserved by the first take
      return;
    }
  }
  ::munmap(stack - kFiberGuardBytes, kFiberGuardBytes + fiber_stack_bytes());
}

}  // namespace divisi::runtime
