// RateLimiter: keeps training and collecting in step.
//
// Every inserted row is to be sampled `samples_per_insert` times on average. The side that is ahead
// by more than the tolerance waits for the other.
#pragma once

#include <cstdint>

namespace divisi::rl {

struct RateLimit {
  double samples_per_insert = 0;  // 0: no limit
  std::int64_t min_size = 1;      // rows before the first sample
  double tolerance = 0;           // rows sampled too many or too few
};

class RateLimiter {
 public:
  // Throws UsageError for numbers with which a side would never go on.
  explicit RateLimiter(RateLimit limit);

  // Both sides wait for each other unless the tolerance is at least half of the largest sample:
  // widen() sees to it.
  void widen(std::int64_t sample_rows) {
    if (limit_.tolerance < static_cast<double>(sample_rows)) {
      limit_.tolerance = static_cast<double>(sample_rows);
    }
  }
  bool may_insert() const {
    return limit_.samples_per_insert <= 0 || inserted_ < limit_.min_size ||
           owed() <= limit_.tolerance;
  }
  bool may_sample(std::int64_t rows) const {
    if (inserted_ < limit_.min_size) return false;
    return limit_.samples_per_insert <= 0 || owed() >= static_cast<double>(rows) - limit_.tolerance;
  }
  void inserted(std::int64_t rows) { inserted_ += rows; }
  void sampled(std::int64_t rows) { sampled_ += rows; }

  // For a checkpoint.
  std::int64_t inserted() const { return inserted_; }
  std::int64_t sampled() const { return sampled_; }
  void restore(std::int64_t inserted, std::int64_t sampled) {
    inserted_ = inserted;
    sampled_ = sampled;
  }

 private:
  // Rows that should have been sampled by now but were not.
  double owed() const {
    const auto counted = static_cast<double>(inserted_ - limit_.min_size);
    return counted * limit_.samples_per_insert - static_cast<double>(sampled_);
  }

  RateLimit limit_;
  std::int64_t inserted_ = 0;
  std::int64_t sampled_ = 0;
};

}  // namespace divisi::rl
