// A collector and a learner as a master drives them, with real files.
#include "dist_rl/collector_worker.h"
#include "dist_rl/learner_worker.h"
#include "dist_rl/shared_files.h"
#include "dist_rl/testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace divisi::dist_rl {
namespace {

using ::testing::HasSubstr;
using testing::small_config;
using testing::TemporaryFolder;

json::Value named(const char* name) {
  return json::Object{{"name", name}};
}

json::Value learner_start(const std::string& policy = "policy_1", const char* buffer = "buffer_1") {
  json::Value data = named("learner_start_task");
  data["task_info"] = json::Object{{"task_id", "learner_task_1"},
                                   {"policy_id", policy},
                                   {"buffer_id", buffer},
                                   {"learner_cfg", json::Object{{"job", "my-job"}}}};
  return data;
}

json::Value collector_start(bool evaluates, const std::string& policy = "policy_1") {
  json::Value data = named("collector_start_task");
  data["task_info"] = json::Object{{"task_id", "collector_task_1"},
                                   {"buffer_id", "buffer_1"},
                                   {"collector_cfg", json::Object{{"job", "my-job"},
                                                                  {"policy_update_path", policy},
                                                                  {"eval_flag", evaluates},
                                                                  {"collect_ms", 60'000}}}};
  return data;
}

class DistWorkersTest : public ::testing::Test {
 protected:
  json::Value completed_by(const std::shared_ptr<dist::TaskHandler>& worker,
                           const json::Value& data) {
    dist::TaskOutcome outcome = worker->run(data);
    EXPECT_TRUE(outcome.completed) << json::print(data) << json::print(outcome.result);
    return outcome.result;
  }
  std::string failure_of(const std::shared_ptr<dist::TaskHandler>& worker,
                         const json::Value& data) {
    const dist::TaskOutcome outcome = worker->run(data);
    EXPECT_FALSE(outcome.completed) << json::print(outcome.result);
    return std::string(outcome.result.string_at({"message"}));
  }
  // A learn task over some files of the collector.
  json::Value learn_from(const std::vector<json::Value>& records) {
    json::Value data = named("learner_learn_task");
    data["data"] = json::Array(records.begin(), records.end());
    return data;
  }

  TemporaryFolder folder_;
  TrainConfig config_ = small_config(folder_);
  std::shared_ptr<dist::TaskHandler> learner_ = make_learner_worker(config_, nullptr);
  std::shared_ptr<dist::TaskHandler> collector_ = make_collector_worker(config_);
};

TEST_F(DistWorkersTest, DataGoesFromCollectorToLearnerByFiles) {
  EXPECT_EQ(json::print(completed_by(learner_, named("resource"))), R"({"gpu":1})");
  EXPECT_EQ(json::print(completed_by(collector_, named("resource"))), R"({"gpu":1,"cpu":20})");
  EXPECT_EQ(completed_by(learner_, learner_start()).string_at({"message"}),
            "learner task has started");
  EXPECT_EQ(completed_by(collector_, collector_start(false)).string_at({"message"}),
            "collector task has started");
  const json::Value record = completed_by(collector_, named("collector_data_task"));
  EXPECT_EQ(record.string_at({"buffer_id"}), "buffer_1");
  EXPECT_EQ(record.string_at({"env_id"}), "CartPole-v1");
  EXPECT_EQ(record.int_at({"policy_iter"}), 0);
  EXPECT_GE(record.int_at({"unroll_len"}).value_or(0), 32);

  const json::Value demand = completed_by(learner_, named("learner_get_data_task"));
  EXPECT_GE(demand.int_at({"batch_size"}).value_or(0), 1);
  EXPECT_EQ(demand.int_at({"cur_learner_iter"}), 0);
  const json::Value learned = completed_by(learner_, learn_from({record}));
  EXPECT_GT(learned.int_at({"info", "learner_step"}).value_or(0), 0);
  EXPECT_EQ(learned.bool_at({"info", "learner_done"}), false);
  EXPECT_EQ(learned.string_at({"task_id"}), "learner_task_1");

  // The collector finds the new policy.
  const json::Value next = completed_by(collector_, named("collector_data_task"));
  EXPECT_EQ(next.int_at({"policy_iter"}), learned.int_at({"info", "learner_step"}));
  const json::Value info = completed_by(collector_, named("collector_close_task"));
  EXPECT_EQ(info.bool_at({"eval_flag"}), false);
  EXPECT_GT(info.int_at({"step_count"}).value_or(0), 0);
  EXPECT_EQ(completed_by(learner_, named("learner_close_task")).string_at({"buffer_id"}),
            "buffer_1");
}

TEST_F(DistWorkersTest, AnEvaluatorReportsItsReturn) {
  completed_by(learner_, learner_start());
  completed_by(collector_, collector_start(true));
  const json::Value progress = completed_by(collector_, named("collector_data_task"));
  EXPECT_EQ(progress.bool_at({"collector_done"}), true);
  EXPECT_EQ(progress.find("data_id"), nullptr);
  EXPECT_EQ(progress.int_at({"cur_episode"}), config_.dqn.n_evaluator_episode);
  const json::Value info = completed_by(collector_, named("collector_close_task"));
  EXPECT_EQ(info.bool_at({"eval_flag"}), true);
  EXPECT_EQ(info.int_at({"real_episode_count"}), config_.dqn.n_evaluator_episode);
  EXPECT_GT(*info.find("reward_mean")->as_double(), 0);
}

TEST_F(DistWorkersTest, DiEngineFindsAllItReadsOfACloseTask) {
  completed_by(learner_, learner_start());
  for (const bool evaluates : {false, true}) {
    completed_by(collector_, collector_start(evaluates));
    completed_by(collector_, named("collector_data_task"));
    const json::Value info = completed_by(collector_, named("collector_close_task"));
    for (const char* key : {"reward_mean", "reward_std", "avg_time_per_episode",
                            "avg_time_per_step", "avg_step_per_episode"}) {
      ASSERT_NE(info.find(key), nullptr) << key;
      EXPECT_NE(info.find(key)->as_double(), nullptr) << key;
    }
  }
}

TEST_F(DistWorkersTest, PrioritiesNameRecordsAsDiEnginesBufferDoes) {
  config_.dqn.priority = true;
  learner_ = make_learner_worker(config_, nullptr);
  completed_by(learner_, learner_start());
  completed_by(collector_, collector_start(false));
  json::Value record = completed_by(collector_, named("collector_data_task"));
  json::Value learned = completed_by(learner_, learn_from({record}));
  const json::Value* priorities = learned.find("info")->find("priority_info");
  EXPECT_EQ(priorities->find("priority")->as_array()->size(), 1U);
  EXPECT_EQ(priorities->find("replay_unique_id"), nullptr);
  record["replay_unique_id"] = "buffer_7";
  record["replay_buffer_idx"] = 7;
  learned = completed_by(learner_, learn_from({record}));
  priorities = learned.find("info")->find("priority_info");
  EXPECT_EQ(json::print(*priorities->find("replay_unique_id")), R"(["buffer_7"])");
  EXPECT_EQ(json::print(*priorities->find("replay_buffer_idx")), "[7]");
}

TEST_F(DistWorkersTest, ALearnerGoesOnFromTheCheckpointOfItsJob) {
  completed_by(learner_, learner_start());
  completed_by(collector_, collector_start(false));
  const json::Value record = completed_by(collector_, named("collector_data_task"));
  const auto step = completed_by(learner_, learn_from({record})).int_at({"info", "learner_step"});
  learner_->master_gone();
  EXPECT_EQ(failure_of(learner_, named("learner_get_data_task")), "no task has started");

  const auto second = make_learner_worker(config_, nullptr);
  completed_by(second, learner_start("policy_2"));
  EXPECT_EQ(completed_by(second, named("learner_get_data_task")).int_at({"cur_learner_iter"}),
            step);
}

TEST_F(DistWorkersTest, ADamagedCheckpointIsNotTheEndOfAJob) {
  std::filesystem::create_directories(config_.path_policy + "/my-job");
  std::ofstream(config_.path_policy + "/my-job/checkpoint") << "no checkpoint";
  completed_by(learner_, learner_start());
  EXPECT_EQ(completed_by(learner_, named("learner_get_data_task")).int_at({"cur_learner_iter"}), 0);
}

TEST_F(DistWorkersTest, ACheckpointOfAnotherNetworkIsRefused) {
  completed_by(learner_, learner_start());
  completed_by(learner_, named("learner_close_task"));
  TrainConfig other = config_;
  other.dqn.hidden = {16};
  EXPECT_THAT(failure_of(make_learner_worker(other, nullptr), learner_start()),
              HasSubstr("this job has 4-16-2"));
}

TEST_F(DistWorkersTest, NoRecordLeadsOutOfTheSharedPath) {
  completed_by(learner_, learner_start());
  for (const char* data_id : {"../../secret", "/etc/passwd", "..", ".hidden", "a/b", ""}) {
    EXPECT_THAT(failure_of(learner_, learn_from({json::Object{{"data_id", data_id}}})),
                HasSubstr("no name of a file in the shared path"))
        << data_id;
  }
  EXPECT_THAT(failure_of(learner_, learner_start("../policy")), HasSubstr("no name of a file"));
  EXPECT_THAT(failure_of(learner_, learner_start("policy_1", "../data")),
              HasSubstr("buffer_id is no name"));
  EXPECT_THAT(failure_of(collector_, collector_start(false, "../policy")),
              HasSubstr("no name of a file"));

  // A link inside of it does not either.
  const std::string folder = config_.path_data + "/my-job/buffer_1";
  std::filesystem::create_directories(folder);
  std::filesystem::create_symlink("/etc/passwd", folder + "/link");
  completed_by(learner_, learner_start());
  EXPECT_THAT(failure_of(learner_, learn_from({json::Object{{"data_id", "link"}}})),
              HasSubstr("a link is not followed"));
}

TEST_F(DistWorkersTest, FilesThatAreGoneMakeALearnTaskShorter) {
  completed_by(learner_, learner_start());
  completed_by(collector_, collector_start(false));
  const json::Value record = completed_by(collector_, named("collector_data_task"));
  const json::Value gone = json::Object{{"data_id", "gone"}};
  EXPECT_EQ(completed_by(learner_, learn_from({gone})).int_at({"info", "learner_step"}), 0);
  EXPECT_EQ(completed_by(learner_, learn_from({record, gone})).int_at({"info", "learner_step"}), 8);
}

TEST_F(DistWorkersTest, ADamagedFileFailsTheTaskByName) {
  completed_by(learner_, learner_start());
  const std::string folder = config_.path_data + "/my-job/buffer_1";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/bad") << "nothing";
  EXPECT_THAT(failure_of(learner_, learn_from({json::Object{{"data_id", "bad"}}})),
              HasSubstr("buffer_1/bad"));
}

TEST_F(DistWorkersTest, TasksThatAreNotKnownOrOutOfTurnFail) {
  EXPECT_EQ(failure_of(learner_, named("dance")), "task name error");
  EXPECT_EQ(failure_of(collector_, named("dance")), "task name error");
  EXPECT_EQ(failure_of(collector_, named("collector_data_task")), "no task has started");
  EXPECT_EQ(failure_of(learner_, named("learner_learn_task")), "no task has started");
  EXPECT_THAT(failure_of(learner_, named("learner_start_task")), HasSubstr("no task_info"));
  EXPECT_THAT(failure_of(collector_, named("collector_start_task")), HasSubstr("no task_info"));
  completed_by(learner_, learner_start());
  EXPECT_THAT(failure_of(learner_, named("learner_learn_task")), HasSubstr("no list of records"));
}

TEST_F(DistWorkersTest, StopEndsAWaitForAPolicy) {
  completed_by(collector_, collector_start(false, "never_written"));
  collector_->stop();
  const json::Value progress = completed_by(collector_, named("collector_data_task"));
  EXPECT_EQ(progress.bool_at({"collector_done"}), false);
  collector_->master_gone();
  EXPECT_EQ(failure_of(collector_, named("collector_close_task")), "no task has started");
}

}  // namespace
}  // namespace divisi::dist_rl
