#include "divisi/error.h"
#include "divisi/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>

namespace divisi::tune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Value map(std::vector<std::pair<std::string, Value>> entries) {
  Value::Map made;
  for (auto& [key, value] : entries) made.emplace_back(Value(key), std::move(value));
  return Value(std::move(made));
}

Value list(std::vector<Value> items) {
  return Value(Value::Array(std::move(items)));
}

Value on(const Expr& expr, Value returned) {
  return expr.evaluate({.config = map({}), .returned = std::move(returned), .metrics = map({})});
}

Value product(const Value& config) {
  const double result = config.at("x").as<double>() * config.at("y").as<double>();
  return map({{"result", Value(result)}});
}

TEST(HyperValueTest, H008_ArithmeticFollowsPython) {
  const HyperValue value = uniform(0.4, 2.2);
  EXPECT_EQ(pow(2, value + 2).value(1), Value(8.0));
  EXPECT_EQ(pow(2, value + 2).value(2.2), Value(18.37917367995256));
  EXPECT_EQ(value.then("%", Value(22), true).value(5), Value(2.0));
  EXPECT_EQ(value.then("//", Value(2), true).value(5), Value(0.0));
  EXPECT_EQ((-(3 - value) / 2).value(1), Value(-1.0));
  EXPECT_EQ(randint(1, 9).then("%", Value(-4)).value(6), Value(-2));
  EXPECT_EQ(randint(1, 9).then("//", Value(-4)).value(6), Value(-2));
  EXPECT_TRUE(randint(1, 9).then("*", Value(2)).value(3).holds<std::int64_t>());
  EXPECT_EQ((value * 2).space(), value.space());
  EXPECT_THROW((1 / value).value(0), UsageError);
}

TEST(HyperValueTest, H006_ConstructorsCheckTheirArguments) {
  EXPECT_EQ(randint(10.1, 20.2).space(), Space::separate(11, 20, 1));
  EXPECT_EQ(randint(10.1, 20.2).value(11.9), Value(11));
  EXPECT_EQ(choice({"a", 2, 3.5}).value(0), Value("a"));
  EXPECT_THROW(choice({}), UsageError);
  EXPECT_THROW(randint(1.2, 1.8), UsageError);
  EXPECT_THROW(loguniform(0, 1), UsageError);
  EXPECT_EQ(loguniform(1e-5, 1e-1).value(std::log(1e-5)), Value(1e-5));
}

TEST(StructureTest, H009_FlattenAndRebuild) {
  const Structure structure{{"values",
                             {{"a", uniform(0, 5)},
                              {"b", Structure::list({uniform(1, 5), uniform(-9, 5)})},
                              {"e", Value(12.7)}}},
                            {"need", choice({"a"})}};
  const std::vector<HyperValue> values = structure.flatten();
  ASSERT_EQ(values.size(), 4U);
  EXPECT_EQ(values[0].space(), Space::fixed(1));
  EXPECT_EQ(values[3].space(), Space::continuous(-9, 5));
  EXPECT_THAT(structure.names(), ElementsAre("values.a", "values.b.0", "values.b.1", "need"));
  const Value config = structure.config({0, 2.0, 3.5, -4.75});
  EXPECT_EQ(config.at("values").at("b"), list({3.5, -4.75}));
  EXPECT_EQ(config.at("values").at("e"), Value(12.7));
  EXPECT_EQ(config.at("need"), Value("a"));
  EXPECT_THAT(structure.variables(config),
              ElementsAre(Value(2.0), Value(3.5), Value(-4.75), Value("a")));
  EXPECT_THROW(structure.config({0}), UsageError);
  EXPECT_THROW(Structure::map({{"a", Value(1)}, {"a", Value(2)}}), UsageError);
}

TEST(ExprTest, H011_ItemsAndWhatIsMissing) {
  EXPECT_EQ(on(R, list({1})), list({1}));
  EXPECT_EQ(on(R["a"], map({{"a", 5}})), Value(5));
  EXPECT_EQ(on(R[1], list({3, 4})), Value(4));
  EXPECT_EQ(on(R[-1], list({3, 4})), Value(4));
  EXPECT_THROW(on(R["b"], map({{"a", 5}})), UsageError);
  EXPECT_THROW(on(R[2], list({3, 4})), UsageError);
  EXPECT_THROW(on(R["a"], Value(3)), UsageError);
}

TEST(ExprTest, H014_ComparisonsAndH015_Logic) {
  for (const int x : {0, 1, 2}) {
    EXPECT_EQ(on(R == 1, x), Value(x == 1));
    EXPECT_EQ(on(R != 1, x), Value(x != 1));
    EXPECT_EQ(on(R > 1, x), Value(x > 1));
    EXPECT_EQ(on(R >= 1, x), Value(x >= 1));
    EXPECT_EQ(on(R < 1, x), Value(x < 1));
    EXPECT_EQ(on(R <= 1, x), Value(x <= 1));
    EXPECT_EQ(on((R > 0) & (R < 2), x), Value(x == 1));
    EXPECT_EQ(on((R < 1) | (R > 1), x), Value(x != 1));
    EXPECT_EQ(on(~(R > 1), x), Value(x <= 1));
  }
  EXPECT_EQ(on(R > 1, Value(std::nan(""))), Value(false));
}

TEST(ExprTest, H017_Statistics) {
  const Value five = list({1, 2, 3, 4, 5});
  EXPECT_EQ(on(R.method("sum"), five), Value(15));
  EXPECT_EQ(on(R.method("mean"), five), Value(3.0));
  EXPECT_NEAR(on(R.method("stdev"), five).as<double>(), 1.5811388300841898, 1e-15);
  EXPECT_EQ(on(R.method("median"), list({4, 1})), Value(2.5));
  EXPECT_EQ(on(R.method("max") - R.method("min"), five), Value(4));
  EXPECT_EQ(on(R.method("len"), "abcdefg"), Value(7));
  EXPECT_EQ(on(R.method("abs"), -1), Value(1));
  EXPECT_EQ(on(R.method("last"), five), Value(5));
  EXPECT_THROW(on(R.method("mean"), list({})), UsageError);
  EXPECT_THROW(on(R.method("stdev"), list({1})), UsageError);
  EXPECT_THROW(on(R.method("mean"), list({"a"})), UsageError);
  EXPECT_THROW(R.method("nothing"), UsageError);
}

TEST(ExprTest, H019_ThreeRoots) {
  const Record record{.config = map({{"b", list({2, 3})}}),
                      .returned = map({{"bb", list({5, 6})}}),
                      .metrics = map({{"time", 1.5}})};
  EXPECT_EQ((C["b"][0] * R["bb"][1]).evaluate(record), Value(12));
  EXPECT_EQ(M["time"].evaluate(record), Value(1.5));
  const Expr whole = Expr::function("f", [](const Record& given) { return given.metrics; });
  EXPECT_EQ(whole["time"].evaluate(record), Value(1.5));
}

TEST(ExprTest, IntegersBeyond64BitsBecomeFloating) {
  const Value most(std::numeric_limits<std::int64_t>::max());
  EXPECT_DOUBLE_EQ(on(R + 1, most).as<double>(), 9223372036854775808.0);
  EXPECT_EQ(on(Expr::binary("**", R, 3), -2), Value(-8));
  EXPECT_DOUBLE_EQ(on(Expr::binary("**", R, 100), 2).as<double>(), std::pow(2.0, 100));
  EXPECT_EQ(
      on(Expr::binary("//", R, -1), Value(std::numeric_limits<std::int64_t>::min())).as<double>(),
      9223372036854775808.0);
  EXPECT_THROW(on(1 / R, 0), UsageError);
  EXPECT_THROW(on(R + 1, "a"), UsageError);
}

TEST(ExprTest, TextAndBack) {
  for (const char* text :
       {"R['eval_value']", "C['b'][0] * R['bb'][1]", "(R['a'] > 1) & (R['b'] > 2)", "-R ** 2",
        "(-R) ** 2", "2 ** (R + 1)", "1 - (2 - R)", "R['x'].abs() + M['time']",
        "~(R > 1) | (C['a'] == 'b')", "where(R > 1, R, 0)", "R % -1", "log(R) + 1.5", "R // 2 / 3",
        "R['it\\'s'] == None"}) {
    EXPECT_EQ(Expr::parse(text).text(), text);
    EXPECT_TRUE(Expr::parse(text).same_as(Expr::parse(Expr::parse(text).text())));
    EXPECT_FALSE(Expr::parse(text).same_as(R["other"]));
  }
  EXPECT_TRUE(Expr::parse("R['a']*2>=1").same_as(R["a"] * 2 >= 1));
}

TEST(ExprTest, BadTextIsUsageErrorWithPlace) {
  const std::string deep(5000, '(');
  const std::string signs(5000, '-');
  for (const std::string& text :
       {std::string(""), std::string("R["), std::string("R['a"), std::string("x"),
        std::string("R.f()"), std::string("1 < R < 3"), std::string("R['a'] > 1 & R['b'] > 2"),
        std::string("R R"), std::string("where(R, 1)"), std::string("R and M"), deep, signs,
        std::string(20000, '1')}) {
    EXPECT_THROW(Expr::parse(text), UsageError) << text.substr(0, 40);
  }
  try {
    Expr::parse("R['a'] > 1 & R['b'] > 2");
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("parentheses"));
  }
}

TEST(TunerTest, H028_GuideStructureInOrder) {
  std::vector<double> starts;
  const auto objective = [&](const Value& config) {
    starts.push_back(config.at("policy").at("other").at("eps").at("start").as<double>());
    return map({{"eval_value", Value(100 * starts.back())}});
  };
  const std::optional<Best> best =
      tune(objective)
          .grid()
          .max_steps(5)
          .max_workers(1)
          .maximize(R["eval_value"])
          .spaces({{"policy", {{"other", {{"eps", {{"start", uniform(0.5, 1)}}}}}}}})
          .run();
  EXPECT_THAT(starts, ElementsAre(0.5, 0.625, 0.75, 0.875, 1.0));
  ASSERT_TRUE(best);
  EXPECT_EQ(best->trial_id, 5U);
  EXPECT_EQ(best->returned.at("eval_value"), Value(100.0));
  EXPECT_GE(best->metrics.at("time").as<double>(), 0);
}

TEST(TunerTest, H032_SameSeedSameBestWithManyWorkers) {
  std::optional<double> first;
  for (int i = 0; i < 6; ++i) {
    const std::optional<Best> best =
        tune(product)
            .random(12)
            .max_steps(1000)
            .max_workers(20)
            .maximize(R["result"])
            .spaces({{"x", uniform(-2, 8)}, {"y", quniform(-1.6, 7.8, 0.2)}})
            .run();
    const double value = best.value().returned.at("result").as<double>();
    EXPECT_EQ(first.value_or(value), value);
    first = value;
  }
}

TEST(TunerTest, BayesFindsTheCorner) {
  const std::optional<Best> best =
      tune(product)
          .bayes({.seed = 1})
          .max_steps(40)
          .max_workers(2)
          .maximize(R["result"])
          .stop_when(R["result"] >= 3290)
          .spaces({{"x", uniform(-55, 125)}, {"y", quniform(-60, 20, 10)}})
          .run();
  EXPECT_GE(best.value().returned.at("result").as<double>(), 2900);
}

TEST(TunerTest, TpeQmcAndAutomaticSearch) {
  const auto best_with = [](const std::function<Tuner&(Tuner&)>& algorithm) {
    Tuner search(product);
    algorithm(search).max_steps(60).max_workers(1).maximize(R["result"]);
    search.spaces({{"x", uniform(-1, 2)}, {"y", uniform(-1, 2)}});
    return search.run()->returned.at("result").as<double>();
  };
  EXPECT_GT(best_with([](Tuner& one) -> Tuner& { return one.tpe({.seed = 1}); }), 3.5);
  EXPECT_GT(best_with([](Tuner& one) -> Tuner& { return one.automatic(1); }), 3.99);
  EXPECT_GT(best_with([](Tuner& one) -> Tuner& { return one.qmc({.seed = 1}); }), 2.5);
  // Twelve points fit into sixty steps: the grid, and no more trials than points.
  int calls = 0;
  Tuner few([&](const Value&) { return Value(++calls); });
  few.automatic().max_steps(60).max_workers(1).maximize(R);
  few.spaces({{"a", choice({1, 2, 3})}, {"b", randint(1, 4)}}).run();
  EXPECT_EQ(calls, 12);
}

TEST(TunerTest, H056_OneTargetAndAllParts) {
  const Structure spaces{{"x", uniform(0, 1)}};
  EXPECT_THROW(tune(product).grid().maximize(R).minimize(R), UsageError);
  EXPECT_THROW(tune(product).grid().spaces(spaces).run(), UsageError);
  EXPECT_THROW(tune(product).grid().maximize(R).run(), UsageError);
  EXPECT_THROW(tune(product).maximize(R).spaces(spaces).run(), UsageError);
  EXPECT_THROW(tune(product).grid().maximize(R).spaces(spaces).run(), UsageError);  // no max_steps
  EXPECT_THROW(tune(Objective()), UsageError);
  EXPECT_THROW(tune(product).max_workers(0), UsageError);
  EXPECT_THROW(tune(product).max_tries(0), UsageError);
  EXPECT_THROW(tune(product).rank(0), UsageError);
}

TEST(TunerTest, H058_FailuresAndSkipsAreCounted) {
  int ok = 0;
  int failed = 0;
  int skipped = 0;
  const auto objective = [](const Value& config) -> Value {
    const auto a = config.at("a").as<std::int64_t>();
    if (a % 3 == 0) throw std::runtime_error("three");
    if (a % 7 == 0) throw Skip("seven");
    return Value((static_cast<double>(a) - 32.8) * (static_cast<double>(a) - 32.8));
  };
  Tuner tuner = tune(objective);
  tuner.grid().max_workers(3).minimize(R).spaces({{"a", randint(0, 39)}});
  tuner.on_trial([&](const Trial& trial) {
    ok += trial.state == TrialState::kOk ? 1 : 0;
    failed +=
        trial.state == TrialState::kFail && trial.tries == 3 && trial.error == "three" ? 1 : 0;
    skipped += trial.state == TrialState::kSkip && trial.tries == 1 ? 1 : 0;
  });
  const std::optional<Best> best = tuner.run();
  EXPECT_EQ(ok, 22);
  EXPECT_EQ(failed, 14);
  EXPECT_EQ(skipped, 4);
  EXPECT_EQ(best.value().config.at("a"), Value(32));
}

TEST(TunerTest, H059_NoTrialFollowsTheStopCondition) {
  std::vector<std::int64_t> calls;
  const auto objective = [&](const Value& config) {
    calls.push_back(config.at("a").as<std::int64_t>());
    const double distance = static_cast<double>(calls.back()) - 32.8;
    return Value(distance * distance);
  };
  const std::optional<Best> best = tune(objective)
                                       .grid()
                                       .max_workers(1)
                                       .minimize(R)
                                       .stop_when(R < 4)
                                       .spaces({{"a", randint(0, 99)}})
                                       .run();
  EXPECT_EQ(best.value().config.at("a"), Value(31));
  EXPECT_EQ(calls.size(), 32U);
}

TEST(TunerTest, H061_TriesUntilOneSucceeds) {
  for (const int tries : {3, 2}) {
    std::atomic<int> calls = 0;
    const auto objective = [&](const Value&) -> Value {
      if (++calls <= 2) throw std::runtime_error("not yet");
      return 1;
    };
    const bool found = tune(objective)
                           .grid()
                           .max_tries(tries)
                           .maximize(R)
                           .spaces({{"a", choice({1})}})
                           .run()
                           .has_value();
    EXPECT_EQ(found, tries == 3);
    EXPECT_EQ(calls, tries);
  }
}

TEST(TunerTest, H064_ListenerErrorEndsTheRun) {
  int calls = 0;
  Tuner tuner = tune([&](const Value&) { return Value(++calls); });
  tuner.grid().max_workers(1).maximize(R).spaces({{"a", randint(0, 9)}});
  tuner.on_trial([](const Trial&) { throw std::runtime_error("listener"); });
  EXPECT_THROW(tuner.run(), std::runtime_error);
  EXPECT_EQ(calls, 1);
}

TEST(TunerTest, H066_RankListAndTable) {
  RankList ranking(5, true);
  std::uint64_t id = 0;
  for (const double score : {99.0, 90.0, 95.0, std::nan(""), 80.0, 90.0, 90.0, 95.0, 80.0, 90.0}) {
    Trial trial;
    trial.id = ++id;
    trial.value = score;
    ranking.insert(trial);
  }
  std::vector<std::uint64_t> order;
  for (const Trial& trial : ranking.trials()) order.push_back(trial.id);
  EXPECT_THAT(order, ElementsAre(1, 3, 8, 2, 6));

  Tuner tuner = tune([](const Value& config) { return Value(config.at("x").as<double>() * 3); });
  tuner.grid()
      .max_steps(3)
      .max_workers(1)
      .rank(2)
      .maximize(R, "value")
      .concern(C["x"] * 2, "twice");
  tuner.spaces({{"x", uniform(0.5, 1)}}).run();
  EXPECT_EQ(tuner.table(),
            "+-----+------+---------+---------+\n"
            "|   # |    x |   value |   twice |\n"
            "|-----+------+---------+---------|\n"
            "|   3 | 1    |    3    |     2   |\n"
            "|   2 | 0.75 |    2.25 |     1.5 |\n"
            "+-----+------+---------+---------+");
}

TEST(TunerTest, TargetThatCannotBeComputedFailsTheTrial) {
  std::vector<std::string> errors;
  Tuner tuner = tune([](const Value& config) { return config; });
  tuner.grid().max_workers(1).maximize(R["missing"]).spaces({{"x", randint(0, 1)}});
  tuner.on_trial([&](const Trial& trial) { errors.push_back(trial.error); });
  EXPECT_EQ(tuner.run(), std::nullopt);
  EXPECT_THAT(errors, ElementsAre(HasSubstr("R['missing']"), HasSubstr("R['missing']")));
}

TEST(TunerTest, TimeAndPatienceEndASearch) {
  Tuner endless = tune([](const Value&) { return Value(1.0); });
  endless.random(1)
      .maximize(R)
      .spaces({{"x", uniform(0, 1)}})
      .timeout(std::chrono::milliseconds(50));
  EXPECT_TRUE(endless.run().has_value());
  int calls = 0;
  Tuner patient = tune([&](const Value&) {
    ++calls;
    return Value(1.0);
  });
  patient.random(1)
      .max_workers(1)
      .maximize(R)
      .spaces({{"x", uniform(0, 1)}})
      .no_improvement(5)
      .run();
  EXPECT_EQ(calls, 6);
}

}  // namespace
}  // namespace divisi::tune
