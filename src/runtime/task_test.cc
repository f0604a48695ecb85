// The pipeline of a task: acceptance, and what else section 1
// of the specification says.
#include "divisi/task.h"

#include "base/log.h"
#include "base/sanitizer.h"
#include "base/testing/wait_until.h"
#include "runtime/task_core.h"
#include "runtime/task_fake_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace divisi {

namespace runtime {
// The process's router for this program: there is no network.
Router& router() {
  static testing::FakeRouter instance;
  return instance;
}
}  // namespace runtime

namespace {

using namespace std::chrono_literals;
using runtime::testing::FakeRouter;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Trace = std::vector<std::string>;
using Pipeline = std::vector<int>;

struct ListContext : Context {
  Pipeline pipeline;
  int calls = 0;
  DIVISI_KEEP(calls)
  DIVISI_CONTEXT(ListContext, pipeline, calls)

  // Middleware of one iteration may run at the same time in async mode.
  void add(int value) {
    const std::lock_guard lock(*mutex);
    pipeline.push_back(value);
  }
  std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();
};

StartOptions with_list(bool async_mode = false, int workers = 3) {
  return {
      .async_mode = async_mode, .n_async_workers = workers, .ctx = std::make_shared<ListContext>()};
}

Middleware adds(int value, std::chrono::milliseconds after = 0ms) {
  return named("step" + std::to_string(value), [value, after](ListContext& ctx) {
    std::this_thread::sleep_for(after);  // a step that takes its time, by the specification
    ctx.add(value);
  });
}

// Forward and backward.
Middleware adds_twice(int value, std::chrono::milliseconds after = 0ms) {
  return named("step" + std::to_string(value), [value, after](ListContext& ctx) {
    std::this_thread::sleep_for(after);
    ctx.add(value);
    suspend();
    ctx.add(value);
  });
}

Middleware traces(Trace& trace, const std::string& name) {
  return named(name, [&trace, name](Context&) {
    trace.push_back(name + "+");
    suspend();
    trace.push_back(name + "-");
  });
}

// What one middleware says and others wait for.
class Word {
 public:
  void say() { said_.set_value(); }
  bool comes() const { return heard_.wait_for(30s) == std::future_status::ready; }

 private:
  std::promise<void> said_;
  const std::shared_future<void> heard_ = said_.get_future().share();
};

class TaskTest : public ::testing::Test {
 protected:
  Pipeline& pipeline() { return task_.ctx<ListContext>().pipeline; }
  FakeRouter router_;
  Task task_{router_};
};

TEST_F(TaskTest, A001ForwardRunsOneMiddlewareOnTheContextAndRenewReplacesIt) {
  const auto running = task_.start(with_list());
  for (int round = 0; round < 2; ++round) {
    task_.forward(adds(0));
    task_.forward(adds(1));
  }
  EXPECT_EQ(pipeline(), (Pipeline{0, 1, 0, 1}));
  task_.renew();
  EXPECT_EQ(task_.ctx().total_step, 1);
  task_.forward(adds(0));
  task_.forward(adds(1));
  EXPECT_EQ(pipeline(), (Pipeline{0, 1}));
}

TEST_F(TaskTest, A002BackwardResumesWhatSuspendedAndEmptiesTheStack) {
  const auto running = task_.start(with_list());
  EXPECT_TRUE(task_.forward(adds_twice(0)));
  EXPECT_FALSE(task_.forward(adds(1)));
  EXPECT_EQ(task_.backward_stack_size(), 1u);
  task_.backward();
  EXPECT_EQ(pipeline(), (Pipeline{0, 1, 0}));
  EXPECT_EQ(task_.backward_stack_size(), 0u);
}

TEST_F(TaskTest, A003InAsyncModeForwardSubmitsToThePool) {
  const auto running = task_.start(with_list(true));
  std::array<Word, 4> added;
  for (int i = 0; i < 4; ++i) {
    Word& word = added[static_cast<std::size_t>(i)];
    task_.forward([&word, i](ListContext& ctx) {
      ctx.add(i % 2);
      word.say();
    });
    EXPECT_TRUE(word.comes()) << "nobody has called sync()";
  }
  task_.sync();
  EXPECT_EQ(pipeline(), (Pipeline{0, 1, 0, 1}));
  task_.renew();
  EXPECT_EQ(task_.ctx().total_step, 1);
}

TEST_F(TaskTest, A004InAsyncModeBackwardIsOneJobThatSyncJoins) {
  Word first_added;
  Word both_submitted;
  Word second_added;
  const auto running = task_.start(with_list(true));
  task_.forward([&](ListContext& ctx) {
    EXPECT_TRUE(both_submitted.comes());
    ctx.add(0);
    first_added.say();
    suspend();
    ctx.add(0);
  });
  task_.forward([&](ListContext& ctx) {
    EXPECT_TRUE(first_added.comes());
    ctx.add(1);
    second_added.say();
  });
  both_submitted.say();
  // Both come to their ends by themselves.
  EXPECT_TRUE(second_added.comes());
  testing::wait_until("the first is suspended", [&] { return task_.backward_stack_size() == 1; });
  task_.backward().sync();
  EXPECT_EQ(pipeline(), (Pipeline{0, 1, 0}));
  EXPECT_EQ(task_.backward_stack_size(), 0u);
}

TEST_F(TaskTest, A005BackwardPartsRunInReverseOrder) {
  Trace trace;
  const auto running = task_.start();
  task_.use(traces(trace, "a")).use(traces(trace, "b")).use(traces(trace, "c"));
  task_.run(1);
  EXPECT_EQ(trace, (Trace{"a+", "b+", "c+", "c-", "b-", "a-"}));
}

TEST_F(TaskTest, A006SerialIsOneMiddlewareWhosePartsKeepTheOrder) {
  Trace trace;
  const auto running = task_.start();
  const Middleware group = task_.serial(traces(trace, "b"), traces(trace, "c"));
  EXPECT_EQ(group.name(), "serial<b,c>");
  EXPECT_EQ(task_.sequence(traces(trace, "b"), traces(trace, "c")).name(), "sequence<b,c>");
  task_.use(traces(trace, "a")).use(group).use(traces(trace, "d"));
  task_.run(1);
  EXPECT_EQ(trace, (Trace{"a+", "b+", "c+", "d+", "d-", "c-", "b-", "a-"}));
}

TEST_F(TaskTest, A007ParallelRunsItsPartsAtTheSameTimeInSyncMode) {
  Word fast_ended;
  const auto running = task_.start(with_list());
  const Middleware slow = named("slow", [&](ListContext& ctx) {
    EXPECT_TRUE(fast_ended.comes());
    ctx.add(1);
  });
  const Middleware fast = named("fast", [&](ListContext& ctx) {
    ctx.add(2);
    fast_ended.say();
  });
  const Middleware group = task_.parallel(slow, fast);
  EXPECT_EQ(group.name(), "parallel<slow,fast>");
  task_.use(adds(0)).use(group);
  task_.run(1);
  EXPECT_EQ(pipeline(), (Pipeline{0, 2, 1}));
}

TEST_F(TaskTest, ParallelRunsItsBackwardPartsToo) {
  const auto running = task_.start(with_list());
  task_.use(task_.parallel(adds_twice(1), adds(2), adds_twice(3)));
  task_.use(adds(9));
  task_.run(1);
  ASSERT_EQ(pipeline().size(), 6u);
  EXPECT_EQ(pipeline()[3], 9);
  EXPECT_THAT((Pipeline{pipeline()[4], pipeline()[5]}), ::testing::UnorderedElementsAre(1, 3));
}

TEST_F(TaskTest, ParallelGroupsNest) {
  const auto running = task_.start(with_list(false, 1));
  task_.use(task_.parallel(task_.parallel(adds(1), adds_twice(2)), task_.serial(adds(3), adds(4))));
  task_.run(1);
  EXPECT_THAT(pipeline(), ::testing::UnorderedElementsAre(1, 2, 3, 4, 2));
}

TEST_F(TaskTest, AFailureInParallelLeavesRunAfterAllPartsEnded) {
  const auto running = task_.start(with_list());
  task_.use(task_.parallel(adds(1, 50ms), [](Context&) { throw std::runtime_error("part"); }));
  EXPECT_THROW(task_.run(1), std::runtime_error);
  EXPECT_EQ(pipeline(), (Pipeline{1}));
}

TEST_F(TaskTest, ParallelIsRefusedInAsyncMode) {
  const auto running = task_.start(with_list(true));
  EXPECT_THAT([&] { task_.parallel(adds(1)); },
              ThrowsMessage<UsageError>(HasSubstr("not allowed in async mode")));
}

TEST_F(TaskTest, A008SerialKeepsItsOrderInAsyncMode) {
  const auto running = task_.start(with_list(true));
  task_.use(adds(0));
  task_.use(task_.serial(adds(1, 100ms), adds(2)));
  task_.run(1);
  EXPECT_EQ(pipeline(), (Pipeline{0, 1, 2}));
}

TEST_F(TaskTest, A009AMotherRunsTheTwoPartsOfItsChild) {
  Pipeline trace;
  const auto running = task_.start();
  const Wrapped child = task_.wrap([&](Context& ctx) {
    trace.push_back(3 * static_cast<int>(ctx.total_step));
    suspend();
    trace.push_back(3 * static_cast<int>(ctx.total_step) + 2);
  });
  task_.use([&](Context& ctx) {
    const Back back = child(ctx);
    EXPECT_TRUE(back);
    trace.push_back(3 * static_cast<int>(ctx.total_step) + 1);
    back();
    EXPECT_FALSE(back);
    back();  // once only
  });
  task_.run(2);
  EXPECT_EQ(trace, (Pipeline{0, 1, 2, 3, 4, 5}));
}

TEST_F(TaskTest, AWrappedChildThatIsNotResumedWaitsForTheBackwardPhase) {
  Trace trace;
  const auto running = task_.start();
  const Wrapped child = task_.wrap(traces(trace, "child"));
  EXPECT_EQ(child.name(), "child");
  task_.use([&](Context& ctx) {
    child(ctx);
    trace.emplace_back("mother+");
    suspend();
    trace.emplace_back("mother-");
  });
  task_.use(traces(trace, "next"));
  task_.run(1);
  EXPECT_EQ(trace, (Trace{"child+", "mother+", "next+", "next-", "mother-", "child-"}));
}

TEST_F(TaskTest, A010MiddlewareUnderTheTasksLockNeverOverlap) {
  const auto running = task_.start(with_list(true));
  task_.use(adds(1, 100ms), {.lock = true});
  task_.use(adds(2), {.lock = true});
  task_.run(1);
  EXPECT_EQ(pipeline().back(), 2);
}

TEST_F(TaskTest, MiddlewareUnderOneLockRunInTheOrderOfRegistration) {
  const auto running = task_.start(with_list(true, 4));
  for (int value = 0; value < 4; ++value) task_.use(adds(value), {.lock = true});
  for (int round = 0; round < 200; ++round) {
    task_.run(1);
    ASSERT_EQ(pipeline(), (Pipeline{0, 1, 2, 3}));
    task_.renew();
  }
}

TEST_F(TaskTest, A011DifferentLocksDoNotInfluenceEachOther) {
  std::mutex custom;
  Word second_ended;
  Word third_ended;
  const auto running = task_.start(with_list(true));
  // Has the task's lock while the two others, under theirs, come and go.
  task_.use(
      [&](ListContext& ctx) {
        EXPECT_TRUE(second_ended.comes());
        EXPECT_TRUE(third_ended.comes());
        ctx.add(1);
      },
      {.lock = true});
  const auto adds_and_says = [](int value, Word& word) {
    return [value, &word](ListContext& ctx) {
      ctx.add(value);
      word.say();
    };
  };
  task_.use(adds_and_says(2, second_ended), {.lock = custom});
  task_.use(adds_and_says(3, third_ended), {.lock = custom});
  task_.run(1);
  EXPECT_EQ(pipeline(), (Pipeline{2, 3, 1}));
}

TEST_F(TaskTest, TheLockIsHeldInTheBackwardPhaseToo) {
  std::mutex custom;
  bool free_in_forward = true;
  bool free_in_backward = true;
  const auto is_free = [&] {
    bool taken = false;
    std::thread([&] {
      taken = custom.try_lock();
      if (taken) custom.unlock();
    }).join();
    return taken;
  };
  const auto running = task_.start();
  task_.use(
      [&](Context&) {
        free_in_forward = is_free();
        suspend();
        free_in_backward = is_free();
      },
      {.lock = custom});
  task_.use([&](Context&) { EXPECT_TRUE(is_free()); });
  task_.run(1);
  EXPECT_FALSE(free_in_forward);
  EXPECT_FALSE(free_in_backward);
}

TEST_F(TaskTest, A012AFailureInAsyncModeEndsAnEndlessWait) {
  const auto running = task_.start(with_list(true, 2));
  task_.use([&](Context&) { EXPECT_FALSE(task_.wait_for("never").has_value()); });
  task_.use([](Context&) {
    std::this_thread::sleep_for(300ms);
    throw std::runtime_error("late");
  });
  EXPECT_THROW(task_.run(2), std::runtime_error);
  EXPECT_EQ(task_.ctx().total_step, 0);
}

TEST_F(TaskTest, ASecondFailureOfAnAsyncRunIsNotOneOfTheNextRun) {
  const auto running = task_.start(with_list(true, 2));
  std::promise<void> first_run_ended;
  auto ended = first_run_ended.get_future().share();
  bool fails = true;
  task_.use([&](Context&) {
    if (!fails) return;
    ended.wait();
    throw std::runtime_error("second");
  });
  task_.use([&](Context&) {
    if (fails) throw std::runtime_error("first");
  });
  EXPECT_THROW(task_.run(1), std::runtime_error);
  first_run_ended.set_value();
  EXPECT_NO_THROW(task_.sync()) << "which joins it";
  fails = false;
  EXPECT_NO_THROW(task_.run(2));
}

TEST_F(TaskTest, A013NoBackwardPartRunsWhenAForwardPartThrows) {
  Trace trace;
  struct Guard {
    Trace& trace;
    std::string name;
    ~Guard() { trace.push_back(name); }
  };
  const auto running = task_.start();
  for (const std::string name : {"first", "second"}) {
    task_.use([&trace, name](Context&) {
      const Guard guard{trace, name};
      suspend();
      trace.emplace_back("backward");
    });
  }
  task_.use([](Context&) { throw std::runtime_error("third"); });
  EXPECT_THROW(task_.run(1), std::runtime_error);
  EXPECT_EQ(trace, (Trace{"second", "first"}));
  EXPECT_EQ(task_.backward_stack_size(), 0u);
}

TEST_F(TaskTest, SuspendedMiddlewareAreUnwoundInReverseOrderAtStop) {
  Trace trace;
  struct Guard {
    Trace& trace;
    std::string name;
    ~Guard() { trace.push_back(name); }
  };
  const auto suspends = [&trace](const std::string& name) {
    return [&trace, name](Context&) {
      const Guard guard{trace, name};
      suspend();
    };
  };
  {
    const auto running = task_.start();
    task_.forward(suspends("a"));
    task_.forward(task_.serial(suspends("b"), suspends("c")));
    task_.forward(suspends("d"));
  }
  EXPECT_EQ(trace, (Trace{"d", "c", "b", "a"}));
}

TEST_F(TaskTest, A014FinishDoesNotCutTheIterationShort) {
  Trace trace;
  const auto running = task_.start();
  task_.use(traces(trace, "a"));
  task_.use([&](Context&) { task_.set_finish(); });
  task_.use(traces(trace, "b"));
  task_.run(5);
  EXPECT_EQ(trace, (Trace{"a+", "b+", "b-", "a-"}));
  EXPECT_EQ(task_.ctx().total_step, 0);
}

TEST_F(TaskTest, A015TheFlagIsSetAfterTheLastIteration) {
  std::vector<bool> seen;
  const auto running = task_.start();
  task_.use([&](Context&) { seen.push_back(task_.finish()); });
  task_.run(3);
  EXPECT_EQ(seen, (std::vector{false, false, false}));
  EXPECT_TRUE(task_.finish());
  EXPECT_EQ(task_.ctx().total_step, 2);
}

TEST_F(TaskTest, A016AnEmptyPipelineReturnsAtOnce) {
  const auto running = task_.start();
  task_.run(3);
  EXPECT_FALSE(task_.finish());
}

TEST_F(TaskTest, A017CallsOnAStoppedTaskSayThatItMustBeStarted) {
  const auto must_be_started = ThrowsMessage<UsageError>(HasSubstr("must be started"));
  const auto check_all = [&] {
    EXPECT_THAT([&] { task_.run(1); }, must_be_started);
    EXPECT_THAT([&] { task_.emit("e", 1); }, must_be_started);
    EXPECT_THAT([&] { task_.forward(adds(0)); }, must_be_started);
    EXPECT_THAT([&] { task_.backward(); }, must_be_started);
    EXPECT_THAT([&] { task_.renew(); }, must_be_started);
    EXPECT_THAT([&] { task_.wait_for("e"); }, must_be_started);
  };
  check_all();
  {
    const auto running = task_.start();
  }
  EXPECT_FALSE(task_.running());
  check_all();
  EXPECT_THAT([&] { task_.use(adds(0)); }, must_be_started);
}

TEST_F(TaskTest, A023LabelsAreMatchedWithGlobs) {
  const auto running = task_.start({.labels = {"learner", "gpu"}});
  EXPECT_TRUE(task_.match_labels("learn*"));
  EXPECT_TRUE(task_.match_labels({"x", "gpu"}));
  EXPECT_TRUE(task_.match_labels("standalone"));
  EXPECT_FALSE(task_.match_labels("node.*"));
  EXPECT_FALSE(task_.match_labels(std::vector<std::string>{}));
  EXPECT_FALSE(task_.match_labels("async"));
}

TEST_F(TaskTest, LabelsTellTheModeAndTheNode) {
  FakeRouter node(3);
  node.launcher_labels = {"rack.7"};
  Task distributed(node);
  const auto running = distributed.start({.async_mode = true, .labels = {"own"}});
  EXPECT_EQ(distributed.labels(),
            (std::set<std::string>{"async", "distributed", "node.3", "rack.7", "own"}));
}

TEST_F(TaskTest, A024EveryRoleIsOursUntilOneIsAdded) {
  const auto running = task_.start();
  EXPECT_TRUE(task_.has_role(Role::kLearner));
  task_.add_role(Role::kCollector);
  EXPECT_FALSE(task_.has_role(Role::kLearner));
  EXPECT_TRUE(task_.has_role("collector"));
  EXPECT_EQ(Role::kLearner, "learner");
  EXPECT_EQ(task_.roles(), (std::set<std::string>{"collector"}));
}

TEST_F(TaskTest, A025ATaskThatWasNeverStartedStartsAtItsFirstUse) {
  int prints = 0;
  {
    Task legacy(router_);
    legacy.use([&](Context&) { ++prints; });
    legacy.run(10);
  }
  EXPECT_EQ(prints, 10);
}

TEST_F(TaskTest, D10TheOptionsOfTheConstructorAreUsedByTheImplicitStart) {
  Task legacy(router_, {.async_mode = true, .labels = {"own"}});
  legacy.on("e", [] {});
  EXPECT_TRUE(legacy.running());
  EXPECT_TRUE(legacy.async_mode());
  EXPECT_TRUE(legacy.match_labels("own"));
}

TEST_F(TaskTest, A026FilterLabelsAreEvaluatedAtRegistration) {
  int filtered = 0;
  int unfiltered = 0;
  const auto running = task_.start();
  task_.use([&](Context&) { ++filtered; }, {.filter_labels = {"async"}});
  task_.use([&](Context&) { ++unfiltered; }, {.filter_labels = {"x", "stand*"}});
  task_.use([&](Context&) { ++unfiltered; });
  task_.run(1);
  EXPECT_EQ(filtered, 0);
  EXPECT_EQ(unfiltered, 2);
}

TEST_F(TaskTest, A027D16BackOfAWrappedPlainFunctionDoesNothing) {
  const auto running = task_.start(with_list());
  const Wrapped plain = task_.wrap(adds(1));
  const Back back = plain(task_.ctx());
  EXPECT_FALSE(back);
  back();
  back();
  EXPECT_EQ(pipeline(), (Pipeline{1}));
}

TEST_F(TaskTest, D45SerialTakesAnyCallable) {
  struct Step {
    void operator()(ListContext& ctx) const { ctx.add(7); }
  };
  const auto running = task_.start(with_list());
  const Middleware group = task_.serial(Step{}, [](ListContext& ctx) { ctx.add(8); });
  EXPECT_THAT(group.name(), AllOf(HasSubstr("serial<"), HasSubstr("Step")));
  task_.use(group);
  task_.run(1);
  EXPECT_EQ(pipeline(), (Pipeline{7, 8}));
}

TEST_F(TaskTest, AMiddlewareThatSuspendsAfterItsIterationFailedIsNeverResumed) {
  std::promise<void> gate;
  std::atomic<int> runs{0};
  std::atomic<int> resumed{0};
  std::atomic<int> unwound{0};
  const auto running = task_.start(with_list(true));
  task_.use([&, open = gate.get_future().share()](Context&) {
    const std::shared_ptr<void> guard(nullptr, [&](void*) { ++unwound; });
    open.wait();
    suspend();
    ++resumed;
  });
  task_.use([&](Context&) {
    if (++runs == 1) throw std::runtime_error("first run");
  });
  EXPECT_THROW(task_.run(1), std::runtime_error);
  gate.set_value();
  task_.sync();
  EXPECT_EQ(task_.backward_stack_size(), 0u);
  EXPECT_EQ(unwound, 1);
  task_.run(1);
  EXPECT_EQ(resumed, 1) << "only that of the second run";
}

TEST_F(TaskTest, AWrapperThatStopsTheTaskWrapsNothing) {
  auto running = task_.start();
  task_.use([](Context&) {}).use([](Context&) {});
  const auto stops = [&](Middleware fn) {
    task_.stop();
    return fn;
  };
  task_.use_wrapper(stops);
  EXPECT_FALSE(task_.running());
  EXPECT_EQ(task_.middleware_count(), 0u);

  const auto again = task_.start();
  task_.use_wrapper(stops);
  task_.use([](Context&) {});
  EXPECT_FALSE(task_.running());
  EXPECT_EQ(task_.middleware_count(), 0u);
}

TEST_F(TaskTest, WhatIsRegisteredWhileAWrapperRunsIsWrappedToo) {
  std::vector<std::string> wrapped;
  const auto running = task_.start();
  task_.use(named("first", [](Context&) {}));
  task_.use_wrapper([&](Middleware fn) {
    wrapped.push_back(fn.name());
    if (wrapped.size() == 1) {
      task_.use(named("second", [](Context&) {}));
      task_.use_wrapper([&](Middleware inner) {
        wrapped.push_back("inside of " + inner.name());
        return inner;
      });
    }
    return fn;
  });
  EXPECT_THAT(wrapped, ::testing::ElementsAre("first", "inside of first", "inside of second",
                                              "first", "second"));
}

TEST_F(TaskTest, AWrapperThatThrowsIsNotRegistered) {
  const auto running = task_.start();
  int wrapped = 0;
  task_.use([](Context&) {});
  const auto fails = [&](const Middleware&) -> Middleware {
    ++wrapped;
    throw std::runtime_error("a wrapper's");
  };
  EXPECT_THROW(task_.use_wrapper(fails), std::runtime_error);
  task_.use([](Context&) {});
  EXPECT_EQ(wrapped, 1);
  EXPECT_EQ(task_.middleware_count(), 2u);
}

TEST_F(TaskTest, WrappersApplyToEarlierAndLaterMiddlewareTheLastOneOutermost) {
  Trace trace;
  const auto wrapper = [&trace](const std::string& name) {
    return [&trace, name](const Middleware& fn) {
      std::string inner = fn.name();
      return named(std::move(inner), [&trace, name, fn](Context& ctx) {
        trace.push_back(name);
        fn(ctx);
      });
    };
  };
  const auto running = task_.start();
  task_.use(named("early", [&](Context&) { trace.emplace_back("early"); }));
  task_.use_wrapper(wrapper("one"));
  task_.use_step_wrapper(wrapper("two"));
  task_.use(named("late", [&](Context&) { trace.emplace_back("late"); }));
  task_.run(1);
  EXPECT_EQ(trace, (Trace{"two", "one", "early", "two", "one", "late"}));
}

TEST_F(TaskTest, AVoidMiddlewareIsSkipped) {
  const auto running = task_.start();
  task_.use(task_.void_middleware()).use([](Context&) {});
  EXPECT_EQ(task_.middleware_count(), 1u);
}

TEST_F(TaskTest, InAsyncModeBackwardReversesTheOrderOfRegistrationNotOfSuspension) {
  const auto running = task_.start(with_list(true));
  task_.use(adds_twice(1, 100ms)).use(adds_twice(2)).use(adds_twice(3, 50ms));
  task_.run(1);
  EXPECT_EQ((Pipeline{pipeline().begin() + 3, pipeline().end()}), (Pipeline{3, 2, 1}));
}

TEST_F(TaskTest, ATaskMayBeStartedAgainWithAnEmptyPipeline) {
  for (int life = 0; life < 3; ++life) {
    const auto running = task_.start(with_list());
    EXPECT_EQ(task_.middleware_count(), 0u);
    EXPECT_FALSE(task_.finish());
    task_.use(adds(life));
    task_.run(2);
    EXPECT_TRUE(task_.finish());
  }
  EXPECT_EQ(task_.ctx().total_step, 1) << "the last context stays readable";
}

TEST_F(TaskTest, StartingARunningTaskIsRefused) {
  const auto running = task_.start();
  EXPECT_THROW(static_cast<void>(task_.start()), UsageError);
  EXPECT_THROW(static_cast<void>(Task(router_).start({.n_async_workers = 0})), UsageError);
}

TEST_F(TaskTest, TheGuardOfAnEarlierStartDoesNotStopALaterOne) {
  auto first = std::make_unique<Running>(task_.start());
  task_.stop();
  const auto second = task_.start();
  first.reset();
  EXPECT_TRUE(task_.running());
}

TEST_F(TaskTest, WithStopsTheTaskWhateverHappensInside) {
  EXPECT_THROW(task_.with({}, [&] { throw std::runtime_error("inside"); }), std::runtime_error);
  EXPECT_FALSE(task_.running());
  task_.with({}, [&] { EXPECT_TRUE(task_.running()); });
  EXPECT_FALSE(task_.running());
}

TEST_F(TaskTest, OnFinishRunsOnceBeforeStopHoweverTheRunEnded) {
  int hooks = 0;
  task_.with(with_list(), [&] {
    task_.on_finish([&](Context& ctx) {
      ++hooks;
      EXPECT_TRUE(task_.running());
      EXPECT_EQ(ctx.total_step, 1);
    });
    task_.use(adds(1));
    task_.run(2);
    EXPECT_EQ(hooks, 0);
  });
  EXPECT_EQ(hooks, 1);

  EXPECT_THROW(task_.with({},
                          [&] {
                            task_.on_finish([&](Context&) { ++hooks; });
                            task_.use([](Context&) { throw std::runtime_error("x"); });
                            task_.run();
                          }),
               std::runtime_error);
  EXPECT_EQ(hooks, 2);
}

TEST_F(TaskTest, AFailingFinishHookIsRaisedAfterTheCleanup) {
  auto running = task_.start();
  task_.on_finish([](Context&) { throw std::runtime_error("hook"); });
  EXPECT_THROW(running.stop(), std::runtime_error);
  EXPECT_FALSE(task_.running());
}

TEST_F(TaskTest, AMiddlewareSeesTheSameContextInBothParts) {
  int resumed = 0;
  const auto running = task_.start();
  task_.use([&](Context& ctx) {
    const Context* before = &ctx;
    const std::int64_t step = ctx.total_step;
    suspend();
    ++resumed;
    EXPECT_EQ(before, &ctx);
    EXPECT_EQ(step, ctx.total_step);
  });
  task_.run(3);
  EXPECT_EQ(resumed, 3);
}

TEST_F(TaskTest, MiddlewareUsedInsideAnIterationRunsInTheSameOne) {
  Trace trace;
  const auto running = task_.start();
  task_.use([&](Context& ctx) {
    trace.emplace_back("a");
    if (ctx.total_step == 0) task_.use([&](Context&) { trace.emplace_back("b"); });
  });
  task_.run(2);
  EXPECT_EQ(trace, (Trace{"a", "b", "a", "b"}));
}

TEST_F(TaskTest, AStackGivenToBackwardIsTheOnlyOneResumed) {
  const auto running = task_.start(with_list());
  task_.forward(adds_twice(1));
  std::vector<Back> stack;
  stack.push_back(task_.forward(adds_twice(2)));
  stack.push_back(task_.forward(adds_twice(3)));
  task_.backward(stack);
  EXPECT_EQ(pipeline(), (Pipeline{1, 2, 3, 3, 2}));
  EXPECT_TRUE(stack.empty());
  EXPECT_EQ(task_.backward_stack_size(), 1u);
  task_.backward(stack);
  EXPECT_EQ(pipeline().back(), 1);
}

TEST_F(TaskTest, AsyncExecutorRunsAJobThatSyncJoins) {
  const auto running = task_.start(with_list(true));
  std::atomic<int> sum{0};
  task_.async_executor([&](int a, std::unique_ptr<int> b) { sum = a + *b; }, 1,
                       std::make_unique<int>(2));
  task_.sync();
  EXPECT_EQ(sum, 3);
  task_.async_executor([] { throw std::runtime_error("job"); });
  EXPECT_THROW(task_.sync(), std::runtime_error);
}

TEST_F(TaskTest, AsyncExecutorNeedsAPool) {
  const auto running = task_.start();
  EXPECT_THAT([&] { task_.async_executor([] {}); },
              ThrowsMessage<UsageError>(HasSubstr("async or parallel mode")));
}

TEST_F(TaskTest, SyncInsideAJobOfThePoolIsAUsageErrorAndNotADeadlock) {
  const auto running = task_.start(with_list(true));
  task_.use([&](Context&) { task_.sync(); });
  EXPECT_THAT([&] { task_.run(1); }, ThrowsMessage<UsageError>(HasSubstr("wait for itself")));
}

TEST_F(TaskTest, AMiddlewareForAnotherContextIsRefusedWithBothTypes) {
  const auto running = task_.start();
  task_.use([](ListContext&) {});
  EXPECT_THAT([&] { task_.run(1); }, ThrowsMessage<UsageError>(AllOf(
                                         HasSubstr("ListContext"), HasSubstr("divisi::Context"))));
}

TEST_F(TaskTest, StopGivesUpOnAMiddlewareThatNeverEnds) {
  auto release = std::make_shared<std::promise<void>>();
  auto future = std::make_shared<std::shared_future<void>>(release->get_future());
  auto options = with_list(true);
  options.stop_timeout = 20ms;
  auto running = task_.start(options);
  auto started = std::make_shared<std::promise<void>>();
  task_.forward([future, started](Context&) {
    started->set_value();
    future->wait();
  });
  started->get_future().wait();
  running.stop();
  EXPECT_FALSE(task_.running());
  release->set_value();
}

TEST_F(TaskTest, TheLongestStopTimeoutWaitsForWhatIsQueuedAndForMiddleware) {
  auto options = with_list(true);
  options.stop_timeout = std::chrono::milliseconds::max();
  auto running = task_.start(options);
  std::promise<void> stopping;
  std::shared_future<void> both(stopping.get_future());
  std::atomic<int> heard{0};
  std::atomic<bool> ended{false};
  task_.on("e", [&] {
    both.wait();
    std::this_thread::sleep_for(1ms);  // a slow listener: stop has much to wait for
    ++heard;
  });
  for (int i = 0; i < 20; ++i) task_.emit("e");
  task_.forward([&](Context&) {
    both.wait();
    std::this_thread::sleep_for(30ms);
    ended = true;
  });
  task_.on_finish([&](Context&) { stopping.set_value(); });
  running.stop();
  EXPECT_EQ(heard, 20);
  EXPECT_TRUE(ended);
}

TEST_F(TaskTest, AMiddlewareMayStopItsOwnTask) {
  for (const bool async_mode : {false, true}) {
    auto running = task_.start(with_list(async_mode));
    int calls = 0;
    task_.use([&](Context&) {
      ++calls;
      task_.stop();
    });
    task_.run(5);
    EXPECT_EQ(calls, 1);
  }
}

TEST_F(TaskTest, AForkedChildMayStartItAnewAndLeavesTheParentsAlone) {
  auto running = task_.start(with_list(true));
  std::atomic<int> heard{0};
  std::atomic<int> finished{0};
  task_.on("e", [&] { ++heard; });
  task_.on_finish([&](Context&) { ++finished; });
  task_.emit("e");
  task_.async_executor([] {});
  task_.sync();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_nobody = !task_.running() && task_.middleware_count() == 0;
    running.stop();  // the parent's: nothing happens
    bool refused = false;
    try {
      task_.on("e", [] {});
    } catch (const UsageError&) {
      refused = true;
    }
    const bool right = is_nobody && finished == 0 && refused;
    if (kThreadSanitizer) ::_exit(right ? 0 : 1);  // it knows no threads after a fork
    heard = 0;
    auto own = task_.start();
    task_.on("e", [&] { ++heard; });
    task_.emit("e");
    own.stop();
    ::_exit(right && heard == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  task_.emit("e");
  running.stop();
  EXPECT_EQ(heard, 2);
  EXPECT_EQ(finished, 1);
}

TEST_F(TaskTest, AForkedChildFindsNoLockTaken) {
  constexpr int kForks = 60;
  const int terminal = ::dup(STDERR_FILENO);
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(::dup2(nowhere, STDERR_FILENO), 0);
  std::atomic<bool> done{false};
  std::vector<std::jthread> busy;
  for (int i = 0; i < 4; ++i) {
    busy.emplace_back([&] {
      EventLoop loop;
      while (!done) {
        loop.off("e", loop.on("e", [] {}));
        log::info("busy");
        const Buffer pooled(std::size_t{8} << 10);
        const Buffer large(std::size_t{8} << 20);
      }
    });
  }
  for (int i = 0; i < kForks && !HasFailure(); ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(120);  // ends one that hangs
      log::info("child");
      const Buffer pooled(std::size_t{8} << 10);
      const Buffer large(std::size_t{8} << 20);
      if (kThreadSanitizer) ::_exit(0);  // it knows no threads after a fork
      int heard = 0;
      auto own = task_.start();
      task_.on("e", [&] { ++heard; });
      task_.emit("e");
      task_.use([](Context&) { suspend(); });
      task_.run(1);
      own.stop();
      ::_exit(heard == 1 ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "fork " << i;
  }
  done = true;
  busy.clear();
  ::dup2(terminal, STDERR_FILENO);
  ::close(terminal);
  ::close(nowhere);
}

TEST_F(TaskTest, KeptFieldsTravelFromIterationToIteration) {
  const auto running = task_.start(with_list());
  task_.use([](ListContext& ctx) {
    ++ctx.calls;
    ctx.add(ctx.calls);
  });
  task_.run(4);
  EXPECT_EQ(task_.ctx<ListContext>().calls, 4);
  EXPECT_EQ(pipeline(), (Pipeline{4}));
}

TEST_F(TaskTest, GetAttachToLenNeedsAnActiveRouter) {
  EXPECT_THROW(task_.get_attch_to_len(), UsageError);
  FakeRouter node(0);
  EXPECT_EQ(Task(node).get_attch_to_len(), 2);
  EXPECT_EQ(Task(node).get_attach_to_len(), 2);
}

TEST_F(TaskTest, TheTaskOfTheProcessIsOneObjectOnTheProcessRouter) {
  runtime::TaskCore& core = runtime::TaskCore::of_process();
  int calls = 0;
  task.with({}, [&] {
    task.use([&](Context&) { ++calls; });
    task.run(1);
    EXPECT_NE(core.current.load(), nullptr) << "the same that a router finds";
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(core.current.load(), nullptr);
  EXPECT_EQ(&core.router, &runtime::router());
}

}  // namespace
}  // namespace divisi
