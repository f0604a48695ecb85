#include "kube/retry.h"

#include "io/jitter.h"

#include <algorithm>
#include <charconv>

namespace divisi::kube {
namespace {

// Not longer than the server's own answer to overload would ever ask for.
constexpr std::chrono::seconds kLongestRetryAfter{300};

io::Duration scaled(io::Duration duration, double factor) {
  return std::chrono::duration_cast<io::Duration>(duration * factor);
}

}  // namespace

io::Duration Backoff::next() {
  const io::Duration whole = next_;
  next_ = std::min(next_ * 2, options_.longest);
  return options_.full_jitter ? scaled(whole, io::jitter()) : whole;
}

std::optional<io::Duration> retry_after(const http::Headers& headers) {
  const std::string_view text = headers.get("Retry-After");
  int seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || seconds < 0) {
    return std::nullopt;
  }
  return std::min<io::Duration>(std::chrono::seconds(seconds), kLongestRetryAfter);
}

std::optional<io::Duration> RetryPolicy::delay_after(std::string_view method,
                                                     const Result<http::Response>& outcome) {
  if (left_ <= 0) return std::nullopt;
  const bool read = method == "GET";
  std::optional<io::Duration> asked;
  if (!outcome) {
    // Whether the server has handled it is not known.
    const Code code = outcome.error().code();
    if (!read || (code != Code::kUnavailable && code != Code::kClosed)) return std::nullopt;
  } else {
    asked = retry_after(outcome->headers);
    const int status = outcome->status;
    const bool refused = status == 429 || (status >= 500 && asked);
    const bool failed = status == 500 || (status >= 502 && status <= 504);
    if (!refused && !(read && failed)) return std::nullopt;
  }
  --left_;
  const io::Duration own = backoff_.next();
  if (!asked) return own;
  // With jitter, because everybody was told the same.
  return *asked + scaled(*asked, 0.1 * io::jitter()) + own;
}

}  // namespace divisi::kube
