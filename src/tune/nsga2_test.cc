// NSGA-II: fronts of known problems, constraints, and points of every kind of space.
#include "divisi/error.h"
#include "divisi/sampler.h"

#include <gmock/gmock.h>

#include <cmath>
#include <deque>
#include <functional>
#include <set>

namespace divisi::tune {
namespace {

using Function = std::function<Outcome(const std::vector<double>&)>;

const std::vector<Direction> kBothSmaller = {Direction::kMinimize, Direction::kMinimize};

// The front is x1 = ... = 0, f2 = 1 - sqrt(f1); its volume below (1.1, 1.1) is about 0.8767.
Outcome zdt1(const std::vector<double>& x) {
  double g = 1;
  for (std::size_t i = 1; i < x.size(); ++i) g += 9 * x[i] / static_cast<double>(x.size() - 1);
  return {.values = {x[0], g * (1 - std::sqrt(x[0] / g))}};
}

ParetoFront front_of(Sampler sampler, const Function& function, int trials,
                     const std::vector<Direction>& directions = kBothSmaller) {
  ParetoFront front(directions);
  for (int i = 0; i < trials; ++i) {
    const Sample sample = sampler.ask().value();
    const Outcome outcome = function(sample.values);
    if (outcome.violation == 0) front.insert(sample.id, outcome.values);
    sampler.tell(sample.id, outcome);
  }
  return front;
}

TEST(Nsga2Test, CoversTheFrontOfZdt1) {
  const std::vector<Space> spaces(8, Space::continuous(0, 1));
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const ParetoFront found =
        front_of(Sampler::nsga2(spaces, {.directions = kBothSmaller, .seed = seed}), zdt1, 3000);
    const ParetoFront drawn =
        front_of(Sampler::random(spaces, {.words = python_random(seed)}), zdt1, 3000);
    EXPECT_GT(found.hypervolume({1.1, 1.1}), 0.85);
    EXPECT_LT(drawn.hypervolume({1.1, 1.1}), 0.2);
    EXPECT_GT(found.members().size(), 40U);
  }
}

TEST(Nsga2Test, ConstraintsBoundTheFront) {
  // BNH: both constraints cut into the plane of x and y.
  const Function bnh = [](const std::vector<double>& at) {
    const double x = at[0];
    const double y = at[1];
    const double first = (x - 5) * (x - 5) + y * y - 25;
    const double second = 7.7 - (x - 8) * (x - 8) - (y + 3) * (y + 3);
    return Outcome{.values = {4 * x * x + 4 * y * y, (x - 5) * (x - 5) + (y - 5) * (y - 5)},
                   .violation = std::max(first, 0.0) + std::max(second, 0.0)};
  };
  const std::vector<Space> spaces = {Space::continuous(0, 5), Space::continuous(0, 3)};
  const ParetoFront front =
      front_of(Sampler::nsga2(spaces, {.directions = kBothSmaller, .seed = 5}), bnh, 2000);
  // 5243 to (140, 50) with an infinite number of points.
  EXPECT_GT(front.hypervolume({140, 50}), 5150);
}

TEST(Nsga2Test, LeadsFromInfeasibleToFeasibleResults) {
  // One point in 10,000 is feasible.
  const Function narrow = [](const std::vector<double>& x) {
    const double far = std::max(std::abs(x[0] - 0.7), std::abs(x[1] - 0.2));
    return Outcome{.values = {x[0], -x[1]}, .violation = std::max(0.0, far - 0.005)};
  };
  const std::vector<Space> spaces(2, Space::continuous(0, 1));
  const ParetoFront front =
      front_of(Sampler::nsga2(spaces, {.directions = kBothSmaller, .seed = 5}), narrow, 1500);
  EXPECT_GE(front.members().size(), 1U);
}

TEST(Nsga2Test, DirectionsAreHonoured) {
  const std::vector<Direction> directions = {Direction::kMaximize, Direction::kMinimize};
  const Function function = [](const std::vector<double>& x) {
    return Outcome{.values = {x[0] + x[1], (x[0] - 1) * (x[0] - 1) + x[1] * 0.01}};
  };
  const ParetoFront front =
      front_of(Sampler::nsga2(std::vector<Space>(2, Space::continuous(0, 10)),
                              {.directions = directions, .population_size = 20, .seed = 1}),
               function, 1500, directions);
  double largest = 0;
  double smallest = 100;
  for (const ParetoFront::Member& member : front.members()) {
    largest = std::max(largest, member.values[0]);
    smallest = std::min(smallest, member.values[1]);
  }
  EXPECT_GT(largest, 19.5);
  EXPECT_LT(smallest, 0.02);
}

TEST(Nsga2Test, OneObjectiveWithStepsAndAlternatives) {
  const std::vector<Space> spaces = {Space::separate(0, 50, 1), Space::fixed(5),
                                     Space::continuous(-1, 1), Space::separate(3, 3, 1),
                                     Space::fixed(1)};
  std::set<double> alternatives;
  const Function function = [&](const std::vector<double>& x) {
    EXPECT_EQ(x[0], std::round(x[0]));
    EXPECT_EQ(x[3], 3);
    EXPECT_EQ(x[4], 0);
    alternatives.insert(x[1]);
    return Outcome{.values = {std::abs(x[0] - 37) + (x[1] == 3 ? 0 : 1) + x[2] * x[2]}};
  };
  const std::vector<Direction> directions = {Direction::kMinimize};
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const ParetoFront front =
        front_of(Sampler::nsga2(spaces, {.directions = directions, .seed = seed}), function, 1500,
                 directions);
    EXPECT_LT(front.members().front().values[0], 1e-3);
  }
  EXPECT_THAT(alternatives, testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST(Nsga2Test, NoPointComesTwiceWhileOthersAreLeft) {
  Sampler sampler = Sampler::nsga2({Space::fixed(20), Space::separate(0, 9, 1)},
                                   {.directions = kBothSmaller, .population_size = 200, .seed = 2});
  std::set<std::vector<double>> seen;
  for (int i = 0; i < 120; ++i) {
    const Sample sample = sampler.ask().value();
    seen.insert(sample.values);
    sampler.tell(sample.id, {.values = {sample.values[0], -sample.values[1]}});
  }
  EXPECT_EQ(seen.size(), 120U);
}

TEST(Nsga2Test, TrialsMayEndInAnyOrderAndFail) {
  const std::vector<Space> spaces(6, Space::continuous(0, 1));
  Sampler sampler = Sampler::nsga2(spaces, {.directions = kBothSmaller, .seed = 9});
  ParetoFront front(kBothSmaller);
  std::deque<Sample> asked;
  for (int i = 0; i < 3000; ++i) {
    while (asked.size() < 24) asked.push_back(sampler.ask().value());
    const bool newest = i % 3 == 0;
    const Sample ended = newest ? asked.back() : asked.front();
    newest ? asked.pop_back() : asked.pop_front();
    if (i % 10 == 0) {
      sampler.tell(ended.id, TrialState::kFail);
      continue;
    }
    const Outcome outcome = zdt1(ended.values);
    front.insert(ended.id, outcome.values);
    sampler.tell(ended.id, outcome);
  }
  EXPECT_GT(front.hypervolume({1.1, 1.1}), 0.84);
}

TEST(Nsga2Test, WrongOptionsAndValuesAreRefused) {
  const std::vector<Space> spaces(2, Space::continuous(0, 1));
  EXPECT_THROW(Sampler::nsga2(spaces, {}), UsageError);
  EXPECT_THROW(Sampler::nsga2(spaces, {.directions = kBothSmaller, .population_size = 1}),
               UsageError);
  EXPECT_THROW(Sampler::nsga2(spaces, {.directions = kBothSmaller, .crossover_probability = 2}),
               UsageError);
  EXPECT_THROW(Sampler::nsga2(spaces, {.directions = kBothSmaller, .mutation_probability = -1}),
               UsageError);
  EXPECT_THROW(Sampler::nsga2(spaces, {.directions = kBothSmaller, .mutation_index = std::nan("")}),
               UsageError);
  Sampler sampler = Sampler::nsga2(spaces, {.directions = kBothSmaller});
  EXPECT_EQ(sampler.objectives(), 2U);
  const std::uint64_t id = sampler.ask()->id;
  EXPECT_THROW(sampler.tell(id, TrialState::kOk, 1), UsageError);
  sampler.tell(id, {.values = {1, std::nan("")}});  // a failure
  EXPECT_EQ(sampler.pending(), 0U);
}

}  // namespace
}  // namespace divisi::tune
