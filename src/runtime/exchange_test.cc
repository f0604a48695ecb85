// context_exchanger and the wait beneath all exchangers, on a fake network. With real nodes:
// tests/acceptance/exchange_test.cc.
#include "divisi/exchange.h"

#include "base/testing/wait_until.h"
#include "runtime/arrival.h"
#include "runtime/task_fake_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace divisi {
namespace {

using namespace std::chrono_literals;
using runtime::Arrival;
using runtime::testing::FakeRouter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using divisi::testing::kSoon;

struct Transition {
  std::int64_t action = 0;
  double reward = 0;
};
DIVISI_FIELDS(Transition, action, reward)

using Payload = std::map<std::string, Value>;

class ExchangeTest : public ::testing::Test {
 protected:
  ExchangeTest() { FakeRouter::link(router0_, router1_); }

  static StartOptions online() { return {.ctx = std::make_shared<OnlineRLContext>()}; }

  // Waits until `node` has handled everything that was posted to it before.
  static void settle(Task& node) {
    auto done = std::make_shared<std::promise<void>>();
    node.once("settle", [done] { done->set_value(); });
    node.emit("settle", only_local);
    ASSERT_EQ(done->get_future().wait_for(kSoon), std::future_status::ready);
  }

  static void collected(Task& node, const Payload& payload) {
    node.emit("context_exchanger_collector", only_remote, payload);
  }

  FakeRouter router0_{0};
  FakeRouter router1_{1};
  Task learner_{router0_};
  Task collector_{router1_};
};

TEST_F(ExchangeTest, D29EventsAreNamedByTheTextOfTheRole) {
  const auto running = learner_.start(online());
  learner_.add_role(Role::kLearner);
  learner_.use(context_exchanger({}, learner_));
  EXPECT_EQ(router0_.subscriptions("task.context_exchanger_collector"), 1u);
  EXPECT_EQ(router0_.subscriptions("task.context_exchanger_evaluator"), 1u);
  EXPECT_EQ(router0_.subscriptions("task.context_exchanger_fetcher"), 1u);
  EXPECT_EQ(router0_.subscriptions("task.context_exchanger_learner"), 0u);
}

TEST_F(ExchangeTest, D30ALearnerThatWaitsForDataEndsOnFinish) {
  const auto running0 = learner_.start(online());
  const auto running1 = collector_.start(online());
  learner_.add_role(Role::kLearner);
  learner_.use(context_exchanger({}, learner_));
  std::atomic<int> iterations = 0;
  learner_.use([&](Context&) { ++iterations; });
  auto run = std::async(std::launch::async, [&] { learner_.run(); });
  collector_.emit("finish", only_remote, true);
  ASSERT_EQ(run.wait_for(kSoon), std::future_status::ready);
  EXPECT_EQ(iterations, 1);
}

TEST_F(ExchangeTest, D30AlsoOnAFinishOfItsOwn) {
  const auto running = learner_.start(online());
  learner_.add_role(Role::kLearner);
  learner_.use(context_exchanger({}, learner_));
  auto run = std::async(std::launch::async, [&] { learner_.run(); });
  learner_.set_finish();
  ASSERT_EQ(run.wait_for(kSoon), std::future_status::ready);
}

TEST_F(ExchangeTest, D31NothingIsLostWhileTheLearnerTakesWhatCame) {
  constexpr std::int64_t kPayloads = 2000;
  const auto running0 = learner_.start(online());
  const auto running1 = collector_.start(online());
  learner_.add_role(Role::kLearner);
  learner_.use(context_exchanger({}, learner_));
  std::size_t trajectories = 0;
  learner_.use([&](OnlineRLContext& ctx) {
    trajectories += ctx.trajectories.get<std::vector<Value>>().size();
    if (ctx.env_step >= kPayloads) learner_.set_finish();
  });
  std::thread sender([&] {
    for (std::int64_t i = 0; i < kPayloads; ++i) {
      collected(collector_, {{"trajectories", Value::Array{i}}, {"env_step", 1}});
    }
  });
  auto run = std::async(std::launch::async, [&] { learner_.run(); });
  const bool ended = run.wait_for(kSoon) == std::future_status::ready;
  learner_.set_finish();
  sender.join();
  run.get();
  EXPECT_TRUE(ended) << "of " << kPayloads << " payloads " << trajectories << " arrived";
  EXPECT_EQ(trajectories, static_cast<std::size_t>(kPayloads));
  EXPECT_EQ(learner_.ctx<OnlineRLContext>().env_step, kPayloads);
}

TEST_F(ExchangeTest, ListsAreJoinedAndGrowthIsAdded) {
  const auto running0 = learner_.start(online());
  const auto running1 = collector_.start(online());
  learner_.ctx<OnlineRLContext>().env_step = 100;
  learner_.add_role(Role::kLearner);
  learner_.use(context_exchanger({.shift_end_indices = true}, learner_));
  const Payload payload{{"trajectories", Value::Array{1, "two"}},
                        {"trajectory_end_idx", Value::Array{0, 1}},
                        {"episodes", Value::Array{nullptr}},
                        {"env_step", 8},
                        {"env_episode", 2},
                        {"train_iter", 77},
                        {"colour", "red"}};
  collected(collector_, payload);
  collected(collector_, payload);
  settle(learner_);
  learner_.use([](OnlineRLContext& ctx) {
    EXPECT_EQ(ctx.trajectories.get<Value>(), Value(Value::Array{1, "two", 1, "two"}));
    EXPECT_THAT(ctx.trajectory_end_idx, ElementsAre(0, 1, 2, 3));
    EXPECT_EQ(ctx.episodes.get<std::vector<Value>>().size(), 2u);
    EXPECT_EQ(ctx.env_step, 116);
    EXPECT_EQ(ctx.env_episode, 4);
    EXPECT_EQ(ctx.train_iter, 0) << "a learner counts its own";
  });
  learner_.run(1);
}

TEST_F(ExchangeTest, IndicesStayAsTheyCameUnlessAskedFor) {
  const auto running0 = learner_.start(online());
  const auto running1 = collector_.start(online());
  learner_.add_role(Role::kLearner);
  learner_.use(context_exchanger({}, learner_));
  const Payload payload{{"trajectories", Value::Array{1, 2}},
                        {"trajectory_end_idx", Value::Array{1}}};
  collected(collector_, payload);
  collected(collector_, payload);
  settle(learner_);
  learner_.run(1);
  EXPECT_THAT(learner_.ctx<OnlineRLContext>().trajectory_end_idx, ElementsAre(1, 1));
}

TEST_F(ExchangeTest, ACollectorSendsItsListsAndHowMuchTheCountersGrew) {
  const auto running0 = learner_.start(online());
  const auto running1 = collector_.start(online());
  collector_.ctx<OnlineRLContext>().env_step = 1000;  // of an earlier run
  collector_.add_role(Role::kCollector);
  collector_.use(context_exchanger({.skip_n_iter = 10}, collector_));
  collector_.use([](OnlineRLContext& ctx) {
    ctx.env_step += 5;
    ctx.env_episode += 1;
    if (ctx.total_step == 0) ctx.trajectories = std::vector<Transition>{{3, 0.5}};
  });
  collector_.run(2);
  const auto sent = router1_.sent("task.context_exchanger_collector");
  ASSERT_EQ(sent.size(), 2u);
  const auto first = sent[0].args.get<Payload>(0);
  const auto second = sent[1].args.get<Payload>(0);
  EXPECT_EQ(first.at("trajectories").as<std::vector<Transition>>().at(0).reward, 0.5);
  EXPECT_EQ(first.at("env_step"), Value(5));
  EXPECT_EQ(first.at("env_episode"), Value(1));
  EXPECT_EQ(first.size(), 3u);
  EXPECT_EQ(second, (Payload{{"env_step", 5}, {"env_episode", 1}}));
}

TEST_F(ExchangeTest, TypedTrajectoriesArriveAsTheirType) {
  const auto running0 = learner_.start(online());
  const auto running1 = collector_.start(online());
  learner_.add_role(Role::kLearner);
  collector_.add_role(Role::kCollector);
  learner_.use(context_exchanger({}, learner_));
  collector_.use(context_exchanger({}, collector_));
  collector_.use([](OnlineRLContext& ctx) {
    ctx.trajectories = std::vector<Transition>{{1, 0.25}, {2, 0.5}};
  });
  collector_.run(1);
  learner_.run(1);
  auto& got = learner_.ctx<OnlineRLContext>().trajectories.get<std::vector<Transition>>();
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[1].action, 2);
}

TEST_F(ExchangeTest, AnEvaluatorHearsBothAndSendsNothing) {
  const auto running0 = learner_.start(online());
  const auto running1 = collector_.start(online());
  collector_.add_role(Role::kEvaluator);
  collector_.use(context_exchanger({}, collector_));
  learner_.emit("context_exchanger_learner", only_remote, Payload{{"train_iter", 7}});
  learner_.emit("context_exchanger_collector", only_remote,
                Payload{{"trajectories", Value::Array{1}}, {"env_step", 3}});
  settle(collector_);
  collector_.run(1);
  EXPECT_EQ(collector_.ctx<OnlineRLContext>().train_iter, 7);
  EXPECT_EQ(collector_.ctx<OnlineRLContext>().env_step, 3);
  EXPECT_TRUE(collector_.ctx<OnlineRLContext>().trajectories.empty());
  for (const char* const role : {"learner", "collector", "evaluator", "fetcher"}) {
    EXPECT_TRUE(router1_.sent("task.context_exchanger_" + std::string(role)).empty());
  }
}

TEST_F(ExchangeTest, WhoIsNoLearnerGoesOnAfterItsTimeout) {
  const auto running = collector_.start(online());
  collector_.add_role(Role::kCollector);
  collector_.use(context_exchanger({.timeout = 1ms}, collector_));
  collector_.run(3);
  EXPECT_EQ(collector_.ctx().total_step, 2);
}

TEST_F(ExchangeTest, WhatIsNoListIsAnErrorThatNamesTheField) {
  const auto running0 = learner_.start(online());
  const auto running1 = collector_.start(online());
  learner_.add_role(Role::kLearner);
  learner_.use(context_exchanger({}, learner_));
  learner_.use([](OnlineRLContext& ctx) { ctx.trajectories.get<Value>(); });  // would hide it
  collected(collector_, {{"trajectories", "text"}, {"env_step", 1}});
  EXPECT_THAT([&] { learner_.run(1); },
              ThrowsMessage<PayloadError>(HasSubstr("trajectories is a list, not string")));
}

TEST_F(ExchangeTest, VoidWithoutARole) {
  const auto running = learner_.start(online());
  EXPECT_TRUE(context_exchanger({}, learner_).is_void());
  EXPECT_TRUE(model_exchanger({}, {}, learner_).is_void());
}

// --- the wait ---

TEST_F(ExchangeTest, D33AWaitLooksOnceAndSleeps) {
  const auto running = learner_.start();
  Arrival arrival;
  int looked = 0;
  std::unique_lock lock(arrival.mutex);
  const auto woken = arrival.wait(learner_, lock, 50ms, [&] {
    ++looked;
    return false;
  });
  EXPECT_EQ(woken, Arrival::Woken::kTimeout);
  EXPECT_LE(looked, 2);
}

TEST_F(ExchangeTest, WhatCameBeforeTheWaitSleepsIsNotMissed) {
  const auto running = learner_.start();
  Arrival arrival;
  bool here = false;
  std::thread listener;
  std::unique_lock lock(arrival.mutex);
  const auto woken = arrival.wait(learner_, lock, kForever, [&] {
    if (!listener.joinable()) {
      listener = std::thread([&] {  // gets the mutex as soon as the wait lets it go
        const std::lock_guard guard(arrival.mutex);
        here = true;
        arrival.tell();
      });
    }
    return here;
  });
  listener.join();
  EXPECT_EQ(woken, Arrival::Woken::kReady);
}

}  // namespace
}  // namespace divisi
