#include "dist_rl/train_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace divisi::dist_rl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json::Value document_of(std::string_view text) {
  auto document = json::parse(text);
  EXPECT_TRUE(document) << document.error().message();
  return *document;
}

// The configuration of DI-engine's cartpole job, with two changes.
json::Value cartpole() {
  return document_of(R"({
    "main": {
      "env": {"collector_env_num": 8, "collector_episode_num": 2, "evaluator_env_num": 5,
              "evaluator_episode_num": 1, "stop_value": 180, "manager": {"shared_memory": false}},
      "policy": {
        "cuda": false,
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [128, 64],
                  "dueling": true},
        "nstep": 3, "discount_factor": 0.97,
        "learn": {"batch_size": 32, "learning_rate": 0.001,
                  "learner": {"learner_num": 1, "send_policy_freq": 2}},
        "collect": {"n_sample": 16, "collector": {"collector_num": 2, "update_policy_second": 3}},
        "eval": {"evaluator": {"eval_freq": 50}},
        "other": {
          "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 100000},
          "replay_buffer": {"replay_buffer_size": 100000, "enable_track_used_data": false},
          "commander": {"collector_task_space": 0, "learner_task_space": 1, "eval_interval": 5}}}},
    "create": {"env": {"type": "cartpole"}},
    "system": {
      "coordinator": {"host": "0.0.0.0", "port": 22273, "operator_server": {
        "system_addr": "di-server.di-system:8080", "api_version": "/v1alpha1",
        "init_replicas_request": {"collectors": {"replicas": 2},
                                  "learners": {"gpus": "0", "replicas": 1}},
        "collector_target_num": 2, "learner_target_num": 1}},
      "collector": {"port": 22270}, "learner": {"port": 80},
      "path_data": "./data", "path_policy": "/ding/policy", "communication_mode": "auto",
      "learner_gpu_num": 1}})");
}

std::string refusal_of(const json::Value& document) {
  const auto config = read_train_config(document, 0);
  return config ? "it was read" : config.error().message();
}

TEST(TrainConfigTest, ReadsTheConfigurationOfDiEngine) {
  const auto config = read_train_config(cartpole(), 7);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->dqn.env_name, "CartPole-v1");
  EXPECT_EQ(config->dqn.seed, 7);
  EXPECT_EQ(config->dqn.stop_value, 180);
  EXPECT_THAT(config->dqn.hidden, ElementsAre(128, 64));
  EXPECT_EQ(config->dqn.nstep, 3);
  EXPECT_EQ(config->dqn.batch_size, 32);
  EXPECT_EQ(config->dqn.eps_decay, 100'000);
  EXPECT_EQ(config->dqn.replay_buffer_size, 100'000);
  EXPECT_EQ(config->send_policy_freq, 2);
  EXPECT_EQ(config->server, "di-server.di-system:8080");
  EXPECT_EQ(config->demand.collectors.replicas, 2);
  EXPECT_EQ(*config->demand.learners.gpus.as_string(), "0");
  EXPECT_EQ(config->learner_target, 1);
  EXPECT_EQ(config->path_policy, "/ding/policy");
  EXPECT_EQ(config->learner_port, 80);
  EXPECT_EQ(config->eval_interval, 5);
}

TEST(TrainConfigTest, DerivesWhatIsNotGiven) {
  json::Value document = cartpole();
  document["main"]["env"]["evaluator_episode_num"] = 3;
  document["main"]["policy"]["learn"]["update_per_collect"] = 5;
  const auto config = read_train_config(document, 0);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->dqn.n_evaluator_episode, 15);
  EXPECT_EQ(config->dqn.samples_per_insert, 32.0 * 5 / 16);
  EXPECT_EQ(config->dqn.max_env_step, std::numeric_limits<std::int64_t>::max());
  document["main"]["env"]["n_evaluator_episode"] = 4;
  document["main"]["policy"]["other"]["replay_buffer"]["samples_per_insert"] = 2;
  EXPECT_EQ(read_train_config(document, 0)->dqn.n_evaluator_episode, 4);
  EXPECT_EQ(read_train_config(document, 0)->dqn.samples_per_insert, 2);
  document["main"]["max_env_step"] = 1000;
  EXPECT_EQ(read_train_config(document, 0)->dqn.max_env_step, 1000);
}

TEST(TrainConfigTest, RefusesAnEnvironmentThatIsNotHere) {
  json::Value document = cartpole();
  document["main"]["env"]["env_id"] = "QbertNoFrameskip-v4";
  document["main"]["env"]["frame_stack"] = 4;
  EXPECT_THAT(refusal_of(document),
              AllOf(HasSubstr("env_id=QbertNoFrameskip-v4"), HasSubstr("CartPole-v1")));
  document = cartpole();
  document["create"]["env"]["type"] = "atari";
  EXPECT_THAT(refusal_of(document), HasSubstr("create_config.env.type=atari"));
}

TEST(TrainConfigTest, RefusesUnknownKeysByName) {
  json::Value document = cartpole();
  document["main"]["policy"]["learn"]["batchsize"] = 32;
  EXPECT_THAT(refusal_of(document), AllOf(HasSubstr("main_config.policy.learn.batchsize"),
                                          HasSubstr("did you mean 'policy.learn.batch_size'")));
}

TEST(TrainConfigTest, RefusesWhatItCannotHonourByName) {
  const auto with = [](std::initializer_list<std::string_view> path, json::Value value) {
    json::Value document = cartpole();
    json::Value* at = &document;
    for (const std::string_view key : path) at = &(*at)[key];
    *at = std::move(value);
    return refusal_of(document);
  };
  EXPECT_THAT(with({"main", "policy", "cuda"}, true), HasSubstr("policy.cuda=true"));
  EXPECT_THAT(with({"main", "policy", "priority_IS_weight"}, true),
              HasSubstr("policy.priority_IS_weight=true"));
  EXPECT_THAT(with({"main", "env", "frame_stack"}, 4), HasSubstr("env.frame_stack=4"));
  EXPECT_THAT(with({"main", "policy", "model", "obs_shape"}, 8),
              HasSubstr("policy.model.obs_shape=8: CartPole-v1 has 4"));
  EXPECT_THAT(with({"main", "policy", "learn", "batch_size"}, 0), HasSubstr("batch_size"));
  EXPECT_THAT(with({"main", "policy", "learn", "batch_size"}, "many"), HasSubstr("batch_size"));
  EXPECT_THAT(with({"main", "policy", "other", "commander", "learner_task_space"}, 2),
              HasSubstr("learner_task_space=2"));
  EXPECT_THAT(with({"main", "policy", "other", "eps", "type"}, "step"), HasSubstr("eps.type=step"));
  EXPECT_THAT(with({"system", "communication_mode"}, "manual"), HasSubstr("communication_mode"));
  EXPECT_THAT(with({"system", "path_data"}, 1), HasSubstr("system_config.path_data=1"));
  EXPECT_THAT(with({"system", "learner", "port"}, 70'000), HasSubstr("system_config.learner.port"));
  EXPECT_THAT(with({"system", "coordinator", "operator_server", "init_replicas_request",
                    "collectors", "replicas"},
                   -1),
              HasSubstr("collectors.replicas=-1"));
  EXPECT_THAT(with({"system", "coordinator", "operator_server", "init_replicas_request",
                    "collectors", "cpu"},
                   1),
              HasSubstr("collectors.cpu"));
}

TEST(TrainConfigTest, ReadsWorkersOfAJobWithoutServer) {
  json::Value document = cartpole();
  document["system"]["coordinator"] =
      document_of(R"({"collector": {"c0": ["c0", "10.0.0.1", 80]}, "learner": ["10.0.0.2:81"]})");
  const auto config = read_train_config(document, 0);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_THAT(config->collectors, ElementsAre("10.0.0.1:80"));
  EXPECT_THAT(config->learners, ElementsAre("10.0.0.2:81"));
  document["system"]["coordinator"]["learner"] = 1;
  EXPECT_THAT(refusal_of(document), HasSubstr("system_config.coordinator.learner"));
}

}  // namespace
}  // namespace divisi::dist_rl
