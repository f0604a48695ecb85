#include "runtime/worker.h"

#include "runtime/exit_code.h"
#include "runtime/signal_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <signal.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

namespace divisi::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

std::string describe(const std::function<void()>& thrower) {
  try {
    thrower();
  } catch (...) {
    return describe_exception(std::current_exception());
  }
  return "nothing was thrown";
}

TEST(DescribeExceptionTest, NamesTypeAndMessage) {
  EXPECT_EQ(describe([] { throw std::out_of_range("too far"); }), "std::out_of_range: too far");
  EXPECT_EQ(describe([] { throw Error(Code::kTimeout, "late"); }), "divisi::Error: late");
  EXPECT_EQ(describe([] { throw std::string("text"); }), "std::string: text");
  EXPECT_EQ(describe([] { throw "text"; }), "const char*: text");
  EXPECT_EQ(describe([] { throw 7; }), "int");
}

TEST(DescribeExceptionTest, FollowsNestedExceptions) {
  EXPECT_THAT(describe([] {
                try {
                  throw std::runtime_error("disk full");
                } catch (...) {
                  std::throw_with_nested(std::logic_error("saving"));
                }
              }),
              HasSubstr("saving; caused by std::runtime_error: disk full"));
}

TEST(SignalWatchTest, ASignalOfAForkedChildIsNotOurs) {
  const SignalWatch watch({SIGTERM});
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGTERM);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  EXPECT_FALSE(watch.next().has_value());
  ::raise(SIGTERM);
  EXPECT_EQ(watch.next(), SIGTERM);
}

TEST(SignalWatchTest, AnIgnoredSignalStaysIgnored) {
  const auto previous = ::signal(SIGHUP, SIG_IGN);
  {
    const SignalWatch watch({SIGHUP});
    ::raise(SIGHUP);
    EXPECT_FALSE(watch.next().has_value());
  }
  EXPECT_EQ(::signal(SIGHUP, previous), SIG_IGN);
}

TEST(SignalWatchTest, ComesBeforeAHandlerThatWasInstalledMeanwhile) {
  static std::atomic<int> handled{0};
  static struct sigaction found{};
  struct sigaction before{};
  ::sigaction(SIGUSR1, nullptr, &before);
  {
    const SignalWatch watch({SIGUSR1});
    struct sigaction own{};
    own.sa_flags = SA_SIGINFO;
    own.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
      ++handled;
      if ((found.sa_flags & SA_SIGINFO) != 0) found.sa_sigaction(signal, info, context);
    };
    for (int round = 1; round <= 3; ++round) {  // also one that calls us, again and again
      ::sigaction(SIGUSR1, &own, &found);
      SignalWatch::come_first();
      ::raise(SIGUSR1);
      EXPECT_EQ(handled, round);
      EXPECT_EQ(watch.next(), SIGUSR1);
      EXPECT_EQ(watch.next(), std::nullopt);
    }
    struct sigaction by_default{};
    by_default.sa_handler = SIG_DFL;
    ::sigaction(SIGUSR1, &by_default, nullptr);
    SignalWatch::come_first();  // the program's decision
    struct sigaction now{};
    ::sigaction(SIGUSR1, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_DFL);
  }
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(SignalWatchTest, SeveralWatchesSeeTheSameSignal) {
  const SignalWatch one({SIGTERM});
  const SignalWatch two({SIGTERM, SIGINT});
  ::raise(SIGTERM);
  EXPECT_EQ(one.next(), SIGTERM);
  EXPECT_EQ(two.next(), SIGTERM);
}

TEST(SignalWatchTest, SaysWhenASignalCame) {
  const SignalWatch watch({SIGINT});
  const auto before = std::chrono::steady_clock::now();
  ::raise(SIGINT);
  const auto between = std::chrono::steady_clock::now();
  ::raise(SIGINT);
  const auto first = watch.next_caught();
  const auto second = watch.next_caught();
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(watch.next_caught());
  EXPECT_EQ(first->number, SIGINT);
  EXPECT_TRUE(before <= first->at && first->at <= between && between <= second->at);
}

TEST(SignalWatchTest, AnInterruptThatComesTwiceIsNoImpatience) {
  const CaughtSignal first{SIGINT, std::chrono::steady_clock::now()};
  const auto later = [&](int signal, int milliseconds) {
    return CaughtSignal{signal, first.at + std::chrono::milliseconds(milliseconds)};
  };
  EXPECT_FALSE(is_impatient(first, later(SIGINT, 0)));
  EXPECT_FALSE(is_impatient(first, later(SIGINT, 500)));
  EXPECT_TRUE(is_impatient(first, later(SIGINT, 501)));
  EXPECT_FALSE(is_impatient(first, later(SIGTERM, 5000)));
  const CaughtSignal terminate{SIGTERM, first.at};
  EXPECT_FALSE(is_impatient(terminate, later(SIGINT, 500)));
  EXPECT_TRUE(is_impatient(terminate, later(SIGINT, 501)));
}

// Installs hooks that write down what they are called for.
class WorkerTest : public ::testing::Test {
 protected:
  WorkerTest() {
    WorkerHooks hooks;
    hooks.activate = [this](const WorkerConfig&) {
      log_.push_back("activate");
      return activation_;
    };
    hooks.deactivate = [this](bool failed) {
      log_.push_back(failed ? "deactivate failed" : "deactivate");
      return deactivation_;
    };
    hooks.next_attempt = [this](int retries) {
      log_.push_back("retry " + std::to_string(retries));
    };
    hooks.request_finish = [this] {
      finish_ = true;
      finish_.notify_all();
    };
    set_worker_hooks(std::move(hooks));
  }
  ~WorkerTest() override { set_worker_hooks({}); }

  MainFunction failing(int times) {
    return [this, times](const std::vector<std::string>&) {
      log_.push_back("main");
      if (++calls_ <= times) throw std::runtime_error("failure " + std::to_string(calls_));
      return 0;
    };
  }

  WorkerConfig config_;
  Status activation_;
  Status deactivation_;
  std::vector<std::string> log_;
  std::atomic<bool> finish_{false};
  int calls_ = 0;
};

TEST_F(WorkerTest, MainRunsBetweenActivationAndItsEnd) {
  const WorkerOutcome outcome =
      run_worker(config_, failing(0), [this] { log_.push_back("joined"); });
  EXPECT_EQ(outcome.kind, WorkerOutcome::Kind::kDone);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(log_, ElementsAre("activate", "joined", "main", "deactivate"));
}

TEST_F(WorkerTest, WhatWasNotDeliveredIsAFailureOfAMainThatHadNone) {
  deactivation_ = make_status(Code::kUnavailable, "3 events were not delivered");
  const WorkerOutcome undelivered = run_worker(config_, failing(0));
  EXPECT_EQ(undelivered.kind, WorkerOutcome::Kind::kUndelivered);
  EXPECT_EQ(undelivered.exit_code, kExitMainFailed);
  EXPECT_EQ(undelivered.text, "3 events were not delivered");
  EXPECT_EQ(run_worker(config_, failing(2)).text, "std::runtime_error: failure 2");
}

TEST_F(WorkerTest, WithoutRecoveryOneFailureIsFinal) {
  const WorkerOutcome outcome = run_worker(config_, failing(1));
  EXPECT_EQ(outcome.kind, WorkerOutcome::Kind::kFailed);
  EXPECT_EQ(outcome.exit_code, kExitMainFailed);
  EXPECT_EQ(outcome.text, "std::runtime_error: failure 1");
  EXPECT_THROW(std::rethrow_exception(outcome.exception), std::runtime_error);
  EXPECT_THAT(log_, ElementsAre("activate", "main", "deactivate failed"));
}

TEST_F(WorkerTest, RecoveryCallsMainAgainWithTheSameRouter) {
  config_.auto_recover = true;
  const WorkerOutcome outcome = run_worker(config_, failing(2));
  EXPECT_EQ(outcome.kind, WorkerOutcome::Kind::kDone);
  EXPECT_EQ(outcome.text, "");
  EXPECT_THAT(log_,
              ElementsAre("activate", "main", "retry 1", "main", "retry 2", "main", "deactivate"));
}

TEST_F(WorkerTest, RetriesAreBounded) {
  config_.auto_recover = true;
  config_.max_retries = 1;
  const WorkerOutcome outcome = run_worker(config_, failing(9));
  EXPECT_EQ(outcome.text, "std::runtime_error: failure 2");
  EXPECT_THAT(log_, ElementsAre("activate", "main", "retry 1", "main", "deactivate failed"));
}

TEST_F(WorkerTest, AReturnedErrorIsNotTriedAgain) {
  config_.auto_recover = true;
  const WorkerOutcome outcome =
      run_worker(config_, [](const std::vector<std::string>&) { return 4; });
  EXPECT_EQ(outcome.kind, WorkerOutcome::Kind::kFailed);
  EXPECT_EQ(outcome.text, "main returned 4");
}

TEST_F(WorkerTest, OnceFinishIsAskedForAFailureIsFinal) {
  config_.auto_recover = true;
  run_worker(config_, failing(9), {}, [](auto) { return true; });
  EXPECT_EQ(calls_, 1);
}

TEST_F(WorkerTest, OnceFinishIsAskedForDuringThePauseMainIsNotCalledAgain) {
  config_.auto_recover = true;
  run_worker(config_, failing(1), {},
             [](std::chrono::milliseconds pause) { return pause.count() > 0; });
  EXPECT_EQ(calls_, 1);
}

TEST_F(WorkerTest, AMainThatFailsAtOnceIsTriedAgainAfterLongerAndLongerPauses) {
  config_.auto_recover = true;
  config_.max_retries = 9;
  std::vector<std::int64_t> pauses;
  run_worker(config_, failing(99), {}, [&](std::chrono::milliseconds pause) {
    if (pause.count() > 0) pauses.push_back(pause.count());
    return false;
  });
  EXPECT_THAT(pauses, ElementsAre(10, 20, 40, 80, 160, 320, 640, 1000, 1000));
}

TEST_F(WorkerTest, TheStatusOfTheActivationDecidesTheOutcome) {
  using Kind = WorkerOutcome::Kind;
  const auto outcome_of = [this](Code code) {
    activation_ = {code, "why"};
    return run_worker(config_, failing(0));
  };
  for (const auto& [code, kind, exit_code] : {std::tuple(Code::kUnavailable, Kind::kBindFailed, 3),
                                              std::tuple(Code::kUnauthorized, Kind::kRefused, 3),
                                              std::tuple(Code::kConflict, Kind::kRefused, 3),
                                              std::tuple(Code::kTimeout, Kind::kJoinTimeout, 3),
                                              std::tuple(Code::kInvalid, Kind::kUsage, 2)}) {
    const WorkerOutcome outcome = outcome_of(code);
    EXPECT_EQ(outcome.kind, kind);
    EXPECT_EQ(outcome.exit_code, exit_code);
    EXPECT_EQ(outcome.text, "why");
  }
  EXPECT_EQ(calls_, 0);
}

TEST_F(WorkerTest, ASignalAsksTheInlineWorkerToFinish) {
  const InlineOutcome result = run_worker_inline(config_, [this](const auto&) {
    ::raise(SIGTERM);
    finish_.wait(false);
    return 0;
  });
  EXPECT_EQ(result.outcome.kind, WorkerOutcome::Kind::kDone);
  EXPECT_EQ(result.signal, SIGTERM);
}

TEST_F(WorkerTest, AnInlineWorkerThatDoesNotFinishExitsWithoutItsSocketFile) {
  const std::string path = temp_directory() + "/worker_test_" + std::to_string(::getpid());
  config_.listen = "ipc://" + path;
  config_.finish_grace = 20ms;
  const auto run_deaf = [&] {
    std::ofstream(path) << "a socket";
    run_worker_inline(config_, [](const auto&) {
      ::raise(SIGINT);
      while (true) ::pause();
      return 0;
    });
  };
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(run_deaf(), ::testing::ExitedWithCode(130), "");
  EXPECT_FALSE(std::ifstream(path).good());
}

}  // namespace
}  // namespace divisi::runtime
