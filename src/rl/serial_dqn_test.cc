#include "rl/serial_dqn.h"

#include "divisi/error.h"
#include "rl/ding_config.h"
#include "rl/dqn.h"
#include "rl/saved_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <unistd.h>

namespace divisi::rl {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// What the guide of the tuner has, as JSON; `main` and `create` go in behind.
std::string guide(const std::string& main = "", const std::string& create = "") {
  return R"({"main": {"exp_name": "cartpole_dqn_seed0",
      "env": {"collector_env_num": 8, "evaluator_env_num": 5, "n_evaluator_episode": 5,
              "stop_value": 195, "replay_path": "cartpole_dqn_seed0/video"},
      "policy": {"cuda": false, "load_path": "cartpole_dqn_seed0/ckpt/ckpt_best.pth.tar",
        "model": {"obs_shape": 4, "action_shape": 2,
                  "encoder_hidden_size_list": [128, 128, 64], "dueling": true},
        "nstep": 1, "discount_factor": 0.97,
        "learn": {"batch_size": 64, "learning_rate": 0.001}, "collect": {"n_sample": 8},
        "eval": {"evaluator": {"eval_freq": 40}},
        "other": {"eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 10000},
                  "replay_buffer": {"replay_buffer_size": 20000}}})" +
         main + R"(}, "create": {
      "env": {"type": "cartpole", "import_names": ["dizoo.classic_control.cartpole.envs.cartpole_env"]},
      "env_manager": {"type": "base"}, "policy": {"type": "dqn"},
      "replay_buffer": {"type": "deque", "import_names": ["ding.data.buffer.deque_buffer_wrapper"]})" +
         create + "}}";
}

std::string refusal_of(const std::string& document) {
  try {
    read_serial_config(document);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "it was read";
}

DqnConfig small() {
  DqnConfig config = read_serial_config(guide());
  config.hidden = {16};
  config.eval_freq = 20;
  config.max_env_step = 800;
  config.stop_value = 1e9;
  return config;
}

TEST(SerialDqnTest, ReadsTheConfigurationOfTheGuide) {
  const DqnConfig config = read_serial_config(guide());
  EXPECT_EQ(config.exp_name, "cartpole_dqn_seed0");
  EXPECT_EQ(config.env_name, "CartPole-v1");
  EXPECT_EQ(config.hidden, (std::vector<int>{128, 128, 64}));
  EXPECT_EQ(config.eval_freq, 40);
  EXPECT_EQ(config.replay_buffer_size, 20'000);
}

TEST(SerialDqnTest, RefusesWhatIsNotHereByName) {
  EXPECT_THAT(refusal_of(guide(R"(, "polcy": {"cuda": false})")),
              AllOf(HasSubstr("main_config.polcy.cuda"), HasSubstr("did you mean 'policy.cuda'")));
  EXPECT_THAT(refusal_of(guide(R"(, "wandb_logger": {"project": "x"})")),
              AllOf(HasSubstr("main_config.wandb_logger.project"), HasSubstr("not known here")));
  EXPECT_THAT(refusal_of(guide("", R"(, "buffers": {"type": "deque"})")),
              AllOf(HasSubstr("create_config.buffers.type"), HasSubstr("not known")));
  std::string ppo = guide();
  ppo.replace(ppo.find(R"("dqn"})"), 5, R"("ppo")");
  EXPECT_THAT(refusal_of(ppo), HasSubstr("create_config.policy.type=ppo: this algorithm"));
  std::string atari = guide();
  atari.replace(atari.find(R"("cartpole",)"), 10, R"("atari")");
  EXPECT_THAT(refusal_of(atari), HasSubstr("create_config.env.type=atari"));
  EXPECT_THAT(refusal_of(R"({"main": {}})"), HasSubstr("no create_config"));
  EXPECT_THAT(refusal_of("{"), Not(HasSubstr("it was read")));
}

TEST(SerialDqnTest, AnUnknownKeyIsToldItsNeighbours) {
  std::string document = guide();
  const std::string after = R"("learning_rate": 0.001)";
  document.insert(document.find(after) + after.size(), R"(, "unheard_of_setting": 1)");
  EXPECT_THAT(refusal_of(document), AllOf(HasSubstr("main_config.policy.learn.unheard_of_setting"),
                                          HasSubstr("policy.learn has batch_size, learning_rate")));
}

TEST(SerialDqnTest, EndsAtItsLimitsAndReportsEachEvaluation) {
  std::vector<SerialEvaluation> seen;
  SerialOptions options{.config = small(),
                        .best_checkpoint = "",
                        .last_checkpoint = "",
                        .on_evaluation = [&](const auto& e) { seen.push_back(e); },
                        .on_step = {}};
  const SerialResult result = train_serially(options);
  EXPECT_FALSE(result.solved);
  EXPECT_EQ(result.env_step, 800);
  // Three updates for each of 100 collects, but the first seven have too few rows.
  EXPECT_EQ(result.train_iter, 3 * 93);
  ASSERT_THAT(seen, SizeIs(Ge(10U)));
  EXPECT_EQ(seen.front().train_iter, 0);
  EXPECT_THAT(seen.front().returns, SizeIs(5));
  EXPECT_EQ(result.last.returns, seen.back().returns);
  options.max_train_iter = 30;
  EXPECT_EQ(train_serially(options).train_iter, 30);
}

TEST(SerialDqnTest, RepeatsExactlyForASeed) {
  const SerialOptions options{.config = small(),
                              .best_checkpoint = "",
                              .last_checkpoint = "",
                              .on_evaluation = {},
                              .on_step = {}};
  SerialOptions other = options;
  other.config.seed = 1;
  EXPECT_EQ(train_serially(options).last.returns, train_serially(options).last.returns);
  EXPECT_NE(train_serially(options).last.returns, train_serially(other).last.returns);
}

TEST(SerialDqnTest, SavesALearnerThatCanBeLoaded) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("serial_{}", ::getpid());
  std::filesystem::create_directories(folder);
  SerialOptions options{.config = small(),
                        .best_checkpoint = folder / "best.ckpt",
                        .last_checkpoint = folder / "final.ckpt",
                        .on_evaluation = {},
                        .on_step = {}};
  options.config.priority = true;
  const SerialResult result = train_serially(options);
  for (const auto& path : {options.best_checkpoint, options.last_checkpoint}) {
    const auto saved = load_file<std::string, StateDict>(path, "dqn");
    ASSERT_TRUE(saved) << path;
    DqnLearner learner({.shape = {.observation_size = 4, .action_count = 2, .hidden = {16}}}, 7);
    learner.load_full(std::get<1>(*saved));
    const bool is_last = path == options.last_checkpoint;
    EXPECT_EQ(learner.train_iter() == result.train_iter, is_last);
  }
  std::filesystem::remove_all(folder);
}

TEST(SerialDqnTest, WhatTheStepFunctionThrowsEndsTheRun) {
  int steps = 0;
  const SerialOptions options{.config = small(),
                              .best_checkpoint = "",
                              .last_checkpoint = "",
                              .on_evaluation = {},
                              .on_step = [&] {
                                if (++steps == 50) throw UsageError("enough");
                              }};
  EXPECT_THROW(train_serially(options), UsageError);
  EXPECT_EQ(steps, 50);
}

}  // namespace
}  // namespace divisi::rl
