#include "dist_rl/dqn_commander.h"
#include "dist_rl/record_buffer.h"
#include "dist_rl/testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

namespace divisi::dist_rl {
namespace {

using dist::DropReason;
using dist::Role;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::small_config;
using testing::TemporaryFolder;

json::Value record_of(const std::string& data_id, std::int64_t rows) {
  return json::Object{{"data_id", data_id}, {"unroll_len", rows}, {"env_step", rows}};
}

bool is_evaluation(const json::Value& task) {
  return task.bool_at({"collector_cfg", "eval_flag"}).value_or(false);
}

class DqnCommanderTest : public ::testing::Test {
 protected:
  DqnCommanderTest() {
    config_.collector_target = 2;
    config_.eval_interval = 5;
    config_.dqn.eval_freq = 10;
  }

  std::shared_ptr<dist::Commander> make() {
    auto made =
        make_dqn_commander({.config = config_, .job = "my-job", .now = [this] { return now_; }});
    EXPECT_TRUE(made) << made.error().message();
    return *made;
  }
  // A learner task that a learner has accepted.
  json::Value begin(dist::Commander& commander) {
    const json::Value task = *commander.next_task(Role::kLearner);
    EXPECT_TRUE(commander.open_buffer(task.string_at({"buffer_id"}), task).ok());
    commander.accepted(Role::kLearner, task);
    return task;
  }
  void learn_until(dist::Commander& commander, const json::Value& task, std::int64_t iteration) {
    EXPECT_FALSE(commander.learner_info(task, json::Object{{"learner_step", iteration}}));
  }
  static json::Value evaluation_of(double reward) {
    return json::Object{{"eval_flag", true},
                        {"train_iter", 10},
                        {"real_episode_count", 5},
                        {"reward_mean", reward}};
  }
  // The next evaluation, whose collector tasks before it have ended.
  json::Value evaluation(dist::Commander& commander) {
    now_ += std::chrono::seconds(6);
    for (int i = 0; i < 2; ++i) {
      const auto task = commander.next_task(Role::kCollector);
      if (task && is_evaluation(*task)) return *task;
    }
    ADD_FAILURE() << "no evaluation is due";
    return {};
  }

  TemporaryFolder folder_;
  TrainConfig config_ = small_config(folder_);
  std::chrono::steady_clock::time_point now_{std::chrono::hours(1)};
};

TEST_F(DqnCommanderTest, ALearnerTaskComesFirstAndCollectorsShareItsBuffer) {
  const auto commander = make();
  EXPECT_FALSE(commander->next_task(Role::kCollector));
  const json::Value task = *commander->next_task(Role::kLearner);
  EXPECT_FALSE(commander->next_task(Role::kLearner)) << "one policy is trained";
  const auto first = commander->next_task(Role::kCollector);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->string_at({"buffer_id"}), task.string_at({"buffer_id"}));
  EXPECT_EQ(first->string_at({"collector_cfg", "policy_update_path"}),
            task.string_at({"policy_id"}));
  EXPECT_TRUE(commander->next_task(Role::kCollector));
  EXPECT_FALSE(commander->next_task(Role::kCollector)) << "two collectors, two tasks";
  commander->worker_added(Role::kCollector);
  EXPECT_TRUE(commander->next_task(Role::kCollector));
  commander->dropped(Role::kCollector, *first, DropReason::kTimedOut, "");
  EXPECT_FALSE(commander->next_task(Role::kCollector)) << "nobody took it: there are two";
  commander->worker_removed(Role::kCollector);
  commander->worker_added(Role::kCollector);
  EXPECT_FALSE(commander->next_task(Role::kCollector)) << "another took its place";
}

TEST_F(DqnCommanderTest, AnEvaluationAboveTheStopValueEndsTheJob) {
  const auto commander = make();
  const json::Value learner = begin(*commander);
  learn_until(*commander, learner, 20);
  const json::Value first = evaluation(*commander);
  EXPECT_TRUE(commander->collector_progress(first, json::Object{{"collector_done", true}}));
  commander->finished(Role::kCollector, first, evaluation_of(194.9));
  EXPECT_FALSE(commander->outcome());
  learn_until(*commander, learner, 40);
  commander->finished(Role::kCollector, evaluation(*commander), evaluation_of(195));
  ASSERT_TRUE(commander->outcome());
  EXPECT_TRUE(commander->outcome()->ok());
  EXPECT_FALSE(commander->next_task(Role::kCollector));
}

TEST_F(DqnCommanderTest, AnEvaluationWithoutEpisodesSaysNothing) {
  const auto commander = make();
  const json::Value learner = begin(*commander);
  learn_until(*commander, learner, 20);
  json::Value empty = evaluation_of(1000);
  empty["real_episode_count"] = 0;
  commander->finished(Role::kCollector, evaluation(*commander), empty);
  EXPECT_FALSE(commander->outcome());
}

TEST_F(DqnCommanderTest, TooManyStepsAreAFailureWithItsNumbers) {
  config_.dqn.max_env_step = 100;
  const auto commander = make();
  const json::Value learner = begin(*commander);
  commander->push(learner.string_at({"buffer_id"}), {}, record_of("a", 64));
  EXPECT_FALSE(commander->outcome());
  commander->push(learner.string_at({"buffer_id"}), {}, record_of("b", 64));
  ASSERT_TRUE(commander->outcome());
  EXPECT_THAT(commander->outcome()->message(), HasSubstr("max_env_step=100"));
}

TEST_F(DqnCommanderTest, ALearnerDrawsNoFasterThanRowsCome) {
  config_.dqn.samples_per_insert = 2;
  const auto commander = make();
  const std::string buffer(begin(*commander).string_at({"buffer_id"}));
  EXPECT_FALSE(commander->sample(buffer, 8, 0)) << "empty";
  commander->push(buffer, {}, record_of("a", 32));
  EXPECT_FALSE(commander->sample(buffer, 8, 0)) << "less than four batches";
  for (int i = 0; i < 3; ++i) commander->push(buffer, {}, record_of("b" + std::to_string(i), 32));
  // 128 rows, each to be drawn twice; a task of 8 records draws 16 batches of 16.
  const auto drawn = commander->sample(buffer, 8, 0);
  ASSERT_TRUE(drawn);
  EXPECT_EQ(drawn->size(), 8U);
  EXPECT_FALSE(commander->sample(buffer, 8, 0));
  for (int i = 0; i < 4; ++i) commander->push(buffer, {}, record_of("c" + std::to_string(i), 32));
  EXPECT_TRUE(commander->sample(buffer, 8, 0));
  EXPECT_FALSE(commander->sample("another", 8, 0));
}

TEST_F(DqnCommanderTest, FilesOfRecordsThatLeaveAreDeleted) {
  config_.dqn.replay_buffer_size = 64;
  auto commander = make();
  const std::string buffer(begin(*commander).string_at({"buffer_id"}));
  const std::string files = config_.path_data + "/my-job/" + buffer;
  std::filesystem::create_directories(files);
  for (const std::string name : {"a", "b", "c"}) {
    std::ofstream(files + "/" + name) << name;
    commander->push(buffer, {}, record_of(name, 32));
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::filesystem::exists(files + "/a") && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_FALSE(std::filesystem::exists(files + "/a"));
  EXPECT_TRUE(std::filesystem::exists(files + "/b"));
  commander->push(buffer, {}, record_of("../../../policy", 32));
  commander->close_buffer(buffer);
  commander.reset();
  EXPECT_FALSE(std::filesystem::exists(files));
}

TEST_F(DqnCommanderTest, ASecondCoordinatorGoesOnWhereTheFirstWas) {
  std::string checkpoint;
  {
    const auto commander = make();
    const json::Value learner = begin(*commander);
    checkpoint = learner.string_at({"learner_cfg", "checkpoint"});
    learn_until(*commander, learner, 20);
    commander->push(learner.string_at({"buffer_id"}), {}, record_of("a", 64));
  }
  {
    const auto commander = make();
    const json::Value learner = begin(*commander);
    EXPECT_EQ(learner.string_at({"learner_cfg", "checkpoint"}), checkpoint);
    EXPECT_EQ(learner.int_at({"learner_cfg", "train_iter"}), 20);
    const json::Value task = evaluation(*commander);
    EXPECT_EQ(task.int_at({"collector_cfg", "env_step"}), 64);
    commander->finished(Role::kCollector, task, evaluation_of(500));
  }
  const auto commander = make();
  EXPECT_NE(begin(*commander).string_at({"learner_cfg", "checkpoint"}), checkpoint)
      << "the job was over: this is the next one";
}

TEST_F(DqnCommanderTest, AStateThatIsNoneIsRefused) {
  std::filesystem::create_directories(config_.path_policy + "/my-job");
  std::ofstream(config_.path_policy + "/my-job/state.json") << "[";
  const auto made = make_dqn_commander({.config = config_, .job = "my-job"});
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message(), HasSubstr("state.json: not the state of a coordinator"));
  EXPECT_FALSE(make_dqn_commander({.config = config_, .job = "../job"}));
}

TEST(RecordBufferTest, TheOldestLeaveWhenThereAreTooManyRows) {
  RecordBuffer buffer({.capacity = 100});
  EXPECT_TRUE(buffer.push(record_of("a", 50), 50).empty());
  EXPECT_TRUE(buffer.push(record_of("b", 50), 50).empty());
  EXPECT_THAT(buffer.push(record_of("c", 60), 60), ElementsAre("a", "b"));
  EXPECT_THAT(buffer.push(record_of("d", 500), 500), ElementsAre("c"));
  EXPECT_EQ(buffer.size(), 1U);
}

TEST(RecordBufferTest, DrawsInProportionToPriorities) {
  RecordBuffer buffer({.capacity = 1000, .prioritised = true});
  for (const std::string name : {"a", "b", "c"}) buffer.push(record_of(name, 1), 1);
  buffer.set_priority("a", 0);
  buffer.set_priority("b", 1e6);
  buffer.set_priority("c", 0);
  buffer.set_priority("gone", 5);
  buffer.set_priority("c", std::nan(""));
  std::map<std::string, int, std::less<>> drawn;
  for (const json::Value& record : buffer.sample(1000))
    ++drawn[std::string(record.string_at({"data_id"}))];
  EXPECT_GT(drawn["b"], 990);
}

}  // namespace
}  // namespace divisi::dist_rl
