#include "rl/rate_limiter.h"

#include "divisi/error.h"

#include <fmt/format.h>

#include <cmath>

namespace divisi::rl {

RateLimiter::RateLimiter(RateLimit limit) : limit_(limit) {
  const auto amount = [](double number) { return std::isfinite(number) && number >= 0; };
  if (amount(limit.samples_per_insert) && amount(limit.tolerance) && limit.min_size >= 1) return;
  throw UsageError(fmt::format(
      "a rate limit of {} samples per insert with a tolerance of {} rows, from {} rows on, lets "
      "nobody go on: give finite numbers of 0 or more, and 1 row or more",
      limit.samples_per_insert, limit.tolerance, limit.min_size));
}

}  // namespace divisi::rl
