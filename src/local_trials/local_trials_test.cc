#include "local_trials/local_trials.h"

#include "local_trials/process_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace divisi::local_trials {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class LocalTrialsTest : public testing::Test {
 protected:
  LocalTrialsTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "trials-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~LocalTrialsTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<LocalTrials> open(LocalTrialsOptions options = {}) {
    auto trials = LocalTrials::open(std::move(options));
    EXPECT_TRUE(trials.has_value());
    return *std::move(trials);
  }

  ProcessTrial shell(std::uint64_t task, const std::string& script) {
    return {.task = task,
            .command = {"sh", "-c", script},
            .environment = {{"FOLDER", folder_}},
            .log_file = folder_ + "/log.txt",
            .metrics_file = folder_ + "/metrics.jsonl"};
  }

  // Runs one trial to its end; reports are collected.
  TrialEvent run(LocalTrials& trials, ProcessTrial trial) {
    EXPECT_TRUE(trials.start(std::move(trial)).has_value());
    return next_end(trials);
  }

  TrialEvent next_end(LocalTrials& trials) {
    std::vector<std::string> reports;
    while (true) {
      for (TrialEvent& event : trials.wait(std::nullopt)) {
        reports.insert(reports.end(), event.reports.begin(), event.reports.end());
        if (!event.ended) continue;
        event.reports = reports;
        return event;
      }
    }
  }

  // The file's text, once a process of a trial has written a line there.
  std::string wait_for_file(LocalTrials& trials, const std::string& name) {
    while (read(name).find('\n') == std::string::npos) {
      trials.wait(Clock::now() + 5ms);
    }
    return read(name);
  }

  std::string read(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string folder_;
};

bool is_gone(const std::string& pid_text) {
  const pid_t pid = std::stoi(pid_text);
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

TEST_F(LocalTrialsTest, BothStreamsAreInTheLogAndTheLastLineIsKept) {
  const auto trials = open();
  const TrialEvent end = run(*trials, shell(1, "echo one; echo bad >&2; echo 0.5; echo"));
  EXPECT_TRUE(end.exit.ok());
  EXPECT_EQ(end.last_line, "0.5");
  // The order between the two streams is not kept.
  for (const char* line : {"one\n", "bad\n", "0.5\n"}) {
    EXPECT_THAT(read("log.txt"), HasSubstr(line));
  }
  EXPECT_EQ(trials->running(), 0U);
}

TEST_F(LocalTrialsTest, ExitStatusAndSignalAreKept) {
  const auto trials = open();
  EXPECT_EQ(run(*trials, shell(1, "exit 7")).exit.code, 7);
  EXPECT_EQ(run(*trials, shell(2, "kill -9 $$")).exit.signal, SIGKILL);
}

TEST_F(LocalTrialsTest, ProgramThatDoesNotExistIsAnError) {
  const auto trials = open();
  const auto pid =
      trials->start({.task = 1, .command = {"no-such-program"}, .log_file = folder_ + "/l"});
  ASSERT_FALSE(pid.has_value());
  EXPECT_EQ(pid.error().code(), Code::kNotFound);
  EXPECT_TRUE(trials->has_room());
}

TEST_F(LocalTrialsTest, ReportsComeWhileTheTrialRuns) {
  const auto trials = open();
  ProcessTrial trial =
      shell(1, "echo '{\"step\": 1}' >> $FOLDER/metrics.jsonl; read line < $FOLDER/go");
  std::filesystem::path fifo = folder_ + "/go";
  ASSERT_EQ(::system(("mkfifo " + fifo.string()).c_str()), 0);
  ASSERT_TRUE(trials->start(std::move(trial)).has_value());
  std::vector<std::string> reports;
  while (reports.empty()) {
    for (const TrialEvent& event : trials->wait(std::nullopt)) {
      ASSERT_FALSE(event.ended);
      reports = event.reports;
    }
  }
  EXPECT_THAT(reports, ElementsAre("{\"step\": 1}"));
  std::ofstream(fifo) << "go\n";
  EXPECT_TRUE(next_end(*trials).exit.ok());
}

TEST_F(LocalTrialsTest, AFirstReportThatComesAtOnceIsNoticed) {
  const auto trials = open();
  for (std::uint64_t task = 0; task < 30; ++task) {
    ProcessTrial trial = shell(task, "echo first >> $FOLDER/now; exec sleep 1000");
    std::filesystem::remove(trial.metrics_file = folder_ + "/now");
    ASSERT_TRUE(trials->start(std::move(trial)).has_value());
    const auto deadline = Clock::now() + 60s;
    std::vector<std::string> reports;
    while (reports.empty() && Clock::now() < deadline) {
      for (const TrialEvent& event : trials->wait(deadline)) reports = event.reports;
    }
    ASSERT_THAT(reports, ElementsAre("first"));
    trials->end(task, EndReason::kCancelled, true);
    next_end(*trials);
  }
}

TEST_F(LocalTrialsTest, AReportIsNoticedAlsoWhenTheKernelLosesEvents) {
  std::size_t queue = 0;
  std::ifstream("/proc/sys/fs/inotify/max_queued_events") >> queue;
  ASSERT_TRUE(queue > 0 && queue <= 1'000'000) << "no queue that can be filled: " << queue;
  const auto trials = open({.slots = 3});
  for (std::uint64_t task = 0; task < 3; ++task) {
    ProcessTrial trial = shell(task, "exec sleep 1000");
    trial.metrics_file = fmt::format("{}/metrics{}", folder_, task);
    ASSERT_TRUE(trials->start(std::move(trial)).has_value());
  }
  // Equal events in a row are one: two files take turns.
  std::ofstream first(folder_ + "/metrics0");
  std::ofstream second(folder_ + "/metrics1");
  for (std::size_t i = 0; i <= queue / 2; ++i) {
    first << 'x' << std::flush;
    second << 'x' << std::flush;
  }
  std::ofstream(folder_ + "/metrics2") << "last\n";
  const auto deadline = Clock::now() + 60s;
  std::vector<std::string> reports;
  while (reports.empty() && Clock::now() < deadline) {
    for (const TrialEvent& event : trials->wait(deadline)) {
      if (event.task == 2) reports = event.reports;
    }
  }
  EXPECT_THAT(reports, ElementsAre("last"));
}

TEST_F(LocalTrialsTest, LastReportsAreInTheEnd) {
  const auto trials = open();
  const TrialEvent end =
      run(*trials, shell(1, "printf 'a\\nb\\nincomplete' >> $FOLDER/metrics.jsonl"));
  EXPECT_THAT(end.reports, ElementsAre("a", "b"));
}

TEST_F(LocalTrialsTest, H087GroupThatIgnoresSigtermIsKilledAfterTheGrace) {
  const auto trials = open({.grace = 50ms});
  ASSERT_TRUE(trials
                  ->start(shell(1,
                                "trap '' TERM; (trap '' TERM; echo $(exec sh -c 'echo $PPID') > "
                                "$FOLDER/child; while :; do sleep 1000; done) & "
                                "while :; do sleep 1000; done"))
                  .has_value());
  const std::string child = wait_for_file(*trials, "child");
  trials->end(1, EndReason::kTimeOut);
  const TrialEvent end = next_end(*trials);
  EXPECT_EQ(end.reason, EndReason::kTimeOut);
  EXPECT_EQ(end.exit.signal, SIGKILL);
  EXPECT_TRUE(is_gone(child)) << child;
}

TEST_F(LocalTrialsTest, TimeLimitEndsATrial) {
  const auto trials = open();
  ProcessTrial trial = shell(1, "sleep 1000");
  trial.time_limit = 20ms;
  const TrialEvent end = run(*trials, std::move(trial));
  EXPECT_EQ(end.reason, EndReason::kTimeOut);
  EXPECT_EQ(end.exit.signal, SIGTERM);
}

TEST_F(LocalTrialsTest, ProcessThatLeftGroupAndParentEndsWithTheTrial) {
  const auto trials = open();
  // A session of its own, and re-parented, because the shell between has ended.
  const TrialEvent end =
      run(*trials, shell(1,
                         "(setsid sh -c 'echo $$ > $FOLDER/escaped; exec sleep 1000' &) ; "
                         "while [ ! -s $FOLDER/escaped ]; do :; done; echo 1"));
  EXPECT_TRUE(end.exit.ok());
  EXPECT_TRUE(is_gone(read("escaped"))) << read("escaped");
}

TEST_F(LocalTrialsTest, OrphanWithoutEnvironmentEndsWithTheLastTrial) {
  const auto trials = open();
  run(*trials,
      shell(
          1,
          "F=$FOLDER; (setsid env -i /bin/sh -c \"echo \\$\\$ > $F/escaped; exec sleep 1000\" &) ; "
          "while [ ! -s $F/escaped ]; do :; done"));
  EXPECT_TRUE(is_gone(read("escaped"))) << read("escaped");
}

TEST_F(LocalTrialsTest, OtherTrialsSurviveTheEndOfOne) {
  const auto trials = open({.slots = 2});
  ASSERT_EQ(::system(("mkfifo " + folder_ + "/go").c_str()), 0);
  ASSERT_TRUE(trials->start(shell(1, "read line < $FOLDER/go; echo survived")).has_value());
  ProcessTrial second = shell(2, "true");
  second.log_file = folder_ + "/log2.txt";
  ASSERT_TRUE(trials->start(std::move(second)).has_value());
  EXPECT_FALSE(trials->has_room());
  EXPECT_EQ(next_end(*trials).task, 2U);
  EXPECT_TRUE(trials->has_room());
  std::ofstream(folder_ + "/go") << "go\n";
  EXPECT_EQ(next_end(*trials).last_line, "survived");
}

TEST_F(LocalTrialsTest, CancelledTrialGetsSigterm) {
  const auto trials = open();
  ASSERT_TRUE(trials
                  ->start(shell(1,
                                "trap 'echo cleaned; exit 0' TERM; echo ready > $FOLDER/ready; "
                                "while :; do sleep 0.01; done"))
                  .has_value());
  wait_for_file(*trials, "ready");
  trials->end(1, EndReason::kCancelled);
  const TrialEvent end = next_end(*trials);
  EXPECT_EQ(end.reason, EndReason::kCancelled);
  EXPECT_EQ(end.last_line, "cleaned");
}

TEST_F(LocalTrialsTest, GpusAreSharedOut) {
  const auto trials = open({.slots = 4, .gpus = {"0", "1", "GPU-a"}, .gpus_per_trial = 2});
  ASSERT_TRUE(trials->start(shell(1, "echo $CUDA_VISIBLE_DEVICES")).has_value());
  EXPECT_FALSE(trials->has_room());
  EXPECT_EQ(next_end(*trials).last_line, "0,1");
  EXPECT_TRUE(trials->has_room());
  EXPECT_FALSE(LocalTrials::open({.gpus = {"0"}, .gpus_per_trial = 2}).has_value());
}

TEST_F(LocalTrialsTest, GpusOfATrialThatDidNotStartAreFree) {
  const auto trials = open({.gpus = {"0"}});
  EXPECT_FALSE(
      trials->start({.task = 1, .command = {"no-such-program"}, .log_file = folder_ + "/l"})
          .has_value());
  ASSERT_TRUE(trials->has_room());
  EXPECT_EQ(run(*trials, shell(2, "echo $CUDA_VISIBLE_DEVICES")).last_line, "0");
}

TEST_F(LocalTrialsTest, TheGraceBeginsWithTheFirstRequest) {
  const auto trials = open({.grace = 500ms});
  ASSERT_TRUE(trials
                  ->start(shell(
                      1, "trap '' TERM; echo ready > $FOLDER/ready; while :; do sleep 1000; done"))
                  .has_value());
  wait_for_file(*trials, "ready");
  trials->end(1, EndReason::kCancelled);
  const auto asked = Clock::now();
  // Asked again and again, it ends nevertheless.
  while (true) {
    trials->end(1, EndReason::kCancelled);
    const auto events = trials->wait(Clock::now() + 50ms);
    if (!events.empty() && events.front().ended) break;
    ASSERT_LT(Clock::now() - asked, 60s);
  }
}

TEST_F(LocalTrialsTest, DestructorLeavesNoProcess) {
  {
    const auto trials = open();
    ASSERT_TRUE(trials->start(shell(1, "setsid sleep 1000 & echo $! > $FOLDER/child; sleep 1000"))
                    .has_value());
    wait_for_file(*trials, "child");
  }
  EXPECT_TRUE(is_gone(read("child")));
  EXPECT_THAT(children_of(::getpid()), IsEmpty());
}

}  // namespace
}  // namespace divisi::local_trials
