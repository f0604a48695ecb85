// Stacks for fibers: mapped once, guarded below, recycled.
#pragma once

#include <cstddef>

namespace divisi::runtime {

// Usable bytes of a fiber's stack. 256 KiB holds the deepest frames we have seen in middleware
// (stream formatting, a JSON parse, a small tensor expression) ten times over; pages are only
// committed when touched, so the price of the rest is address space. Sanitizers put red zones
// between locals, which makes frames several times larger.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr std::size_t kFiberStackBytes = std::size_t{1} << 20;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr std::size_t kFiberStackBytes = std::size_t{1} << 20;
#else
inline constexpr std::size_t kFiberStackBytes = std::size_t{256} << 10;
#endif
#else
inline constexpr std::size_t kFiberStackBytes = std::size_t{256} << 10;
#endif

// Lowest usable byte of a stack of kFiberStackBytes; the page below it is not accessible, so an
// overflow is a fault at once. Throws Error(kUnavailable) when the system has no more mappings.
std::byte* take_fiber_stack();
void give_back_fiber_stack(std::byte* stack) noexcept;

}  // namespace divisi::runtime
