#include "divisi/error.h"
#include "divisi/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace divisi::tune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<double> near_points(const Space& space, std::int64_t n) {
  std::vector<double> points = space.spread(n);
  for (double& point : points) point = std::round(point * 1e9) / 1e9;
  return points;
}

TEST(SpaceTest, H007_LengthAndCountOfEachKind) {
  const Space continuous = Space::continuous(0.4, 2.2);
  EXPECT_DOUBLE_EQ(continuous.length(), 1.8);
  EXPECT_EQ(continuous.count(), std::nullopt);
  const Space separate = Space::separate(0.4, 2.2, 0.4);
  EXPECT_DOUBLE_EQ(separate.upper(), 2.0);
  EXPECT_DOUBLE_EQ(separate.length(), 1.6);
  EXPECT_EQ(separate.count(), 5);
  const Space fixed = Space::fixed(5);
  EXPECT_EQ(fixed.length(), 5);
  EXPECT_EQ(fixed.count(), 5);
}

TEST(SpaceTest, LastStepIsNotLostToRounding) {
  EXPECT_EQ(Space::separate(0, 0.3, 0.1).count(), 4);
  EXPECT_EQ(Space::separate(0, 0.7, 0.1).count(), 8);
  EXPECT_EQ(Space::separate(0, 0.6, 0.2).count(), 4);
  EXPECT_EQ(Space::separate(0.4, 2.2, 0.2).count(), 10);
  EXPECT_EQ(Space::separate(0, 0.29, 0.1).count(), 3);
}

TEST(SpaceTest, PointsAreShortDecimals) {
  const Space space = Space::separate(-1.6, 7.8, 0.2);
  EXPECT_EQ(space.at(14), 1.2);
  EXPECT_EQ(space.at(8), 0.0);
  EXPECT_EQ(space.upper(), 7.8);
  // The start's digits are kept where it has more of them than the step.
  EXPECT_EQ(Space::separate(0.45, 1, 0.1).at(1), 0.55);
  EXPECT_EQ(Space::separate(1.0 / 3, 2, 0.5).at(1), 1.0 / 3 + 0.5);
}

TEST(SpaceTest, H020_ContinuousGridPoints) {
  const Space space = Space::continuous(0.4, 2.2);
  EXPECT_THAT(space.spread(0), IsEmpty());
  EXPECT_THAT(near_points(space, 1), ElementsAre(1.3));
  EXPECT_THAT(near_points(space, 2), ElementsAre(0.4, 2.2));
  EXPECT_THAT(near_points(space, 3), ElementsAre(0.4, 1.3, 2.2));
  EXPECT_THAT(near_points(space, 4), ElementsAre(0.4, 1.0, 1.6, 2.2));
  const std::vector<double> eleven = space.spread(11);
  ASSERT_EQ(eleven.size(), 11U);
  EXPECT_EQ(eleven.back(), 2.2);
  EXPECT_NEAR(eleven[1] - eleven[0], 0.18, 1e-12);
}

TEST(SpaceTest, H021_SeparateGridPoints) {
  const Space space = Space::separate(0.4, 2.2, 0.2);
  EXPECT_THAT(space.spread(0), IsEmpty());
  EXPECT_THAT(space.spread(1), ElementsAre(1.2));
  EXPECT_THAT(space.spread(3), ElementsAre(0.4, 1.2, 2.2));
  EXPECT_THAT(space.spread(5), ElementsAre(0.4, 0.8, 1.2, 1.8, 2.2));
  EXPECT_THAT(space.spread(6), ElementsAre(0.4, 0.8, 1.2, 1.4, 1.8, 2.2));
  EXPECT_THAT(space.spread(7), ElementsAre(0.4, 0.8, 1.0, 1.2, 1.6, 2.0, 2.2));
  EXPECT_EQ(space.spread(10).size(), 10U);
  EXPECT_EQ(space.spread(11), space.spread(10));
}

TEST(SpaceTest, H022_FixedGridHasAllIndices) {
  EXPECT_THAT(Space::fixed(5).spread(2), ElementsAre(0, 1, 2, 3, 4));
}

TEST(SpaceTest, H040_BayesCoordinatesOfContinuous) {
  const Space space = Space::continuous(0.4, 2.2);
  EXPECT_EQ(space.coordinate_bounds(), (std::pair{0.4, 2.2}));
  EXPECT_EQ(space.at_coordinate(1), 1);
  EXPECT_EQ(space.at_coordinate(4.92387), 4.92387);
}

TEST(SpaceTest, H041_BayesCoordinatesOfSeparate) {
  const Space space = Space::separate(10.2, 12.4, 0.2);
  EXPECT_EQ(space.coordinate_bounds(), (std::pair{0.0, 12.0}));
  EXPECT_DOUBLE_EQ(space.at_coordinate(1), 10.4);
  EXPECT_DOUBLE_EQ(space.at_coordinate(2.2), 10.6);
  EXPECT_DOUBLE_EQ(space.at_coordinate(4.92387), 11.0);
  EXPECT_DOUBLE_EQ(space.at_coordinate(12.0), 12.4);
}

TEST(SpaceTest, BadBoundsAreUsageErrors) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THROW(Space::continuous(-10, -10), UsageError);
  EXPECT_THROW(Space::continuous(0, infinity), UsageError);
  EXPECT_THROW(Space::continuous(nan, 1), UsageError);
  EXPECT_THROW(Space::continuous(-1.7e308, 1.7e308), UsageError);
  EXPECT_THROW(Space::separate(1, 0, 1), UsageError);
  EXPECT_THROW(Space::separate(0, 1, 0), UsageError);
  EXPECT_THROW(Space::separate(0, 1e300, 1e-9), UsageError);
  EXPECT_THROW(Space::separate(0, 1, nan), UsageError);
  EXPECT_THROW(Space::fixed(0), UsageError);
}

}  // namespace
}  // namespace divisi::tune
