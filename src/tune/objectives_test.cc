// Several targets and constraints: conditions as violations, the order of trials, the Tuner.
#include "divisi/error.h"
#include "divisi/tune.h"
#include "tune/constraint.h"

#include <gmock/gmock.h>

#include <cmath>

namespace divisi::tune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

double violation(const Expr& condition, const Value& returned) {
  return violation_of(condition, {.config = {}, .returned = returned, .metrics = {}}).value();
}

std::string refusal(const Expr& condition, const Value& returned) {
  const Record record{.config = {}, .returned = returned, .metrics = {}};
  const Result<double> computed = violation_of(condition, record);
  return computed ? "" : computed.error().message();
}

std::string thrown_by(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(ConstraintTest, AComparisonIsViolatedByTheDistanceOfItsSides) {
  EXPECT_EQ(violation(R <= 3, 3), 0);
  EXPECT_EQ(violation(R <= 3, 5), 2);
  EXPECT_EQ(violation(R >= 3, 1), 2);
  EXPECT_EQ(violation(2 > R, 0), 0);
  EXPECT_EQ(violation(R == 3, 7), 4);
  EXPECT_EQ(violation(R != 3, 3), 1);
  EXPECT_GT(violation(R < 3, 3), 0);
  EXPECT_LT(violation(R < 3, 3), 1e-10);
  EXPECT_EQ(violation(R == "adam", "sgd"), 1);
  EXPECT_EQ(violation(R == "adam", "adam"), 0);
}

TEST(ConstraintTest, NumbersAboveZeroAndWhatIsFalseAreViolations) {
  EXPECT_EQ(violation(R - 3, 5), 2);
  EXPECT_EQ(violation(R - 3, 1), 0);
  EXPECT_EQ(violation(R, true), 0);
  EXPECT_EQ(violation(R, false), 1);
  EXPECT_EQ(violation(~(R > 3), 5), 1);
  EXPECT_EQ(violation((R <= 3) & (R <= 4), 6), 5);
  EXPECT_EQ(violation((R <= 3) | (R >= 10), 6), 3);
  EXPECT_THAT(refusal(R, "text"), HasSubstr("R"));
  EXPECT_THAT(refusal(R - 1, std::nan("")), HasSubstr("not a number"));
  EXPECT_THAT(refusal(R <= 1, std::nan("")), HasSubstr("not a number"));
  EXPECT_THAT(refusal(R["a"] <= 1, 3), HasSubstr("R['a']"));
}

TEST(RankListTest, FeasibleTrialsComeFirst) {
  RankList ranking(10, std::vector{Direction::kMaximize, Direction::kMinimize});
  const auto add = [&](std::uint64_t id, std::vector<double> values, double violation) {
    Trial trial;
    trial.id = id;
    trial.value = values.front();
    trial.values = std::move(values);
    trial.violation = violation;
    return ranking.insert(trial);
  };
  EXPECT_TRUE(add(1, {9, 0}, 2));
  EXPECT_TRUE(add(2, {1, 0}, 1));
  EXPECT_TRUE(add(3, {1, 5}, 0));
  EXPECT_FALSE(add(4, {100, 0}, 3));
  EXPECT_TRUE(add(5, {1, 4}, 0));  // of equal first targets the second decides
  EXPECT_FALSE(add(6, {std::nan(""), 4}, 0));
  EXPECT_FALSE(add(7, {1, std::nan("")}, 0));
  std::vector<std::uint64_t> order;
  for (const Trial& trial : ranking.trials()) order.push_back(trial.id);
  EXPECT_THAT(order, ElementsAre(5, 3, 2, 1, 4, 7, 6));
}

Value square(const Value& config) {
  const auto x = static_cast<double>(config.at("x").as<std::int64_t>());
  return Value(Value::Map{{Value("gain"), Value(x)}, {Value("cost"), Value((x - 2) * (x - 2))}});
}

TEST(TunerObjectivesTest, ReturnsTheBestByTheFirstTargetAndTheFront) {
  Tuner tuner = tune(square);
  tuner.grid()
      .max_workers(1)
      .rank(2)
      .maximize(R["gain"], "gain")
      .also_minimize(R["cost"])
      .spaces({{"x", randint(0, 5)}});
  const std::optional<Best> best = tuner.run();
  ASSERT_TRUE(best);
  EXPECT_EQ(best->config.at("x"), Value(5));
  std::vector<std::uint64_t> front;
  for (const Trial& trial : tuner.pareto()) front.push_back(trial.id);
  EXPECT_THAT(front, ElementsAre(3, 4, 5, 6));  // 0 and 1 cost more than 2 and gain less
  EXPECT_EQ(tuner.table(),
            "+-----+-----+--------+------------+\n"
            "|   # |   x |   gain |   target_2 |\n"
            "|-----+-----+--------+------------|\n"
            "|   6 |   5 |      5 |          9 |\n"
            "|   5 |   4 |      4 |          4 |\n"
            "+-----+-----+--------+------------+");
}

TEST(TunerObjectivesTest, ConstraintsExcludeResults) {
  Tuner tuner = tune(square);
  tuner.grid()
      .max_workers(1)
      .maximize(R["gain"])
      .subject_to(R["cost"] <= 4)
      .subject_to(C["x"] - 3)
      .spaces({{"x", randint(0, 5)}});
  EXPECT_EQ(tuner.run().value().config.at("x"), Value(3));
  ASSERT_EQ(tuner.pareto().size(), 1U);
  EXPECT_EQ(tuner.pareto()[0].violation, 0);
  EXPECT_THAT(tuner.table(), HasSubstr("violation"));

  Tuner impossible = tune(square);
  impossible.grid().maximize(R["gain"]).subject_to(R["cost"] < 0).spaces({{"x", randint(0, 5)}});
  EXPECT_EQ(impossible.run(), std::nullopt);
  EXPECT_TRUE(impossible.pareto().empty());
}

TEST(TunerObjectivesTest, AConstraintWithoutAValueFailsTheTrial) {
  std::vector<std::string> errors;
  Tuner tuner = tune(square);
  tuner.grid().max_workers(1).maximize(R["gain"]).subject_to(R["memory"] <= 1);
  tuner.spaces({{"x", randint(0, 0)}}).on_trial([&](const Trial& trial) {
    errors.push_back(trial.error);
  });
  EXPECT_EQ(tuner.run(), std::nullopt);
  EXPECT_THAT(errors, ElementsAre(HasSubstr("R['memory']")));
}

TEST(TunerObjectivesTest, SearchesWithNsga2AndCmaes) {
  const auto objective = [](const Value& config) {
    const double x = config.at("x").as<double>();
    const double y = config.at("y").as<double>();
    return Value(Value::Map{{Value("a"), Value(x * x + y * y)},
                            {Value("b"), Value((x - 2) * (x - 2) + y * y)}});
  };
  const Structure spaces{{"x", uniform(-5, 5)}, {"y", uniform(-5, 5)}};
  Tuner several = tune(objective);
  several.nsga2({.population_size = 20, .seed = 1})
      .max_workers(1)
      .max_steps(600)
      .minimize(R["a"])
      .also_minimize(R["b"])
      .subject_to(C["x"] >= 0.5)
      .spaces(spaces);
  const double best = several.run().value().returned.at("a").as<double>();
  EXPECT_GE(best, 0.25);
  EXPECT_LT(best, 0.3);
  EXPECT_GT(several.pareto().size(), 15U);

  Tuner one = tune(objective);
  one.cmaes({.seed = 1}).max_workers(1).max_steps(600).minimize(R["b"]).spaces(spaces);
  EXPECT_LT(one.run().value().returned.at("b").as<double>(), 1e-6);
}

TEST(TunerObjectivesTest, BayesLeavesInfeasiblePlaces) {
  const auto objective = [](const Value& config) { return config.at("x"); };
  int infeasible = 0;
  Tuner tuner = tune(objective);
  tuner.bayes({.seed = 3}).max_workers(1).max_steps(30).maximize(R).subject_to(R <= 0.5);
  tuner.spaces({{"x", uniform(0, 1)}}).on_trial([&](const Trial& trial) {
    infeasible += trial.violation > 0 ? 1 : 0;
  });
  const double best = tuner.run().value().returned.as<double>();
  EXPECT_LE(best, 0.5);
  EXPECT_GT(best, 0.45);
  EXPECT_LT(infeasible, 22);
}

TEST(TunerObjectivesTest, WrongCallsAreRefused) {
  const Structure spaces{{"x", randint(0, 5)}};
  EXPECT_THAT(thrown_by([] { tune(square).grid().also_minimize(R); }), HasSubstr("first"));
  EXPECT_THAT(thrown_by([] { tune(square).grid().minimize(R).minimize(R); }),
              HasSubstr("also_minimize"));
  for (const bool bayes : {true, false}) {
    Tuner tuner = tune(square);
    bayes ? tuner.bayes() : tuner.cmaes();
    tuner.max_steps(5).minimize(R["cost"]).also_maximize(R["gain"]).spaces(spaces);
    EXPECT_THAT(thrown_by([&] { tuner.run(); }), HasSubstr("nsga2"));
  }
}

}  // namespace
}  // namespace divisi::tune
