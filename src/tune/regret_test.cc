#include "divisi/regret.h"

#include "divisi/error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace divisi::tune {
namespace {

// The regret after so many trials of a Bayesian search for the top of a hill of height 1000.
double regret_after(std::int64_t trials, bool maximize) {
  const std::vector<Space> spaces{Space::continuous(0, 10), Space::continuous(0, 1)};
  Sampler sampler = Sampler::bayes(spaces, {.max_steps = trials, .maximize = maximize, .seed = 5});
  std::vector<std::vector<double>> points;
  std::vector<double> values;
  while (const std::optional<Sample> sample = sampler.ask()) {
    const double dx = sample->values[0] / 10 - 0.3;
    const double dy = sample->values[1] - 0.6;
    const double hill = 1000 * std::exp(-4 * (dx * dx + dy * dy));
    points.push_back(sample->values);
    values.push_back(maximize ? hill : -hill);
    sampler.tell(sample->id, TrialState::kOk, values.back());
  }
  return estimated_regret(spaces, points, values, {.maximize = maximize});
}

TEST(RegretTest, FallsBelowAShareOnceTheTopIsFound) {
  for (const bool maximize : {true, false}) {
    EXPECT_GT(regret_after(6, maximize), 30) << maximize;
    EXPECT_LT(regret_after(40, maximize), 10) << maximize;
  }
}

TEST(RegretTest, IsInfiniteBeforeThereIsAModel) {
  const std::vector<Space> spaces{Space::continuous(0, 1)};
  EXPECT_EQ(estimated_regret(spaces, {{0}, {1}}, {1, 2}), std::numeric_limits<double>::infinity());
  EXPECT_EQ(estimated_regret({}, {{}, {}, {}, {}, {}, {}}, {1, 2, 3, 4, 5, 6}),
            std::numeric_limits<double>::infinity());
}

TEST(RegretTest, EqualValuesLeaveNothingToHopeFor) {
  const std::vector<Space> spaces{Space::fixed(9)};
  EXPECT_EQ(estimated_regret(spaces, {{0}, {1}, {2}, {3}, {4}}, {7, 7, 7, 7, 7}), 0);
}

TEST(RegretTest, WrongInputIsRefused) {
  EXPECT_THROW(estimated_regret({Space::fixed(2)}, {{0}}, {}), UsageError);
  EXPECT_THROW(estimated_regret({Space::fixed(2)}, {{0, 1}}, {1}), UsageError);
}

}  // namespace
}  // namespace divisi::tune
