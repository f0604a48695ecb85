#include "tune_run/study_plan.h"

#include "json/yaml.h"
#include "tune_run/reports.h"
#include "tune_run/value_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace divisi::tune_run {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kWhole = R"(
name: cartpole
command: python train.py --lr {lr}
space: {lr: {loguniform: [1e-5, 1e-1]}}
maximize: reward
)";

Result<StudyPlan> plan_of(const std::string& yaml) {
  return make_plan(*json::parse_yaml_one(yaml));
}

// What is wrong with the whole plan and one more line.
std::string with(const std::string& line) {
  const auto plan = plan_of(kWhole + line);
  return plan ? "accepted" : plan.error().message();
}

std::string without(const std::string& key) {
  json::Value document = *json::parse_yaml_one(kWhole);
  document.erase(key);
  const auto plan = make_plan(document);
  return plan ? "accepted" : plan.error().message();
}

TEST(StudyPlanTest, DefaultsAndKeys) {
  const auto plan = plan_of(std::string(kWhole) + "trial_timeout: 1.5m\nretries: 0\nworkers: 3\n");
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  EXPECT_THAT(plan->command, ElementsAre("python", "train.py", "--lr", "{lr}"));
  EXPECT_EQ(plan->inject, Inject::kPlaceholders);
  EXPECT_EQ(plan->targets.front().value.text(), "R['reward']");
  EXPECT_TRUE(plan->targets.front().maximize);
  EXPECT_EQ(plan->trial_timeout, std::chrono::seconds(90));
  EXPECT_EQ(plan->tries, 1);
  EXPECT_EQ(plan->workers, 3);
  EXPECT_EQ(plan->algorithm.name, "auto");
  EXPECT_EQ(plan->storage, "divisi-tune.db");
  EXPECT_EQ(plan->folder, "cartpole");
}

TEST(StudyPlanTest, FailuresEndASearchThatHasNoOtherEnd) {
  const auto failures = [](const std::string& lines) {
    const auto plan = plan_of(
        "{name: a, command: [train], space: {x: {choice: [1, 2]}}, minimize: R" + lines + "}");
    return plan ? plan->max_failures : -1;
  };
  EXPECT_EQ(failures(""), 20);
  EXPECT_EQ(failures(", algorithm: tpe"), 20);
  EXPECT_EQ(failures(", algorithm: grid"), 0);
  EXPECT_EQ(failures(", algorithm: {name: pbt, population: 4}"), 0);
  EXPECT_EQ(failures(", max_steps: 5"), 0);
  EXPECT_EQ(failures(", algorithm: grid, max_failures: 3"), 3);
}

TEST(StudyPlanTest, UnknownNamesComeWithTheNearest) {
  EXPECT_EQ(with("max_step: 3"), "there is no key 'max_step', did you mean 'max_steps'?");
  EXPECT_THAT(with("algorithm: bays"), HasSubstr("did you mean 'bayes'?"));
  EXPECT_THAT(with("algorithm: {name: bayes, int_steps: 3}"),
              HasSubstr("did you mean 'init_steps'?"));
  EXPECT_THAT(with("inject: pyton"), HasSubstr("did you mean 'python'?"));
}

TEST(StudyPlanTest, EveryAlgorithmTakesItsOptions) {
  for (const char* algorithm :
       {"auto", "{name: tpe, n_startup: 3, gamma: 0.2}", "{name: cmaes, sigma0: 0.2, seed: 3}",
        "{name: nsga2, population_size: 8, mutation_probability: 0.5}", "{name: qmc, seed: 1}"}) {
    EXPECT_EQ(with(fmt::format("algorithm: {}\nmax_steps: 20", algorithm)), "accepted")
        << algorithm;
  }
  EXPECT_EQ(with("minimize: [seconds]"), "accepted") << "auto takes several targets";
  EXPECT_THAT(with("algorithm: {name: tpe, gamma: 2}"), HasSubstr("algorithm tpe: "));
  EXPECT_THAT(with("algorithm: {name: cmaes, sigma: 0.2}"), HasSubstr("did you mean 'sigma0'?"));
}

TEST(StudyPlanTest, WrongValuesNameTheKey) {
  EXPECT_THAT(with("max_steps: -1"), HasSubstr("max_steps: a whole number from 0"));
  EXPECT_THAT(with("workers: many"), HasSubstr("workers: a whole number from 1"));
  EXPECT_THAT(with("workers: 1000000"), HasSubstr("workers: a whole number from 1 to 10000"));
  EXPECT_THAT(with("timeout: soon"), HasSubstr("timeout: a time as seconds"));
  EXPECT_THAT(with("stop_when: R['a' > 1"), HasSubstr("stop_when: "));
  EXPECT_THAT(with("algorithm: {seed: 1}"), HasSubstr("algorithm: a name"));
  EXPECT_THAT(with("algorithm: {name: random, seed: -1}"), HasSubstr("seed must be"));
  EXPECT_THAT(with("algorithm: grid"), HasSubstr("algorithm grid: "));
  EXPECT_THAT(with("resume: 3"), HasSubstr("resume: true or false"));
  EXPECT_THAT(with("template: a.py"), HasSubstr("a command and a template"));
  EXPECT_THAT(with("env: [1]"), HasSubstr("env: a map"));
}

TEST(StudyPlanTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(without("command"), HasSubstr("nothing to run"));
  EXPECT_THAT(without("space"), HasSubstr("space: nothing to search"));
  EXPECT_THAT(without("maximize"), HasSubstr("nothing to optimize"));
  EXPECT_THAT(without("name"), HasSubstr("cannot name a folder"));
}

TEST(StudyPlanTest, NameThatClimbsOutIsRefused) {
  for (const char* name : {"../up", "a/b", ".hidden", "-x", "a b"}) {
    json::Value document = *json::parse_yaml_one(kWhole);
    document["name"] = name;
    const auto plan = make_plan(document);
    ASSERT_FALSE(plan.has_value()) << name;
    EXPECT_THAT(plan.error().message(), HasSubstr("cannot name a folder"));
  }
}

TEST(StudyPlanTest, TargetsAreNamesOrExpressions) {
  EXPECT_EQ(parse_target("eval.mean")->text(), "R['eval']['mean']");
  EXPECT_EQ(parse_target("R")->text(), "R");
  EXPECT_EQ(parse_target("R['a'] - 2 * M['time']")->text(), "R['a'] - 2 * M['time']");
  EXPECT_FALSE(parse_target("R[").has_value());
}

TEST(StudyPlanTest, CommandWithoutPlaceholdersGetsArguments) {
  EXPECT_EQ(
      plan_of("{name: a, command: [train], space: {x: {uniform: [0, 1]}}, minimize: R}")->inject,
      Inject::kArgv);
  EXPECT_THAT(
      plan_of("{name: a, command: [train, '{x}'], inject: argv, space: {x: {uniform: [0, 1]}}, "
              "minimize: R}")
          .error()
          .message(),
      HasSubstr("inject: argv adds"));
}

TEST(ReportsTest, ValuesByTheTarget) {
  const tune::Expr target = *parse_target("reward");
  EXPECT_EQ(parse_report(R"({"step": 3, "value": 0.5})", target)->value, 0.5);
  EXPECT_EQ(parse_report(R"({"step": 3, "values": {"reward": 2, "loss": 1}})", target)->value, 2);
  EXPECT_EQ(parse_report(R"({"step": 3, "values": {"other": 7}})", target)->value, 7);
  EXPECT_FALSE(parse_report(R"({"step": 3, "values": {"a": 7, "b": 1}})", target).has_value());
  for (const char* none : {"null", "NaN", "-Infinity"}) {  // worse than every number
    const auto report = parse_report(fmt::format(R"({{"step": 3, "value": {}}})", none), target);
    ASSERT_TRUE(report.has_value()) << none;
    EXPECT_TRUE(std::isnan(report->value)) << none;
  }
  EXPECT_FALSE(parse_report(R"({"step": -1, "value": 1})", target).has_value());
  EXPECT_FALSE(parse_report("nonsense", target).has_value());
}

}  // namespace
}  // namespace divisi::tune_run
