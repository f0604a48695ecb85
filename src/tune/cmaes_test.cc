// CMA-ES on functions whose minimum is known, with trials that end in any order.
#include "divisi/error.h"
#include "divisi/sampler.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <set>

namespace divisi::tune {
namespace {

using Function = std::function<double(const std::vector<double>&)>;

std::vector<Space> cube(std::size_t n, double lower = -5, double upper = 5) {
  return std::vector<Space>(n, Space::continuous(lower, upper));
}

double sphere(const std::vector<double>& x) {
  double sum = 0;
  for (const double one : x) sum += (one - 1.2) * (one - 1.2);
  return sum;
}

// Axes that differ by a factor of 1000, turned so that none of them is a coordinate's.
double rotated_ellipsoid(const std::vector<double>& x) {
  const std::size_t n = x.size();
  double mean = 0;
  for (const double one : x) mean += one / static_cast<double>(n);
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double mirrored = x[i] - 2 * mean;  // a reflection: orthogonal, and no permutation
    sum += std::pow(1e6, static_cast<double>(i) / static_cast<double>(n - 1)) * mirrored * mirrored;
  }
  return sum;
}

double rosenbrock(const std::vector<double>& x) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    sum += 100 * std::pow(x[i + 1] - x[i] * x[i], 2) + std::pow(1 - x[i], 2);
  }
  return sum;
}

double rastrigin(const std::vector<double>& x) {
  double sum = 0;
  for (const double one : x) sum += one * one + 10 - 10 * std::cos(2 * std::acos(-1.0) * one);
  return sum;
}

double best_of(Sampler sampler, const Function& function, int trials) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < trials; ++i) {
    const Sample sample = sampler.ask().value();
    const double value = function(sample.values);
    best = std::min(best, value);
    sampler.tell(sample.id, TrialState::kOk, value);
  }
  return best;
}

TEST(CmaesTest, ConvergesOnTheSphere) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    EXPECT_LT(best_of(Sampler::cmaes(cube(6), {.seed = seed}), sphere, 1200), 1e-8);
    EXPECT_LT(best_of(Sampler::cmaes(cube(1), {.seed = seed}), sphere, 300), 1e-8);
  }
}

TEST(CmaesTest, LearnsTheShapeOfARotatedEllipsoid) {
  for (const bool active : {true, false}) {
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      const CmaesOptions options{.active = active, .seed = seed};
      EXPECT_LT(best_of(Sampler::cmaes(cube(5), options), rotated_ellipsoid, 4000), 1e-6);
    }
  }
}

TEST(CmaesTest, FollowsTheValleyOfRosenbrock) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    EXPECT_LT(best_of(Sampler::cmaes(cube(4, -2, 2), {.seed = seed}), rosenbrock, 6000), 1e-6);
  }
}

TEST(CmaesTest, FindsAMinimumAtTheBounds) {
  const Function corner = [](const std::vector<double>& x) { return x[0] - x[1] + x[2] * x[2]; };
  EXPECT_LT(best_of(Sampler::cmaes(cube(3), {.seed = 4}), corner, 1500), -10 + 1e-6);
}

TEST(CmaesTest, RestartsLeaveALocalMinimum) {
  // The best local minima are 0.995 above the minimum; without restarts the search ends in one.
  double with = 0;
  double without = 0;
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
    const CmaesOptions once{.restarts = false, .seed = seed};
    with += best_of(Sampler::cmaes(cube(3), {.seed = seed}), rastrigin, 12000);
    without += best_of(Sampler::cmaes(cube(3), once), rastrigin, 12000);
  }
  EXPECT_LT(with, 0.1);
  EXPECT_GT(without, 0.5);
}

TEST(CmaesTest, StepsDoNotFreeze) {
  // The intervals decide at first, and the deviation has shrunk far below a step before the steps
  // are noticed.
  std::vector<Space> spaces(4, Space::separate(0, 8, 1));
  for (int i = 0; i < 3; ++i) spaces.push_back(Space::continuous(-5, 5));
  const Function function = [](const std::vector<double>& x) {
    double sum = 0;
    for (std::size_t i = 0; i < 4; ++i) sum += 1e-3 * std::abs(x[i] - 8);
    for (std::size_t i = 4; i < 7; ++i) sum += 1e6 * (x[i] - 0.3) * (x[i] - 0.3);
    return sum;
  };
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    EXPECT_LT(best_of(Sampler::cmaes(spaces, {.restarts = false, .seed = seed}), function, 4000),
              1e-3);
  }
}

TEST(CmaesTest, ValuesAreThoseOfTheSpaces) {
  Sampler sampler =
      Sampler::cmaes({Space::separate(0, 1, 0.25), Space::fixed(3), Space::continuous(2, 3),
                      Space::fixed(1), Space::separate(4, 4, 1)},
                     {.sigma0 = 1, .seed = 3});
  std::set<double> steps;
  std::set<double> choices;
  for (int i = 0; i < 400; ++i) {
    const Sample sample = sampler.ask().value();
    steps.insert(sample.values[0]);
    choices.insert(sample.values[1]);
    EXPECT_GE(sample.values[2], 2);
    EXPECT_LE(sample.values[2], 3);
    EXPECT_EQ(sample.values[3], 0);
    EXPECT_EQ(sample.values[4], 4);
    sampler.tell(sample.id, TrialState::kOk, sample.values[2]);
  }
  EXPECT_THAT(steps, testing::ElementsAre(0, 0.25, 0.5, 0.75, 1));
  EXPECT_THAT(choices, testing::ElementsAre(0, 1, 2));
}

TEST(CmaesTest, LearnsWhichAlternativesAreGood) {
  const std::vector<Space> spaces = {Space::continuous(-5, 5), Space::separate(0, 20, 1),
                                     Space::fixed(4), Space::fixed(3), Space::continuous(-5, 5)};
  const Function function = [](const std::vector<double>& x) {
    return x[0] * x[0] + std::abs(x[1] - 13) + (x[2] == 2 ? 0 : 3) + (x[3] == 1 ? 0 : 2) +
           (x[4] - 2) * (x[4] - 2);
  };
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    Sampler sampler = Sampler::cmaes(spaces, {.restarts = false, .seed = seed});
    int good = 0;  // of the last 200 trials
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 1200; ++i) {
      const Sample sample = sampler.ask().value();
      const double value = function(sample.values);
      best = std::min(best, value);
      good += i >= 1000 && sample.values[2] == 2 && sample.values[3] == 1 ? 1 : 0;
      sampler.tell(sample.id, TrialState::kOk, value);
    }
    EXPECT_LT(best, 1e-4);
    EXPECT_GT(good, 100);
  }
}

TEST(CmaesTest, OnlyAlternativesAreASearchToo) {
  Sampler sampler = Sampler::cmaes(std::vector<Space>(6, Space::fixed(4)), {.seed = 1});
  const Function matches = [](const std::vector<double>& x) {
    return -static_cast<double>(std::count(x.begin(), x.end(), 3.0));
  };
  EXPECT_EQ(best_of(std::move(sampler), matches, 600), -6);
  EXPECT_EQ(best_of(Sampler::cmaes({}, {}), [](const auto&) { return 1.0; }, 20), 1);
}

TEST(CmaesTest, TrialsMayEndInAnyOrder) {
  // More trials run than a generation has, and the newest one ends first half of the time.
  for (const std::size_t running : {5U, 16U, 40U}) {
    Sampler sampler = Sampler::cmaes(cube(5), {.seed = 3});
    std::deque<Sample> asked;
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 4000; ++i) {
      while (asked.size() < running) asked.push_back(sampler.ask().value());
      const bool newest = i % 2 == 0;
      const Sample ended = newest ? asked.back() : asked.front();
      newest ? asked.pop_back() : asked.pop_front();
      best = std::min(best, sphere(ended.values));
      sampler.tell(ended.id, TrialState::kOk, sphere(ended.values));
    }
    EXPECT_LT(best, 1e-8) << running << " at a time";
  }
}

TEST(CmaesTest, FailuresRankLast) {
  // Half of the space fails, and the best values are next to it.
  Sampler sampler = Sampler::cmaes(cube(3), {.maximize = true, .seed = 2});
  double best = -std::numeric_limits<double>::infinity();
  int failed = 0;
  for (int i = 0; i < 1500; ++i) {
    const Sample sample = sampler.ask().value();
    const double value = sample.values[0] - sample.values[1] * sample.values[1] -
                         sample.values[2] * sample.values[2];
    if (sample.values[0] > 1) {
      ++failed;
      sampler.tell(sample.id, i % 2 == 0 ? TrialState::kFail : TrialState::kPruned);
      continue;
    }
    best = std::max(best, value);
    sampler.tell(sample.id, TrialState::kOk, value);
  }
  EXPECT_GT(best, 0.9999);
  EXPECT_LT(failed, 1100);
}

TEST(CmaesTest, GoesOnWhenAllTrialsFailOrAreSkipped) {
  Sampler sampler = Sampler::cmaes(cube(2), {.max_steps = 100, .seed = 2});
  int asked = 0;
  while (const std::optional<Sample> sample = sampler.ask()) {
    ++asked;
    sampler.tell(sample->id, asked % 2 == 0 ? TrialState::kFail : TrialState::kSkip);
  }
  EXPECT_EQ(asked, 100);
  EXPECT_EQ(sampler.pending(), 0U);
}

TEST(CmaesTest, InfeasibleResultsRankBehindFeasibleOnes) {
  // The minimum under x0 + x1 >= 1 is at (0.5, 0.5).
  Sampler sampler = Sampler::cmaes(cube(2), {.seed = 6});
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 1500; ++i) {
    const Sample sample = sampler.ask().value();
    const double value = sample.values[0] * sample.values[0] + sample.values[1] * sample.values[1];
    const double violation = std::max(0.0, 1 - sample.values[0] - sample.values[1]);
    if (violation == 0) best = std::min(best, value);
    sampler.tell(sample.id, {.values = {value}, .violation = violation});
  }
  EXPECT_GE(best, 0.5);
  EXPECT_LT(best, 0.5001);
}

TEST(CmaesTest, SuggestionsDependOnSeedAndResults) {
  const auto points = [](std::uint64_t seed, double shift) {
    Sampler sampler = Sampler::cmaes(cube(3), {.seed = seed});
    std::vector<std::vector<double>> all;
    for (int i = 0; i < 40; ++i) {
      const Sample sample = sampler.ask().value();
      all.push_back(sample.values);
      sampler.tell(sample.id, TrialState::kOk, std::abs(sample.values[0] - shift));
    }
    return all;
  };
  EXPECT_EQ(points(1, 0), points(1, 0));
  EXPECT_NE(points(1, 0), points(2, 0));
  EXPECT_NE(points(1, 0), points(1, 3));
}

TEST(CmaesTest, WrongOptionsAndSeveralValuesAreRefused) {
  EXPECT_THROW(Sampler::cmaes(cube(2), {.population_size = 3}), UsageError);
  EXPECT_THROW(Sampler::cmaes(cube(2), {.population_size = -1}), UsageError);
  EXPECT_THROW(Sampler::cmaes(cube(2), {.sigma0 = 0}), UsageError);
  EXPECT_THROW(Sampler::cmaes(cube(2), {.sigma0 = std::nan("")}), UsageError);
  EXPECT_THROW(Sampler::cmaes(cube(2), {.max_steps = -1}), UsageError);
  Sampler sampler = Sampler::cmaes(cube(2), {});
  EXPECT_EQ(sampler.objectives(), 1U);
  const std::uint64_t id = sampler.ask()->id;
  EXPECT_THROW(sampler.tell(id, {.values = {1, 2}}), UsageError);
  EXPECT_EQ(sampler.pending(), 1U);
}

}  // namespace
}  // namespace divisi::tune
