// RetryPolicy and Backoff: when to try again, and how long to wait before it.
#pragma once

#include "base/status.h"
#include "http/message.h"
#include "io/reactor.h"

#include <chrono>
#include <optional>
#include <string_view>

namespace divisi::kube {

struct BackoffOptions {
  io::Duration first = std::chrono::milliseconds(800);
  io::Duration longest = std::chrono::seconds(30);
  bool full_jitter = true;  // a random part of the delay, so that clients do not come together
};

// Delays that double. Not thread-safe.
class Backoff {
 public:
  explicit Backoff(BackoffOptions options = {}) : options_(options), next_(options.first) {}
  io::Duration next();
  void reset() { next_ = options_.first; }

 private:
  BackoffOptions options_;
  io::Duration next_;
};

// Of one call. A read may be repeated whatever happened to it; any other request only when the
// server says that it did not handle it.
class RetryPolicy {
 public:
  explicit RetryPolicy(int max_tries = 1) : left_(max_tries - 1) {}

  // How long to wait before the next try; nothing when the outcome stands.
  std::optional<io::Duration> delay_after(std::string_view method,
                                          const Result<http::Response>& outcome);

 private:
  int left_;
  Backoff backoff_{{std::chrono::milliseconds(50), std::chrono::seconds(5)}};
};

// The seconds of a Retry-After header; nothing when there is none that can be read.
std::optional<io::Duration> retry_after(const http::Headers& headers);

}  // namespace divisi::kube
