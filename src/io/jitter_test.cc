#include "io/jitter.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace divisi::io {
namespace {

std::vector<double> some() {
  std::vector<double> numbers(1'000);
  for (double& each : numbers) each = jitter();
  return numbers;
}

TEST(JitterTest, ItIsAShareOfOneAndDoesNotRepeat) {
  const std::vector<double> numbers = some();
  for (const double each : numbers) {
    EXPECT_GE(each, 0.0);
    EXPECT_LT(each, 1.0);
  }
  EXPECT_EQ(std::set<double>(numbers.begin(), numbers.end()).size(), numbers.size());
}

TEST(JitterTest, ASeedGivesTheSameNumbersAgain) {
  seed_jitter(17);
  const std::vector<double> first = some();
  EXPECT_NE(some(), first);
  seed_jitter(17);
  EXPECT_EQ(some(), first);
}

}  // namespace
}  // namespace divisi::io
