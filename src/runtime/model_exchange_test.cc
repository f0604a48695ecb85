// The exchange of models on a fake network. With real nodes: tests/acceptance/exchange_test.cc.
#include "base/testing/wait_until.h"
#include "divisi/exchange.h"
#include "runtime/model_receiver.h"
#include "runtime/model_sender.h"
#include "runtime/task_fake_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace divisi {
namespace {

using namespace std::chrono_literals;
using runtime::ModelOrder;
using runtime::testing::FakeRouter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using State = std::map<std::string, Tensor>;
using Message = std::map<std::string, Value>;

using divisi::testing::kSoon;
constexpr auto kReceive = ModelExchangeMode::kReceive;

State state_of(double weight) {
  return {{"weight", Tensor::copy_of<double>({1}, std::vector<double>{weight})}};
}
double weight_of(const State& state) {
  return state.at("weight").view<double>()[0];
}

Message message_of(std::int64_t id, double weight, const std::string& sender = "a",
                   double age = 0) {
  Message message{{"id", id},
                  {"model", runtime::pack_model(state_of(weight))},
                  {"time", runtime::wall_clock() - age}};
  if (!sender.empty()) message["sender"] = sender;
  return message;
}

class ModelExchangeTest : public ::testing::Test {
 protected:
  ModelExchangeTest() { FakeRouter::link(router0_, router1_); }

  static void settle(Task& node) {
    auto done = std::make_shared<std::promise<void>>();
    node.once("settle", [done] { done->set_value(); });
    node.emit("settle", only_local);
    ASSERT_EQ(done->get_future().wait_for(kSoon), std::future_status::ready);
  }

  void send(const Message& message) {
    sender_.emit("model_exchanger", only_remote, message);
    settle(receiver_);
  }

  Model loading() {
    return {.load = [this](const State& state) { loaded_.push_back(weight_of(state)); }};
  }
  // The receiver goes through `steps` iterations.
  void iterate(Middleware& receive, std::int64_t from, std::int64_t to) {
    Context ctx;
    for (ctx.total_step = from; ctx.total_step < to; ++ctx.total_step) receive(ctx);
  }

  FakeRouter router0_{0};
  FakeRouter router1_{1};
  Task sender_{router0_};
  Task receiver_{router1_};
  std::vector<double> loaded_;
  std::shared_ptr<ModelVersion> version_ = std::make_shared<ModelVersion>();
};

TEST_F(ModelExchangeTest, TheNewestIsLoadedAndOthersAreSkipped) {
  const auto running0 = sender_.start();
  const auto running1 = receiver_.start();
  auto receive =
      periodical_model_exchanger(loading(), {.mode = kReceive, .in_use = version_}, receiver_);
  for (const int id : {0, 1, 2}) send(message_of(id, 10.0 + id));
  iterate(receive, 1, 2);
  EXPECT_THAT(loaded_, ElementsAre(12));
  EXPECT_EQ(version_->id(), 2);
  EXPECT_EQ(version_->iterations(), 1);
  EXPECT_EQ(version_->count(), 1);
  EXPECT_GE(version_->age(), 0s);
}

TEST_F(ModelExchangeTest, TheFirstIterationTakesWhatIsThereButDoesNotWait) {
  const auto running0 = sender_.start();
  const auto running1 = receiver_.start();
  auto receive =
      periodical_model_exchanger(loading(), {.mode = kReceive, .timeout = kForever}, receiver_);
  iterate(receive, 0, 1);
  EXPECT_TRUE(loaded_.empty());
  send(message_of(0, 1));
  iterate(receive, 0, 1);
  EXPECT_THAT(loaded_, ElementsAre(1));
}

TEST_F(ModelExchangeTest, AModelServesAsManyIterationsAsTolerated) {
  const auto running0 = sender_.start();
  const auto running1 = receiver_.start();
  auto receive = periodical_model_exchanger(
      loading(), {.mode = kReceive, .stale_toleration = 3, .timeout = kForever, .in_use = version_},
      receiver_);
  send(message_of(0, 1));
  iterate(receive, 1, 4);
  EXPECT_EQ(version_->iterations(), 3);
  // The fourth waits for another.
  auto fourth = std::async(std::launch::async, [&] { iterate(receive, 4, 5); });
  send(message_of(1, 2));
  ASSERT_EQ(fourth.wait_for(kSoon), std::future_status::ready);
  EXPECT_THAT(loaded_, ElementsAre(1, 2));
  EXPECT_EQ(version_->iterations(), 1);
}

TEST_F(ModelExchangeTest, D33AModelThatIsTooOldIsNotUsedAndTheNextIsWaitedFor) {
  const auto running0 = sender_.start();
  const auto running1 = receiver_.start();
  auto receive = periodical_model_exchanger(
      loading(), {.mode = kReceive, .delay_toleration = 1min, .timeout = kForever}, receiver_);
  send(message_of(0, 1, "a", 120));
  auto step = std::async(std::launch::async, [&] { iterate(receive, 1, 2); });
  send(message_of(1, 2, "a", 120));
  send(message_of(2, 3));
  ASSERT_EQ(step.wait_for(kSoon), std::future_status::ready);
  EXPECT_THAT(loaded_, ElementsAre(3));
}

TEST_F(ModelExchangeTest, AWaitForAModelEndsOnFinish) {
  const auto running = receiver_.start();
  auto receive =
      periodical_model_exchanger(loading(), {.mode = kReceive, .timeout = kForever}, receiver_);
  auto step = std::async(std::launch::async, [&] { iterate(receive, 1, 2); });
  receiver_.set_finish();
  ASSERT_EQ(step.wait_for(kSoon), std::future_status::ready);
}

TEST_F(ModelExchangeTest, AfterItsTimeoutTheOldModelGoesOn) {
  const auto running = receiver_.start();
  auto receive =
      periodical_model_exchanger(loading(), {.mode = kReceive, .timeout = 1ms}, receiver_);
  iterate(receive, 1, 3);
  EXPECT_TRUE(loaded_.empty());
}

TEST_F(ModelExchangeTest, OnlyIdsOfTheReceiversPeriod) {
  const auto running0 = sender_.start();
  const auto running1 = receiver_.start();
  auto receive = periodical_model_exchanger(
      loading(), {.mode = kReceive, .period = 4, .timeout = 1ms}, receiver_);
  for (const int id : {3, 4, 5, 6}) send(message_of(id, id));
  iterate(receive, 1, 2);
  EXPECT_THAT(loaded_, ElementsAre(4));
}

TEST_F(ModelExchangeTest, ASenderThatWasRestartedFreezesNobody) {
  const auto running0 = sender_.start();
  const auto running1 = receiver_.start();
  auto receive = periodical_model_exchanger(
      loading(), {.mode = kReceive, .timeout = 1ms, .in_use = version_}, receiver_);
  send(message_of(900, 1, "first"));
  iterate(receive, 1, 2);
  send(message_of(0, 2, "second"));
  iterate(receive, 2, 3);
  EXPECT_THAT(loaded_, ElementsAre(1, 2));
  EXPECT_EQ(version_->id(), 0);
  send(message_of(901, 3, "first"));  // a straggler
  iterate(receive, 3, 4);
  EXPECT_THAT(loaded_, ElementsAre(1, 2));
}

TEST(ModelOrderTest, WhatIsResentCountsOnce) {
  ModelOrder order;
  EXPECT_TRUE(order.take({4, 100, "a", {}}));
  EXPECT_FALSE(order.take({4, 100, "a", {}}));
  EXPECT_FALSE(order.take({3, 101, "a", {}}));
  EXPECT_TRUE(order.take({4, 101, "a", {}})) << "the same version, sent anew";
  EXPECT_TRUE(order.take({5, 101, "a", {}}));
}

TEST(ModelOrderTest, WithoutANameALowerIdCountsWhenItWasSentLater) {
  ModelOrder order;
  EXPECT_TRUE(order.take({900, 100, "", {}}));
  EXPECT_FALSE(order.take({0, 99, "", {}}));
  EXPECT_TRUE(order.take({0, 101, "", {}}));
  EXPECT_TRUE(order.take({1, 102, "c++", {}}));
  EXPECT_TRUE(order.take({0, 103, "", {}})) << "several may have no name";
}

TEST_F(ModelExchangeTest, TheSenderSendsEveryPeriodWithItsCounterOrItsVersion) {
  const auto running = sender_.start();
  std::int64_t train_iter = 70;
  sender_.use(
      periodical_model_exchanger({.state = [] { return state_of(1); }}, {.period = 3}, sender_));
  sender_.use(periodical_model_exchanger({.state = [] { return state_of(2); }},
                                         {.period = 2,
                                          .event_name = "other",
                                          .version = [&] { return train_iter; },
                                          .in_use = version_},
                                         sender_));
  sender_.use([&](Context&) { train_iter += 5; });
  sender_.run(7);
  std::vector<std::int64_t> ids;
  for (const auto& sent : router0_.sent("task.model_exchanger")) {
    ids.push_back(sent.args[0].at("id").as<std::int64_t>());
    EXPECT_EQ(sent.options.policy, Policy::kLatestOnly);
    EXPECT_EQ(weight_of(runtime::unpack_model(sent.args[0].at("model"))), 1);
  }
  EXPECT_THAT(ids, ElementsAre(0, 3, 6));
  ids.clear();
  for (const auto& sent : router0_.sent("task.other")) {
    ids.push_back(sent.args[0].at("id").as<std::int64_t>());
  }
  EXPECT_THAT(ids, ElementsAre(75, 85, 95, 105));
  EXPECT_EQ(version_->id(), 105);
}

TEST_F(ModelExchangeTest, TheModelThatASenderBeginsWithIsSentBeforeItsFirstIteration) {
  const auto running = sender_.start();
  std::int64_t train_iter = 70;
  std::vector<std::size_t> sent_before;
  sender_.use(periodical_model_exchanger(
      {.state = [&] { return state_of(static_cast<double>(train_iter)); }},
      {.period = 2,
       .version = [&] { return train_iter; },
       .in_use = version_,
       .send_at_start = true},
      sender_));
  sender_.use([&](Context&) {
    sent_before.push_back(router0_.sent("task.model_exchanger").size());
    if (sent_before.size() == 1) {
      EXPECT_EQ(version_->id(), 70);
    }
    train_iter += 5;
  });
  sender_.run(3);
  EXPECT_THAT(sent_before, ElementsAre(1, 2, 2));
  std::vector<double> weights;
  for (const auto& sent : router0_.sent("task.model_exchanger")) {
    weights.push_back(weight_of(runtime::unpack_model(sent.args[0].at("model"))));
    EXPECT_EQ(sent.args[0].at("id").as<std::int64_t>(), weights.back());
  }
  EXPECT_THAT(weights, ElementsAre(70, 75, 85));
}

TEST_F(ModelExchangeTest, AnAnswerDoesNotReplaceAModelThatCameMeanwhile) {
  const auto running0 = sender_.start();
  const auto running1 = receiver_.start();
  auto receive =
      periodical_model_exchanger(loading(), {.mode = kReceive, .in_use = version_}, receiver_);
  send(message_of(5, 1, "a"));
  // Of a second sender, to the request that the receiver made when it was created.
  sender_.emit("model_exchanger_latest", only_remote, message_of(9, 2, "b"));
  settle(receiver_);
  iterate(receive, 1, 2);
  EXPECT_THAT(loaded_, ElementsAre(1));
  EXPECT_EQ(version_->id(), 5);
}

TEST_F(ModelExchangeTest, AReceiverThatComesLateGetsTheLastModelAtOnce) {
  const auto running0 = sender_.start();
  sender_.use(periodical_model_exchanger({.state = [] { return state_of(5); }}, {}, sender_));
  sender_.run(4);
  const auto running1 = receiver_.start();
  auto receive = periodical_model_exchanger(
      loading(), {.mode = kReceive, .timeout = kSoon, .in_use = version_}, receiver_);
  iterate(receive, 1, 2);
  EXPECT_THAT(loaded_, ElementsAre(5));
  EXPECT_EQ(version_->id(), 3);
}

TEST_F(ModelExchangeTest, TheLearnerSendsEachIterationAndOthersLoadIt) {
  const auto running0 = sender_.start();
  const auto running1 = receiver_.start();
  sender_.add_role(Role::kLearner);
  receiver_.add_role(Role::kCollector);
  double weight = 0;
  sender_.use(model_exchanger({.state = [&] { return state_of(weight); }}, {}, sender_));
  auto receive = model_exchanger(loading(), {.timeout = 1ms}, receiver_);
  sender_.use([&](Context&) { ++weight; });
  sender_.run(2);
  settle(sender_);  // the question of the receiver
  settle(receiver_);
  iterate(receive, 1, 3);
  EXPECT_THAT(loaded_, ElementsAre(2));
  EXPECT_EQ(router0_.sent("task.model_exchanger").size(), 2u);
}

TEST_F(ModelExchangeTest, MistakesAreNamed) {
  const auto running = sender_.start();
  sender_.add_role(Role::kLearner);
  EXPECT_THAT([&] { (void)model_exchanger(loading(), {}, sender_); },
              ThrowsMessage<UsageError>(HasSubstr("needs Model::state")));
  EXPECT_THAT([&] { (void)periodical_model_exchanger({}, {.mode = kReceive}, sender_); },
              ThrowsMessage<UsageError>(HasSubstr("needs Model::load")));
  EXPECT_THAT([&] { (void)periodical_model_exchanger(loading(), {.period = 0}, sender_); },
              ThrowsMessage<UsageError>(HasSubstr("1 or more, not 0")));
  EXPECT_THAT([&] { (void)runtime::unpack_model(Value::Map{{"weight", "heavy"}}); },
              ThrowsMessage<PayloadError>(HasSubstr("weight is string")));
}

}  // namespace
}  // namespace divisi
