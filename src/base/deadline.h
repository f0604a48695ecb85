// Timeouts that users give, as long as they like: milliseconds::max() is a long time, though it is
// more nanoseconds than there are and its sum with now() lies in the past.
#pragma once

#include <algorithm>
#include <chrono>

namespace divisi {

// `timeout`, or the longest there is.
template <class Rep, class Period>
constexpr std::chrono::nanoseconds to_nanoseconds(std::chrono::duration<Rep, Period> timeout) {
  using Given = std::chrono::duration<Rep, Period>;
  using std::chrono::nanoseconds;
  constexpr Given kLongest = std::chrono::duration_cast<Given>(nanoseconds::max());
  if (timeout >= kLongest) return nanoseconds::max();
  if (timeout <= -kLongest) return -nanoseconds::max();
  return std::chrono::duration_cast<nanoseconds>(timeout);
}

// When `timeout` is over: time_point::max() if the clock does not reach it.
template <class Rep, class Period>
std::chrono::steady_clock::time_point deadline_after(
    std::chrono::duration<Rep, Period> timeout,
    std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now()) {
  const auto longest = std::chrono::steady_clock::time_point::max() - now;
  return now + std::clamp(to_nanoseconds(timeout), std::chrono::nanoseconds::zero(), longest);
}

}  // namespace divisi
