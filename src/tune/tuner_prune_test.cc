#include "divisi/error.h"
#include "divisi/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

namespace divisi::tune {
namespace {

// 100 learning curves that approach their level, 0 being the best, in an order without order.
Structure levels() {
  Value::Array all;
  for (int i = 1; i <= 100; ++i) all.emplace_back(static_cast<double>(i * 37 % 100) / 100);
  return {{"level", choice(std::move(all))}};
}

class Learner {
 public:
  Value operator()(const Value& config, TrialHandle& trial) const {
    const auto level = config.at("level").as<double>();
    for (std::int64_t step = 1; step <= 81; ++step) {
      ++*steps_;
      trial.report(step, level + (1 - level) * std::exp(-static_cast<double>(step) / 10));
      if (trial.should_prune()) throw Pruned{};
    }
    return Value(level);
  }

  int steps() const { return *steps_; }

 private:
  std::shared_ptr<std::atomic<int>> steps_ = std::make_shared<std::atomic<int>>(0);
};

TEST(TunerPruneTest, SavesTwoFifthsOfTheStepsAndKeepsTheBest) {
  const Learner learner;
  int pruned = 0;
  Tuner search = tune(learner);
  search.grid().max_workers(1).minimize(R).spaces(levels());
  search.prune(Pruner::successive_halving({.reduction_factor = 3}));
  search.on_trial([&](const Trial& trial) {
    if (trial.state != TrialState::kPruned) return;
    ++pruned;
    EXPECT_EQ(trial.error, "the trial was pruned");
    EXPECT_GT(trial.value, 0) << "its last report";
    EXPECT_EQ(trial.tries, 1) << "there is no retry";
  });
  EXPECT_EQ(search.run()->returned, Value(0.0));
  EXPECT_LT(learner.steps(), 100 * 81 * 6 / 10);
  EXPECT_GT(pruned, 60);
  const int once = learner.steps();
  search.run();
  EXPECT_EQ(learner.steps(), 2 * once) << "a second run knows of no trial";
}

TEST(TunerPruneTest, TheDirectionIsThatOfTheTarget) {
  const auto objective = [](const Value& config, TrialHandle& trial) {
    trial.report(0, config.at("x").as<double>());
    if (trial.should_prune()) throw Pruned{};
    return config.at("x");
  };
  Tuner search = tune(objective);
  search.grid().max_workers(1).maximize(R);
  search.spaces({{"x", choice({1.0, 2.0, 5.0, 0.0, 9.0})}});
  std::vector<std::uint64_t> pruned;
  search.prune(Pruner::median({.startup_trials = 3})).on_trial([&](const Trial& trial) {
    if (trial.state == TrialState::kPruned) pruned.push_back(trial.id);
  });
  EXPECT_EQ(search.run()->returned, Value(9.0));
  EXPECT_THAT(pruned, ::testing::ElementsAre(4));
}

TEST(TunerPruneTest, WithoutAPrunerNothingIsPruned) {
  const Learner learner;
  EXPECT_EQ(tune(learner).grid().max_workers(2).minimize(R).spaces(levels()).run()->returned,
            Value(0.0));
  EXPECT_EQ(learner.steps(), 100 * 81);
}

TEST(TunerPruneTest, ANewTryReportsFromTheBeginning) {
  std::vector<std::pair<int, bool>> seen;
  const auto objective = [&](const Value&, TrialHandle& trial) {
    trial.report(5 - trial.attempt(), trial.attempt() == 1 ? 100 : 0);
    seen.emplace_back(trial.attempt(), trial.should_prune());
    if (trial.attempt() == 1) throw std::runtime_error("once");
    return Value(1);
  };
  tune(objective)
      .grid()
      .max_workers(1)
      .minimize(R)
      .spaces({{"x", choice({1})}})
      .prune(Pruner::threshold({.upper = 10}))
      .run();
  EXPECT_THAT(seen, ::testing::ElementsAre(std::pair(1, true), std::pair(2, false)));
}

TEST(TunerPruneTest, WrongReportsAndObjectivesAreRefused) {
  TrialHandle trial(1, 1, nullptr);
  EXPECT_THROW(trial.report(-1, 0), UsageError);
  EXPECT_THROW(tune(ReportingObjective()), UsageError);
  EXPECT_THROW(tune(Objective()), UsageError);
}

}  // namespace
}  // namespace divisi::tune
