#include "rl/rate_limiter.h"

#include "divisi/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <limits>

namespace divisi::rl {
namespace {

TEST(RateLimiterTest, Nothing_is_sampled_before_there_are_enough_rows) {
  RateLimiter limiter({.samples_per_insert = 0, .min_size = 10});
  limiter.inserted(9);
  EXPECT_TRUE(limiter.may_insert());
  EXPECT_FALSE(limiter.may_sample(1));
  limiter.inserted(1);
  EXPECT_TRUE(limiter.may_sample(1));
}

TEST(RateLimiterTest, Without_a_ratio_nobody_waits) {
  RateLimiter limiter({.samples_per_insert = 0, .min_size = 1});
  limiter.inserted(1);
  limiter.sampled(1'000'000);
  EXPECT_TRUE(limiter.may_sample(1'000'000));
  limiter.inserted(1'000'000'000);
  EXPECT_TRUE(limiter.may_insert());
}

TEST(RateLimiterTest, The_faster_side_waits) {
  RateLimiter limiter({.samples_per_insert = 2, .min_size = 10, .tolerance = 20});
  limiter.inserted(10);
  EXPECT_TRUE(limiter.may_sample(20));   // ahead by no more than the tolerance
  EXPECT_FALSE(limiter.may_sample(21));  // ahead by more
  limiter.inserted(10);                  // 20 owed
  EXPECT_TRUE(limiter.may_insert());
  limiter.inserted(1);  // 22 owed
  EXPECT_FALSE(limiter.may_insert());
  limiter.sampled(2);
  EXPECT_TRUE(limiter.may_insert());
}

TEST(RateLimiterTest, Goes_on_where_a_checkpoint_left_it) {
  RateLimiter before({.samples_per_insert = 2, .min_size = 1, .tolerance = 4});
  before.inserted(11);
  before.sampled(10);
  RateLimiter after({.samples_per_insert = 2, .min_size = 1, .tolerance = 4});
  after.restore(before.inserted(), before.sampled());
  EXPECT_FALSE(after.may_insert());
  EXPECT_TRUE(after.may_sample(14));
  EXPECT_FALSE(after.may_sample(15));
}

TEST(RateLimiterTest, One_that_lets_nobody_go_on_is_refused_with_its_numbers) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  for (const RateLimit& limit :
       {RateLimit{.samples_per_insert = -1}, RateLimit{.samples_per_insert = kInfinite},
        RateLimit{.samples_per_insert = kNone}, RateLimit{.samples_per_insert = 1, .tolerance = -4},
        RateLimit{.samples_per_insert = 1, .tolerance = kNone}, RateLimit{.min_size = 0}}) {
    EXPECT_THROW(RateLimiter{limit}, UsageError);
  }
  EXPECT_THAT(
      [] { RateLimiter({.samples_per_insert = -2, .min_size = 7, .tolerance = 3}); },
      ::testing::ThrowsMessage<UsageError>(::testing::HasSubstr(
          "a rate limit of -2 samples per insert with a tolerance of 3 rows, from 7 rows on")));
}

// Whoever may go on does, in any order: the ratio holds within the bounds, and never do both wait.
RC_GTEST_PROP(RateLimiterTest, Keeps_the_ratio_and_never_stops_both_sides, ()) {
  const double ratio = *rc::gen::inRange(1, 40);
  const auto insert_rows = *rc::gen::inRange<std::int64_t>(1, 100);
  const auto sample_rows = *rc::gen::inRange<std::int64_t>(1, 1000);
  const auto min_size = *rc::gen::inRange<std::int64_t>(1, 200);
  RateLimiter limiter({.samples_per_insert = ratio, .min_size = min_size, .tolerance = 0});
  limiter.widen(sample_rows);
  for (const bool insert_first :
       *rc::gen::container<std::vector<bool>>(200, rc::gen::arbitrary<bool>())) {
    const bool may_insert = limiter.may_insert();
    const bool may_sample = limiter.may_sample(sample_rows);
    RC_ASSERT(may_insert || may_sample);
    if (may_insert && (insert_first || !may_sample)) {
      limiter.inserted(insert_rows);
    } else {
      limiter.sampled(sample_rows);
    }
    const double due = ratio * static_cast<double>(limiter.inserted() - min_size);
    const double ahead = static_cast<double>(limiter.sampled()) - due;
    if (limiter.inserted() >= min_size) {
      RC_ASSERT(ahead <= static_cast<double>(sample_rows) + ratio * static_cast<double>(min_size));
      RC_ASSERT(ahead >= -(static_cast<double>(sample_rows) +
                           ratio * static_cast<double>(insert_rows + min_size)));
    }
  }
}

}  // namespace
}  // namespace divisi::rl
