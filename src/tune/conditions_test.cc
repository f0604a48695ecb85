// Spaces that depend on others, in every algorithm; Sobol points; the automatic choice.
#include "divisi/error.h"
#include "divisi/sampler.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

namespace divisi::tune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNone = -7;  // stands for NaN, which differs from itself

std::vector<double> plain(std::vector<double> values) {
  for (double& value : values) value = std::isnan(value) ? kNone : value;
  return values;
}

std::vector<std::vector<double>> all_of(Sampler sampler) {
  std::vector<std::vector<double>> points;
  while (const std::optional<Sample> sample = sampler.ask()) {
    points.push_back(plain(sample->values));
    sampler.tell(sample->id, TrialState::kOk, points.back()[0]);
  }
  return points;
}

// An inner choice that is there with alternative 1 of the outer one, and numbers that depend on
// both; the outer one stands last.
SearchSpace nested() {
  return SearchSpace(
      {Space::fixed(2), Space::continuous(0, 1), Space::separate(1, 3, 1), Space::fixed(2)},
      {{.dimension = 0, .parent = 3, .indices = {1}},
       {.dimension = 1, .parent = 0, .indices = {0}},
       {.dimension = 2, .parent = 3, .indices = {0}}});
}

void expect_right(const std::vector<double>& point) {
  EXPECT_EQ(point[0] == kNone, point[3] != 1);
  EXPECT_EQ(point[1] == kNone, point[0] != 0);
  EXPECT_EQ(point[2] == kNone, point[3] != 0);
}

TEST(ConditionTest, EveryAlgorithmGivesActiveValuesOnly) {
  const std::map<std::string, std::function<Sampler()>> searches{
      {"grid", [] { return Sampler::grid(nested(), {.max_steps = 40}); }},
      {"random",
       [] {
         return Sampler::random(nested(),
                                {.max_steps = 40, .words = python_random(std::uint64_t{1})});
       }},
      {"bayes", [] { return Sampler::bayes(nested(), {.max_steps = 30, .seed = 1}); }},
      {"tpe", [] { return Sampler::tpe(nested(), {.max_steps = 40, .seed = 1}); }},
      {"qmc", [] { return Sampler::qmc(nested(), {.max_steps = 40, .seed = 1}); }},
  };
  for (const auto& [name, make] : searches) {
    SCOPED_TRACE(name);
    std::set<std::pair<double, double>> branches;
    for (const std::vector<double>& point : all_of(make())) {
      expect_right(point);
      branches.insert({point[3], point[0]});
    }
    EXPECT_EQ(branches.size(), 3U);
  }
}

TEST(ConditionTest, AGridEnumeratesEachBranchOnce) {
  const SearchSpace space({Space::fixed(2), Space::separate(0, 2, 1), Space::fixed(2)},
                          {{.dimension = 1, .parent = 0, .indices = {0}},
                           {.dimension = 2, .parent = 0, .indices = {1}}});
  EXPECT_THAT(
      all_of(Sampler::grid(space, {})),
      ElementsAre(ElementsAre(0, 0, kNone), ElementsAre(0, 1, kNone), ElementsAre(0, 2, kNone),
                  ElementsAre(1, kNone, 0), ElementsAre(1, kNone, 1)));
}

TEST(ConditionTest, BranchesOfAGridShareTheBudget) {
  const SearchSpace space({Space::fixed(2), Space::continuous(0, 1), Space::continuous(0, 1)},
                          {{.dimension = 2, .parent = 0, .indices = {1}}});
  std::map<double, int> count;
  for (const std::vector<double>& point : all_of(Sampler::grid(space, {.max_steps = 18}))) {
    ++count[point[0]];
  }
  EXPECT_EQ(count[0], 9);
  EXPECT_EQ(count[1], 9);
  EXPECT_THROW(Sampler::grid(space, {.max_steps = 1, .strict_budget = true}), UsageError);
}

TEST(ConditionTest, AFiniteRandomSearchGivesEachPointOnce) {
  const SearchSpace space(
      {Space::fixed(3), Space::separate(0, 9, 1), Space::fixed(4), Space::separate(0, 1, 1)},
      {{.dimension = 1, .parent = 0, .indices = {0}},
       {.dimension = 2, .parent = 0, .indices = {1, 2}}});
  const auto points = all_of(Sampler::random(space, {.words = python_random(std::uint64_t{5})}));
  EXPECT_EQ(points.size(), 20U + 8U + 8U);
  EXPECT_EQ(std::set<std::vector<double>>(points.begin(), points.end()).size(), points.size());
}

TEST(ConditionTest, SeveralConditionsOfASpaceMustAllHold) {
  const SearchSpace space({Space::fixed(2), Space::fixed(2), Space::separate(5, 5, 1)},
                          {{.dimension = 2, .parent = 0, .indices = {1}},
                           {.dimension = 2, .parent = 1, .indices = {0}}});
  EXPECT_THAT(all_of(Sampler::grid(space, {})),
              ElementsAre(ElementsAre(0, 0, kNone), ElementsAre(0, 1, kNone), ElementsAre(1, 0, 5),
                          ElementsAre(1, 1, kNone)));
}

// The better branch has a number of its own to find.
double branch_value(const std::vector<double>& x) {
  return x[0] == 0 ? 0.5 + std::abs(x[1] - 0.2) : std::abs(x[2] - 0.8);
}

TEST(ConditionTest, ModelsSearchWithinTheBetterBranch) {
  const SearchSpace space({Space::fixed(2), Space::continuous(0, 1), Space::continuous(0, 1)},
                          {{.dimension = 1, .parent = 0, .indices = {0}},
                           {.dimension = 2, .parent = 0, .indices = {1}}});
  const auto best_of = [](Sampler sampler) {
    double best = 1;
    while (const std::optional<Sample> sample = sampler.ask()) {
      best = std::min(best, branch_value(sample->values));
      sampler.tell(sample->id, TrialState::kOk, branch_value(sample->values));
    }
    return best;
  };
  EXPECT_LT(best_of(Sampler::tpe(space, {.max_steps = 80, .seed = 1})), 0.02);
  EXPECT_LT(best_of(Sampler::bayes(space, {.max_steps = 40, .seed = 1})), 0.01);
}

TEST(ConditionTest, WrongConditionsAreRefused) {
  const std::vector<Space> spaces{Space::fixed(2), Space::fixed(2), Space::continuous(0, 1)};
  const auto message = [&](std::vector<Condition> conditions) -> std::string {
    try {
      Sampler::random(SearchSpace(spaces, std::move(conditions)), {});
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message({{.dimension = 3, .parent = 0, .indices = {0}}}), HasSubstr("space 3"));
  EXPECT_THAT(message({{.dimension = 0, .parent = 9, .indices = {0}}}), HasSubstr("space 9"));
  EXPECT_THAT(message({{.dimension = 0, .parent = 2, .indices = {0}}}),
              HasSubstr("not one of alternatives"));
  EXPECT_THAT(message({{.dimension = 2, .parent = 0, .indices = {}}}),
              HasSubstr("no alternative makes it active"));
  EXPECT_THAT(message({{.dimension = 2, .parent = 0, .indices = {2}}}), HasSubstr("alternative 2"));
  EXPECT_THAT(message({{.dimension = 2, .parent = 0, .indices = {-1}}}),
              HasSubstr("alternative -1"));
  EXPECT_THAT(message({{.dimension = 1, .parent = 1, .indices = {0}}}),
              HasSubstr("depends on itself"));
  EXPECT_THAT(message({{.dimension = 0, .parent = 1, .indices = {0}},
                       {.dimension = 1, .parent = 0, .indices = {0}}}),
              HasSubstr("depends on itself"));
}

TEST(QmcTest, PointsAreEvenAndDependOnTheSeed) {
  const auto points = [](std::uint64_t seed) {
    return all_of(Sampler::qmc({Space::continuous(0, 1), Space::continuous(0, 1)},
                               {.max_steps = 256, .seed = seed}));
  };
  const auto first = points(1);
  EXPECT_EQ(first, points(1));
  EXPECT_NE(first, points(2));
  std::set<std::pair<int, int>> cells;  // 16 x 16: a net has one point in each
  for (const auto& point : first) {
    cells.insert({static_cast<int>(point[0] * 16), static_cast<int>(point[1] * 16)});
  }
  EXPECT_EQ(cells.size(), 256U);
}

TEST(QmcTest, AFiniteSearchGivesAllPointsBeforeOneComesAgain) {
  const auto points =
      all_of(Sampler::qmc({Space::fixed(3), Space::separate(0, 6, 1)}, {.max_steps = 24}));
  EXPECT_EQ(points.size(), 24U);
  EXPECT_EQ(std::set<std::vector<double>>(points.begin(), points.end()).size(), 21U);
}

TEST(ChooseTest, ByBudgetAndSpaces) {
  const Space unit = Space::continuous(0, 1);
  const auto name = [](const SearchSpace& space, std::optional<std::int64_t> steps) {
    return choose_algorithm(space, steps).name;
  };
  EXPECT_EQ(name({Space::fixed(3), Space::separate(1, 4, 1)}, 12), "grid");
  EXPECT_EQ(name({Space::fixed(3), Space::separate(1, 4, 1)}, 11), "bayes");
  EXPECT_EQ(name({unit, unit}, 50), "bayes");
  EXPECT_EQ(name({unit, unit}, 251), "tpe");
  EXPECT_EQ(name({unit, unit}, std::nullopt), "tpe");
  EXPECT_EQ(name(std::vector<Space>(21, unit), 50), "tpe");
  EXPECT_EQ(name({unit, Space::fixed(13)}, 50), "tpe");
  // Of branches their sum counts: 3 + 1 points.
  const SearchSpace branches({Space::fixed(2), Space::separate(1, 3, 1)},
                             {{.dimension = 1, .parent = 0, .indices = {0}}});
  EXPECT_EQ(name(branches, 4), "grid");
  EXPECT_EQ(name(branches, 3), "bayes");
}

}  // namespace
}  // namespace divisi::tune
