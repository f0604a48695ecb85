#include "dist/aggregator.h"

#include "dist/aggregate.h"
#include "dist/testing/dist_fixture.h"
#include "dist/testing/mock_training.h"

#include <gmock/gmock.h>

namespace divisi::dist {
namespace {

using ::testing::ElementsAre;
using testing::free_port;
using ::testing::HasSubstr;
using testing::MockLearner;
using testing::short_retry;
using testing::wait_until;

using std::chrono::milliseconds;

json::Value parsed(const char* text) {
  return *json::parse(text);
}

TEST(AggregateTest, BatchSizesAreAdded) {
  const auto merged = merge_demands({parsed(R"({"task_id": "t", "batch_size": 3})"),
                                     parsed(R"({"task_id": "t", "batch_size": 5})")});
  ASSERT_TRUE(merged);
  EXPECT_EQ(merged->demand, parsed(R"({"task_id": "t", "batch_size": 8})"));
  EXPECT_THAT(merged->sizes, ElementsAre(3, 5));
  EXPECT_FALSE(merge_demands({}));
  EXPECT_FALSE(merge_demands({parsed("{}")}));
  EXPECT_FALSE(merge_demands({parsed(R"({"batch_size": 0})")}));
  EXPECT_FALSE(merge_demands({parsed(R"({"batch_size": 9223372036854775807})"),
                              parsed(R"({"batch_size": 9223372036854775807})")}));
}

TEST(AggregateTest, RecordsAreSplitByDemand) {
  const json::Value records = parsed("[1, 2, 3]");
  const auto parts = split_records(&records, {1, 2});
  ASSERT_TRUE(parts);
  EXPECT_EQ(json::print((*parts)[0]), "[1]");
  EXPECT_EQ(json::print((*parts)[1]), "[2,3]");
  EXPECT_FALSE(split_records(&records, {1, 1}));
  EXPECT_FALSE(split_records(nullptr, {1}));
  EXPECT_FALSE(split_records(&records, {}));
}

TEST(AggregateTest, ResultsAreMerged) {
  const json::Value merged = merge_learned(
      {parsed(R"({"info": {"learner_step": 4, "priority_info": {"id": [1], "p": [0.5]},
                  "learner_done": false}, "task_id": "t"})"),
       parsed(R"({"info": {"learner_step": 5, "priority_info": {"id": [2, 3], "p": [1]},
                  "learner_done": true}, "task_id": "t"})")});
  EXPECT_EQ(merged, parsed(R"({"info": {"learner_step": 5, "priority_info": {"id": [1, 2, 3],
                               "p": [0.5, 1]}, "learner_done": true}, "task_id": "t"})"));
}

class AggregatorTest : public testing::DistFixture {
 protected:
  ~AggregatorTest() override {
    on_loop([&] { aggregator_.reset(); });
  }

  std::string start_aggregator(std::vector<std::string> learners) {
    AggregatorOptions options;
    options.slave = slave_options();
    options.master = master_options();
    options.learners = std::move(learners);
    options.connect_retry = milliseconds(50);
    options.connect_limit = milliseconds(400);
    options.print = [](std::string_view) {};
    std::string url;
    on_loop([&] {
      auto aggregator = Aggregator::start(*reactor_, options);
      ASSERT_TRUE(aggregator) << aggregator.error().message();
      aggregator_ = *std::move(aggregator);
      url = fmt::format("127.0.0.1:{}", aggregator_->address().port);
    });
    return url;
  }
  void wait_for_learners(std::size_t count) {
    wait_until("its learners are connected", [&] {
      std::size_t is = 0;
      on_loop([&] { is = aggregator_->learners(); });
      return is == count;
    });
  }
  TaskReport ask_task(const std::string& url, const char* text) { return task(url, parsed(text)); }

  static constexpr const char* kStart =
      R"({"name": "learner_start_task", "task_info": {"task_id": "t", "buffer_id": "b"}})";

  std::unique_ptr<Aggregator> aggregator_;
};

TEST_F(AggregatorTest, TwoLearnersLookLikeOne) {
  const std::string one = start_slave(std::make_shared<MockLearner>(1, 3));
  const std::string two = start_slave(std::make_shared<MockLearner>(1, 5));
  const std::string url = start_aggregator({one, two});
  wait_for_learners(2);
  start_master();
  ASSERT_TRUE(connect(url).ok());
  EXPECT_EQ(ask_task(url, R"({"name": "resource"})").result, parsed(R"({"gpu": 2})"));
  EXPECT_EQ(ask_task(url, kStart).result, parsed(R"({"message": "learner task has started"})"));
  const TaskReport demand = ask_task(url, R"({"name": "learner_get_data_task"})");
  EXPECT_EQ(demand.result.int_at({"batch_size"}), 8);
  json::Array records;
  for (int i = 0; i < 8; ++i) records.push_back(json::Object{{"data_id", std::to_string(i)}});
  const TaskReport learned =
      task(url, json::Object{{"name", "learner_learn_task"}, {"data", records}});
  ASSERT_EQ(learned.state, TaskState::kCompleted) << learned.why;
  EXPECT_EQ(learned.result.bool_at({"info", "learner_done"}), true);
  const json::Value* ids = learned.result.find_path({"info", "priority_info", "data_id"});
  ASSERT_NE(ids, nullptr);
  EXPECT_EQ(ids->as_array()->size(), 8U);
  const TaskReport closed = ask_task(url, R"({"name": "learner_close_task"})");
  EXPECT_EQ(closed.state, TaskState::kCompleted);
  EXPECT_EQ(closed.result, parsed(R"({"task_id": "t", "buffer_id": "b"})"));
  EXPECT_EQ(ask_task(url, kStart).state, TaskState::kCompleted);
}

TEST_F(AggregatorTest, BadTasksFail) {
  const std::string url = start_aggregator({start_slave(std::make_shared<MockLearner>(1, 3))});
  wait_for_learners(1);
  start_master();
  ASSERT_TRUE(connect(url).ok());
  EXPECT_EQ(ask_task(url, R"({"name": "dance"})").result,
            parsed(R"({"message": "task name error"})"));
  EXPECT_EQ(ask_task(url, R"({"name": "learner_close_task"})").state, TaskState::kFailed);
  ASSERT_EQ(ask_task(url, kStart).state, TaskState::kCompleted);
  EXPECT_THAT(ask_task(url, R"({"name": "learner_learn_task", "data": [{}]})").why,
              HasSubstr("asked for 0 records"));
}

TEST_F(AggregatorTest, WithoutLearnersATaskIsNotStarted) {
  const std::string url = start_aggregator({});
  start_master();
  ASSERT_TRUE(connect(url).ok());
  EXPECT_EQ(ask_task(url, R"({"name": "resource"})").result, parsed(R"({"gpu": 0})"));
  EXPECT_THAT(ask_task(url, kStart).why, HasSubstr("no learner is connected"));
}

TEST_F(AggregatorTest, ALostLearnerFailsTheTaskAndTheNextStarts) {
  const std::string one = start_slave(std::make_shared<MockLearner>(1, 3));
  const std::string two = start_slave(std::make_shared<MockLearner>(1, 5));
  const std::string url = start_aggregator({one, two});
  wait_for_learners(2);
  start_master();
  ASSERT_TRUE(connect(url).ok());
  ASSERT_EQ(ask_task(url, kStart).state, TaskState::kCompleted);
  on_loop([&] { slaves_.pop_back(); });
  EXPECT_EQ(ask_task(url, R"({"name": "learner_get_data_task"})").state, TaskState::kFailed);
  // The other one is connected again; the lost one is waited for until it has failed.
  wait_until("the next task starts",
             [&] { return ask_task(url, kStart).state == TaskState::kCompleted; });
  EXPECT_EQ(ask_task(url, R"({"name": "learner_get_data_task"})").result.int_at({"batch_size"}), 3);
}

TEST_F(AggregatorTest, ListsOfLearnersComeFromTheCoordinator) {
  const std::string one = start_slave(std::make_shared<MockLearner>(1, 3));
  const std::string url = start_aggregator({});
  start_master();
  ASSERT_TRUE(connect(url).ok());
  const auto send = [&](std::vector<std::string> urls) {
    return on_loop_until<Result<std::vector<std::string>>>(
        [&](auto done) { master_->send_learners(url, urls, done); });
  };
  const std::string nobody = "127.0.0.1:1";
  ASSERT_TRUE(send({one, nobody}));
  wait_for_learners(1);
  wait_until("one cannot be used", [&] {
    const auto unusable = send({one, nobody});
    return unusable && *unusable == std::vector<std::string>{nobody};
  });
  ASSERT_TRUE(send({}));
  wait_for_learners(0);
}

TEST_F(AggregatorTest, ItsLearnersAreFreedWhenTheCoordinatorLeaves) {
  const std::string one = start_slave(std::make_shared<MockLearner>(1, 3));
  const std::string url = start_aggregator({one});
  wait_for_learners(1);
  start_master();
  ASSERT_TRUE(connect(url).ok());
  ASSERT_EQ(ask_task(url, kStart).state, TaskState::kCompleted);
  ASSERT_TRUE(disconnect(url).ok());
  wait_for_learners(1);
  ASSERT_TRUE(connect(url).ok());
  wait_until("the next coordinator starts a task",
             [&] { return ask_task(url, kStart).state == TaskState::kCompleted; });
}

}  // namespace
}  // namespace divisi::dist
