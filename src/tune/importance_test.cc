#include "divisi/importance.h"

#include "divisi/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace divisi::tune {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

struct Trials {
  std::vector<Space> spaces;
  std::vector<std::vector<double>> points;
  std::vector<double> values;
};

template <class F>
Trials random_trials(std::vector<Space> spaces, std::int64_t count, F function) {
  Trials trials{spaces, {}, {}};
  Sampler sampler =
      Sampler::random(std::move(spaces), {.max_steps = count, .words = python_random(3)});
  while (const std::optional<Sample> sample = sampler.ask()) {
    trials.points.push_back(sample->values);
    trials.values.push_back(function(sample->values));
    sampler.tell(sample->id, TrialState::kOk, 0);
  }
  return trials;
}

std::vector<double> importance_of(const Trials& trials, const ImportanceOptions& options = {}) {
  return importance(trials.spaces, trials.points, trials.values, options);
}

TEST(ImportanceTest, SharesOfALinearFunctionAreItsSquares) {
  // Variances of 1, 4 and 0 twelfths; the second one is measured in other units.
  const Trials trials = random_trials(
      {Space::continuous(0, 1), Space::continuous(1000, 3000), Space::continuous(-1, 1)}, 500,
      [](const std::vector<double>& x) { return x[0] + x[1] / 1000; });
  const std::vector<double> shares = importance_of(trials);
  EXPECT_THAT(shares,
              ElementsAre(DoubleNear(0.2, 0.04), DoubleNear(0.8, 0.04), DoubleNear(0, 0.01)));
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12);
  const std::vector<double> alone = importance_of(trials, {.normalize = false});
  EXPECT_NEAR(alone[0] + alone[1], 1, 0.05) << "nothing is shared by the two";
}

TEST(ImportanceTest, WhatTwoVariablesDoTogetherBelongsToNeither) {
  const Trials trials = random_trials({Space::continuous(-1, 1), Space::continuous(-1, 1)}, 500,
                                      [](const std::vector<double>& x) { return x[0] * x[1]; });
  const std::vector<double> alone = importance_of(trials, {.normalize = false});
  EXPECT_LT(alone[0] + alone[1], 0.15);
}

TEST(ImportanceTest, AlternativesAndStepsCountByTheirShareOfTheSpace) {
  const Trials trials =
      random_trials({Space::fixed(3), Space::separate(0, 9, 1), Space::continuous(0, 1)}, 600,
                    [](const std::vector<double>& x) {
                      return (x[0] == 1 ? 2.0 : x[0] / 2) + (x[1] >= 5 ? 0.4 : -0.4);
                    });
  const double alternatives = 2.0 / 3;  // of 0, 2 and 1
  const double steps = 0.16;
  const double all = alternatives + steps;
  EXPECT_THAT(importance_of(trials),
              ElementsAre(DoubleNear(alternatives / all, 0.03), DoubleNear(steps / all, 0.03),
                          DoubleNear(0, 0.01)));
}

TEST(ImportanceTest, DivergenceLooksAtTheBestTrials) {
  // Far from the best, the second variable decides; near it, the first one.
  const auto function = [](const std::vector<double>& x) {
    return x[0] < 0.2 ? x[0] : 10 + 100 * x[1];
  };
  const Trials trials = random_trials(
      {Space::continuous(0, 1), Space::continuous(0, 1), Space::fixed(2)}, 1000, function);
  const std::vector<double> shares =
      importance_of(trials, {.method = ImportanceMethod::kDivergence});
  EXPECT_GT(shares[0], 0.9);
  EXPECT_LT(shares[1] + shares[2], 0.1);
  const std::vector<double> worst =
      importance_of(trials, {.method = ImportanceMethod::kDivergence, .maximize = true});
  EXPECT_GT(worst[1], 0.7);
}

TEST(ImportanceTest, TheSeedDecidesAndNothingElse) {
  const Trials trials =
      random_trials({Space::continuous(0, 1), Space::continuous(0, 1)}, 60,
                    [](const std::vector<double>& x) { return std::sin(9 * x[0]) + x[1]; });
  EXPECT_EQ(importance_of(trials, {.seed = 4}), importance_of(trials, {.seed = 4}));
  EXPECT_NE(importance_of(trials, {.seed = 4}), importance_of(trials, {.seed = 5}));
}

TEST(ImportanceTest, ValuesThatAreNotFiniteAreLeftOut) {
  Trials trials = random_trials({Space::continuous(0, 1), Space::continuous(0, 1)}, 100,
                                [](const std::vector<double>& x) { return x[0]; });
  const std::vector<double> before = importance_of(trials);
  trials.points.push_back({0.5, 0.5});
  trials.values.push_back(std::numeric_limits<double>::quiet_NaN());
  trials.points.push_back({0.5, 0.5});
  trials.values.push_back(std::numeric_limits<double>::infinity());
  EXPECT_EQ(importance_of(trials), before);
}

TEST(ImportanceTest, TheLargestNumbersHaveSharesToo) {
  const Trials trials = random_trials({Space::continuous(0, 1), Space::continuous(0, 1)}, 100,
                                      [](const std::vector<double>& x) { return x[0] * 1e308; });
  EXPECT_GT(importance_of(trials)[0], 0.95);
}

TEST(ImportanceTest, EqualValuesHaveNoImportance) {
  const Trials trials = random_trials({Space::continuous(0, 1), Space::fixed(2)}, 20,
                                      [](const std::vector<double>&) { return 7; });
  EXPECT_THAT(importance_of(trials), ElementsAre(0, 0));
}

TEST(ImportanceTest, AVariableThatWasNotActiveHasNoValue) {
  Trials trials = random_trials({Space::fixed(2), Space::fixed(2), Space::continuous(0, 1)}, 200,
                                [](const std::vector<double>& x) { return x[0]; });
  for (std::vector<double>& point : trials.points) {
    if (point[0] == 0) point[1] = point[2] = std::numeric_limits<double>::quiet_NaN();
  }
  EXPECT_GT(importance_of(trials)[0], 0.5);
}

TEST(ImportanceTest, WrongInputIsRefused) {
  const std::vector<Space> spaces{Space::fixed(2)};
  EXPECT_THROW(importance(spaces, {{0}}, {1}), UsageError);
  EXPECT_THROW(importance(spaces, {{0}, {1}}, {1}), UsageError);
  EXPECT_THROW(importance(spaces, {{0}, {1, 2}}, {1, 2}), UsageError);
  EXPECT_THROW(importance(spaces, {{0}, {2}}, {1, 2}), UsageError);
  EXPECT_THROW(importance(spaces, {{0}, {0.5}}, {1, 2}), UsageError);
  EXPECT_THROW(importance(spaces, {{0}, {1}}, {1, 2}, {.trees = 0}), UsageError);
  EXPECT_THROW(importance(spaces, {{0}, {1}}, {1, 2}, {.best_share = 1}), UsageError);
  EXPECT_TRUE(importance({}, {{}, {}}, {1, 2}).empty());
}

}  // namespace
}  // namespace divisi::tune
