#include "runtime/fiber_stack.h"

#include "base/status.h"
#include "divisi/error.h"

#include <fmt/format.h>

#include <cerrno>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace divisi::runtime {
namespace {

// A pipeline suspends as many fibers at once as it has middleware: 64 covers every program we
// know, and keeps at most 16 MiB of touched pages when all of them ran deep.
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

std::size_t guard_bytes() {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return page;
}

std::byte* map_stack() {
  const std::size_t guard = guard_bytes();
  void* base = ::mmap(nullptr, guard + kFiberStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    throw Error(Code::kUnavailable,
                fmt::format("mapping a stack of {} KiB for a middleware: {}; too many suspended "
                            "middleware, or the limit vm.max_map_count is too low",
                            kFiberStackBytes >> 10, errno_text(errno)));
  }
  if (::mprotect(base, guard, PROT_NONE) != 0) {
    const int error = errno;
    ::munmap(base, guard + kFiberStackBytes);
    throw Error(Code::kUnavailable,
                fmt::format("guarding a middleware's stack: {}", errno_text(error)));
  }
  return static_cast<std::byte*>(base) + guard;
}

}  // namespace

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
  ::munmap(stack - guard_bytes(), guard_bytes() + kFiberStackBytes);
}

}  // namespace divisi::runtime
