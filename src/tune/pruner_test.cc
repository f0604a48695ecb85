#include "divisi/pruner.h"

#include "divisi/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

namespace divisi::tune {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A trial that ended well, with its values at the steps 0, 1, ...
void completed(Pruner& pruner, std::uint64_t id, const std::vector<double>& values) {
  for (std::size_t step = 0; step < values.size(); ++step) {
    pruner.report(id, static_cast<std::int64_t>(step), values[step]);
  }
  pruner.finish(id, TrialState::kOk);
}

// What a trial is told after a report.
bool pruned_at(Pruner& pruner, std::uint64_t id, std::int64_t step, double value) {
  pruner.report(id, step, value);
  return pruner.should_prune(id);
}

TEST(PrunerTest, NoneKeepsEverything) {
  Pruner pruner = Pruner::none();
  completed(pruner, 1, {0});
  EXPECT_FALSE(pruned_at(pruner, 2, 0, kNan));
}

TEST(PrunerTest, MedianComparesTheBestSoFarWithOthers) {
  Pruner pruner = Pruner::median({.startup_trials = 3});
  completed(pruner, 1, {5, 1});
  completed(pruner, 2, {6, 2});
  EXPECT_FALSE(pruned_at(pruner, 9, 0, 100)) << "two trials are not three";
  completed(pruner, 3, {7, 3});
  EXPECT_FALSE(pruned_at(pruner, 4, 0, 6)) << "as good as the median";
  EXPECT_TRUE(pruned_at(pruner, 4, 1, 6)) << "the median has gone to 2";
  EXPECT_FALSE(pruned_at(pruner, 5, 0, 2));
  EXPECT_FALSE(pruned_at(pruner, 5, 1, 50)) << "its best value counts, not its last";
  EXPECT_FALSE(pruned_at(pruner, 5, 7, 50)) << "nobody has a value at step 7";
}

TEST(PrunerTest, TrialsThatEndedCountAtLaterStepsOnRequest) {
  const PercentileOptions options{.maximize = true, .startup_trials = 1};
  PercentileOptions counting = options;
  counting.count_ended = true;
  Pruner without = Pruner::median(options);
  Pruner with = Pruner::median(counting);
  for (Pruner* one : {&without, &with}) {
    completed(*one, 1, {0, 9});
    completed(*one, 2, {0, 8});
    completed(*one, 3, {0, 1, 2, 3});
    EXPECT_FALSE(pruned_at(*one, 4, 1, 8)) << "the median of 9, 8 and 1: nobody has ended before";
  }
  EXPECT_FALSE(pruned_at(without, 5, 3, 5)) << "only trial 3 has a value there";
  EXPECT_TRUE(pruned_at(with, 5, 3, 5)) << "the median of 9, 8 and 3";
  EXPECT_FALSE(pruned_at(with, 6, 3, 8));
  EXPECT_FALSE(pruned_at(without, 7, 50, -1)) << "nobody has a value there";
  EXPECT_TRUE(pruned_at(with, 7, 50, -1)) << "all three have ended";
}

TEST(PrunerTest, TrialsThatEndedAreAmongTheLeastNumberOfTrials) {
  Pruner pruner = Pruner::median({.startup_trials = 1, .min_trials = 3, .count_ended = true});
  completed(pruner, 1, {1, 1});
  completed(pruner, 2, {1});
  EXPECT_FALSE(pruned_at(pruner, 3, 1, 5)) << "two are not three";
  completed(pruner, 4, {1, kNan});
  EXPECT_FALSE(pruned_at(pruner, 5, 2, 5)) << "what is not a number counts nowhere";
  completed(pruner, 6, {1});
  EXPECT_TRUE(pruned_at(pruner, 7, 2, 5));
  Pruner other = pruner.anew(true);
  completed(other, 1, {3});
  completed(other, 2, {3});
  completed(other, 3, {3});
  EXPECT_TRUE(pruned_at(other, 4, 1, 2)) << "the setting is kept";
}

TEST(PrunerTest, MedianLooksTheOtherWayWhenMaximizing) {
  Pruner pruner = Pruner::median({.maximize = true, .startup_trials = 1});
  completed(pruner, 1, {1});
  completed(pruner, 2, {2});
  EXPECT_TRUE(pruned_at(pruner, 3, 0, 1.4));
  EXPECT_FALSE(pruned_at(pruner, 4, 0, 1.6)) << "between two values the median is 1.5";
  Pruner other = pruner.anew(false);
  EXPECT_FALSE(pruned_at(other, 3, 0, 100)) << "a new one knows of no trial";
  completed(other, 1, {1});
  EXPECT_TRUE(pruned_at(other, 3, 1, 100) || pruned_at(other, 4, 0, 100));
}

TEST(PrunerTest, WarmUpAndIntervalSayWhenToLook) {
  Pruner pruner = Pruner::median({.startup_trials = 1, .warmup_steps = 2, .interval_steps = 3});
  completed(pruner, 1, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  std::vector<std::int64_t> asked;
  for (std::int64_t step = 0; step < 10; ++step) {
    // A trial a step: where one was pruned it stays so.
    const auto id = static_cast<std::uint64_t>(100 + step);
    for (std::int64_t before = 0; before < step; ++before) pruner.report(id, before, 1);
    if (pruned_at(pruner, id, step, 1)) asked.push_back(step);
  }
  EXPECT_THAT(asked, ::testing::ElementsAre(2, 5, 8));
  // Who reports every fourth step is looked at as soon as a check is overdue.
  EXPECT_FALSE(pruned_at(pruner, 7, 0, 1));
  EXPECT_TRUE(pruned_at(pruner, 7, 4, 1));
}

TEST(PrunerTest, OnlyTrialsThatEndedWellCount) {
  Pruner pruner = Pruner::median({.startup_trials = 1});
  pruner.report(1, 0, 1);
  pruner.finish(1, TrialState::kPruned);
  pruner.report(2, 0, 1);
  pruner.finish(2, TrialState::kFail);
  EXPECT_FALSE(pruned_at(pruner, 3, 0, 9));
}

TEST(PrunerTest, PercentileKeepsTheBestPart) {
  Pruner pruner = Pruner::percentile(25, {.startup_trials = 1});
  for (std::uint64_t id = 1; id <= 101; ++id) completed(pruner, id, {static_cast<double>(id)});
  EXPECT_FALSE(pruned_at(pruner, 200, 0, 26));
  EXPECT_TRUE(pruned_at(pruner, 201, 0, 26.5));
  Pruner larger = Pruner::percentile(25, {.maximize = true, .startup_trials = 1});
  for (std::uint64_t id = 1; id <= 101; ++id) completed(larger, id, {static_cast<double>(id)});
  EXPECT_FALSE(pruned_at(larger, 200, 0, 76));
  EXPECT_TRUE(pruned_at(larger, 201, 0, 75.5));
}

TEST(PrunerTest, HalvingLetsTheBestOneOfSoManyPass) {
  Pruner pruner = Pruner::successive_halving({.reduction_factor = 2});
  EXPECT_FALSE(pruned_at(pruner, 1, 1, 10)) << "the first one passes";
  EXPECT_FALSE(pruned_at(pruner, 2, 0, 99)) << "before the first check";
  EXPECT_TRUE(pruned_at(pruner, 2, 1, 11));
  EXPECT_FALSE(pruned_at(pruner, 3, 1, 9));
  EXPECT_FALSE(pruned_at(pruner, 4, 1, 9.5)) << "two of four pass";
  // The second check, at step 2, has seen nobody yet.
  EXPECT_FALSE(pruned_at(pruner, 4, 2, 7));
  EXPECT_TRUE(pruned_at(pruner, 3, 2, 8));
  EXPECT_TRUE(pruner.should_prune(3)) << "an answer stays";
}

TEST(PrunerTest, HalvingMeetsAllChecksThatAReportHasPassed) {
  Pruner pruner = Pruner::successive_halving(
      {.maximize = true, .min_resource = 2, .reduction_factor = 3, .min_early_stopping_rate = 1});
  // Checks at 6, 18, 54.
  EXPECT_FALSE(pruned_at(pruner, 1, 5, 0));
  EXPECT_FALSE(pruned_at(pruner, 1, 60, 5));
  EXPECT_FALSE(pruned_at(pruner, 2, 5, -9));
  EXPECT_TRUE(pruned_at(pruner, 2, 6, 4));
  EXPECT_FALSE(pruned_at(pruner, 3, std::numeric_limits<std::int64_t>::max(), 6));
}

TEST(PrunerTest, HalvingLetsTheBootstrapPass) {
  Pruner pruner = Pruner::successive_halving({.reduction_factor = 2, .bootstrap_count = 3});
  for (std::uint64_t id = 1; id <= 3; ++id) {
    EXPECT_FALSE(pruned_at(pruner, id, 1, static_cast<double>(id))) << id;
  }
  EXPECT_TRUE(pruned_at(pruner, 4, 1, 4));
}

TEST(PrunerTest, HalvingFindsItsFirstCheckInATrialThatEnded) {
  Pruner pruner = Pruner::successive_halving({.min_resource = std::nullopt});
  EXPECT_FALSE(pruned_at(pruner, 1, 400, 1));
  pruner.finish(1, TrialState::kOk);
  EXPECT_FALSE(pruned_at(pruner, 2, 3, 1));
  EXPECT_FALSE(pruned_at(pruner, 2, 4, 1)) << "the first at the check of step 4";
  EXPECT_TRUE(pruned_at(pruner, 3, 4, 2));
}

TEST(PrunerTest, HyperbandGivesLaterChecksToSomeTrials) {
  const auto share = [](Pruner& pruner, std::int64_t step) {
    // One good trial in each bracket, then how many of 1,000 bad ones are pruned at the step.
    for (std::uint64_t id = 1; id <= 200; ++id) {
      pruner.report(id, 100, 0);
      pruner.should_prune(id);
    }
    int pruned = 0;
    for (std::uint64_t id = 1001; id <= 2000; ++id)
      pruned += pruned_at(pruner, id, step, static_cast<double>(id)) ? 1 : 0;
    return pruned;
  };
  const HyperbandOptions options{.min_resource = 1, .max_resource = 9, .reduction_factor = 3};
  // Brackets for 9, 5 and 3 trials, with first checks at 1, 3 and 9.
  Pruner first = Pruner::hyperband(options);
  Pruner second = Pruner::hyperband(options);
  Pruner third = Pruner::hyperband(options);
  EXPECT_NEAR(share(first, 1), 1000.0 * 9 / 17, 50);
  EXPECT_NEAR(share(second, 3), 1000.0 * 14 / 17, 50);
  EXPECT_EQ(share(third, 9), 1000);
}

TEST(PrunerTest, HyperbandWaitsForALengthOfTrials) {
  Pruner pruner = Pruner::hyperband();
  EXPECT_FALSE(pruned_at(pruner, 1, 0, kNan));
  EXPECT_FALSE(pruned_at(pruner, 1, 20, kNan));
  pruner.finish(1, TrialState::kOk);
  EXPECT_TRUE(pruned_at(pruner, 2, 27, kNan));
}

TEST(PrunerTest, ThresholdPrunesOutsideOfItsLimits) {
  Pruner pruner = Pruner::threshold({.lower = 0, .upper = 1, .warmup_steps = 1});
  EXPECT_FALSE(pruned_at(pruner, 1, 0, 5));
  EXPECT_FALSE(pruned_at(pruner, 1, 1, 0));
  EXPECT_FALSE(pruned_at(pruner, 1, 2, 1));
  EXPECT_TRUE(pruned_at(pruner, 1, 3, 1.5));
  EXPECT_TRUE(pruned_at(pruner, 2, 3, -0.5));
  EXPECT_TRUE(pruned_at(pruner, 3, 3, kNan));
}

TEST(PrunerTest, PatienceBearsSomeReportsWithoutABetterValue) {
  Pruner pruner = Pruner::patience({.patience = 1, .min_delta = 0.5});
  EXPECT_FALSE(pruned_at(pruner, 1, 0, 3));
  EXPECT_FALSE(pruned_at(pruner, 1, 1, 2));
  EXPECT_FALSE(pruned_at(pruner, 1, 2, 2.4)) << "within the delta of the best one before";
  EXPECT_FALSE(pruned_at(pruner, 1, 3, 2.6));
  EXPECT_TRUE(pruned_at(pruner, 1, 4, 2.7)) << "2.6 and 2.7 after a best of 2";
  Pruner larger = Pruner::patience({.maximize = true, .patience = 0});
  EXPECT_FALSE(pruned_at(larger, 1, 0, 3));
  EXPECT_FALSE(pruned_at(larger, 1, 1, 3));
  EXPECT_TRUE(pruned_at(larger, 1, 2, kNan));
}

TEST(PrunerTest, PatienceAsksTheOtherPrunerThen) {
  Pruner pruner =
      Pruner::patience({.patience = 0}, Pruner::median({.maximize = true, .startup_trials = 1}));
  completed(pruner, 1, {5, 5, 5});
  EXPECT_FALSE(pruned_at(pruner, 2, 0, 9)) << "the median alone would prune it";
  EXPECT_FALSE(pruned_at(pruner, 2, 1, 8)) << "it gets better";
  EXPECT_TRUE(pruned_at(pruner, 2, 2, 8.5));
  EXPECT_FALSE(pruned_at(pruner, 3, 0, 1));
  EXPECT_FALSE(pruned_at(pruner, 3, 1, 2)) << "impatient, but better than the median";
}

TEST(PrunerTest, NanIsWorseThanEveryNumber) {
  Pruner median = Pruner::median({.startup_trials = 1});
  completed(median, 1, {kNan, 3});
  EXPECT_TRUE(pruned_at(median, 2, 0, kNan));
  EXPECT_FALSE(pruned_at(median, 3, 0, 7)) << "nobody else has a number at this step";
  EXPECT_FALSE(pruned_at(median, 4, 0, 3));
  EXPECT_FALSE(pruned_at(median, 4, 1, kNan)) << "its best value is 3";
  Pruner halving = Pruner::successive_halving({});
  EXPECT_TRUE(pruned_at(halving, 1, 1, kNan));
  EXPECT_FALSE(pruned_at(halving, 2, 1, std::numeric_limits<double>::infinity()));
}

TEST(PrunerTest, ATryMayBeginAgainButRepeatNoStep) {
  Pruner pruner = Pruner::threshold({.upper = 1});
  EXPECT_FALSE(pruned_at(pruner, 1, 3, 0));
  EXPECT_FALSE(pruned_at(pruner, 1, 3, 9));
  EXPECT_FALSE(pruned_at(pruner, 1, 2, 9));
  pruner.finish(1, TrialState::kFail);
  EXPECT_FALSE(pruner.should_prune(1));
  EXPECT_TRUE(pruned_at(pruner, 1, 2, 9));
}

TEST(PrunerTest, WrongSettingsAreRefused) {
  EXPECT_THROW(Pruner::percentile(101), UsageError);
  EXPECT_THROW(Pruner::percentile(kNan), UsageError);
  EXPECT_THROW(Pruner::median({.interval_steps = 0}), UsageError);
  EXPECT_THROW(Pruner::median({.warmup_steps = -1}), UsageError);
  EXPECT_THROW(Pruner::successive_halving({.reduction_factor = 1}), UsageError);
  EXPECT_THROW(Pruner::successive_halving({.min_resource = 0}), UsageError);
  EXPECT_THROW(Pruner::hyperband({.min_resource = 3, .max_resource = 2}), UsageError);
  EXPECT_THROW(Pruner::threshold({}), UsageError);
  EXPECT_THROW(Pruner::threshold({.lower = 2, .upper = 1}), UsageError);
  EXPECT_THROW(Pruner::patience({.patience = -1}), UsageError);
  EXPECT_THROW(Pruner::patience({.min_delta = kNan}), UsageError);
  EXPECT_THROW(Pruner::none().report(1, -1, 0), UsageError);
}

TEST(PrunerTest, ThreadsMayReportAtTheSameTime) {
  Pruner pruner = Pruner::median({.startup_trials = 1});
  std::vector<std::jthread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&pruner, thread] {
      for (std::uint64_t trial = 1; trial <= 200; ++trial) {
        completed(pruner, thread * 1000 + trial, {static_cast<double>(trial), 0});
      }
    });
  }
  threads.clear();
  EXPECT_TRUE(pruned_at(pruner, 9999, 0, 101));
  EXPECT_FALSE(pruned_at(pruner, 9998, 0, 100));
}

// A learning curve falls from 1 towards a level that the trial's number says. What 200 trials of 81
// steps cost, and the best level that reached its end.
struct Cost {
  int steps = 0;
  double best = std::numeric_limits<double>::infinity();
};

Cost learn_all(Pruner pruner) {
  Cost cost;
  for (std::uint64_t id = 1; id <= 200; ++id) {
    const double level = static_cast<double>(id * 7919 % 200) / 200;
    bool pruned = false;
    for (std::int64_t step = 1; step <= 81 && !pruned; ++step) {
      ++cost.steps;
      const double noise =
          0.002 * std::sin(static_cast<double>(id) * 12.9 + 78.2 * static_cast<double>(step));
      pruned = pruned_at(pruner, id, step,
                         level + (1 - level) * std::exp(-static_cast<double>(step) / 10) + noise);
    }
    pruner.finish(id, pruned ? TrialState::kPruned : TrialState::kOk);
    if (!pruned) cost.best = std::min(cost.best, level);
  }
  return cost;
}

TEST(PrunerTest, SavesTwoFifthsOfTheStepsAndKeepsTheBest) {
  const Cost all = learn_all(Pruner::none());
  ASSERT_EQ(all.steps, 200 * 81);
  ASSERT_EQ(all.best, 0);
  const Cost median = learn_all(Pruner::median({.warmup_steps = 10}));
  EXPECT_LT(median.steps, all.steps * 6 / 10);
  EXPECT_EQ(median.best, all.best);
  const Cost halving = learn_all(Pruner::successive_halving({.reduction_factor = 3}));
  EXPECT_LT(halving.steps, all.steps * 6 / 10);
  EXPECT_EQ(halving.best, all.best);
  const Cost hyperband = learn_all(Pruner::hyperband({.max_resource = 81}));
  EXPECT_LT(hyperband.steps, all.steps * 6 / 10);
  EXPECT_EQ(hyperband.best, all.best);
}

}  // namespace
}  // namespace divisi::tune
