#include "tune/curved.h"

#include "divisi/error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace divisi::tune {
namespace {

TEST(CurvedTest, QuantilesOfTheNormalDistribution) {
  EXPECT_NEAR(normal_quantile(0.5), 0, 1e-15);
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-13);
  EXPECT_NEAR(normal_quantile(1e-9), -5.997807015007682, 1e-12);
  EXPECT_NEAR(normal_quantile(1 - 1e-9), 5.997807, 1e-6);
}

TEST(CurvedTest, NormalValuesAreFiniteAtTheEnds) {
  const HyperValue value = normal(10, 2);
  EXPECT_NEAR(value.value(value.space().lower()).as<double>(), 10 - 2 * 5.9978, 1e-3);
  EXPECT_NEAR(value.value(0.5).as<double>(), 10, 1e-12);
  EXPECT_THROW(normal(0, 0), UsageError);
}

TEST(CurvedTest, LogIntegersHaveBothEnds) {
  const HyperValue value = lograndint(1, 1000);
  EXPECT_EQ(value.value(value.space().lower()), Value(1));
  EXPECT_EQ(value.value(value.space().upper()), Value(1000));
  EXPECT_TRUE(value.value(std::log(31.4)).holds<std::int64_t>());
  EXPECT_THROW(lograndint(0, 5), UsageError);
}

TEST(CurvedTest, SteppedLogValuesAreMultiplesInTheBounds) {
  const HyperValue value = qloguniform(0.1, 1.2, 0.1);
  EXPECT_EQ(value.value(std::log(0.1)), Value(0.1));
  EXPECT_EQ(value.value(std::log(0.29)), Value(0.3));
  EXPECT_EQ(value.value(std::log(1.2)), Value(1.2));
  EXPECT_THROW(qloguniform(0.11, 0.19, 0.1), UsageError);
}

TEST(CurvedTest, FixedIsOneAlternative) {
  EXPECT_EQ(fixed(Value("adam")).value(0), Value("adam"));
  EXPECT_EQ(fixed(Value(1)).space().count(), 1);
}

}  // namespace
}  // namespace divisi::tune
