// Stacks for fibers: mapped once, guarded below, recycled.
#pragma once

#include "base/sanitizer.h"
#include "base/status.h"

#include <cstddef>

namespace divisi::runtime {

// Usable bytes of a fiber's stack, unless DIVISI_FIBER_STACK_KIB says otherwise. The deepest frames
// we have seen in middleware (stream formatting, a JSON parse, a small tensor expression) take 25
// KiB; the rest is for arrays that users put there. Pages are only committed when touched, so its
// price is address space. Sanitizers put red zones between locals, which makes frames larger.
inline constexpr std::size_t kFiberStackBytes = std::size_t{kSanitizer ? 4 : 1} << 20;

// Below each stack, not accessible: an overflow is a fault at once, also one by a large array whose
// first access is far below the stack's end.
inline constexpr std::size_t kFiberGuardBytes = std::size_t{1} << 20;

// What this process uses. Throws UsageError if the variable is not a number of KiB in its bounds.
std::size_t fiber_stack_bytes();
// The same for a text, null: none was given.
Result<std::size_t> parse_fiber_stack_kib(const char* text);

// Lowest usable byte of a stack of fiber_stack_bytes(). Throws Error(kUnavailable) when the system
// has no more mappings.
std::byte* take_fiber_stack();
void give_back_fiber_stack(std::byte* stack) noexcept;

}  // namespace divisi::runtime
