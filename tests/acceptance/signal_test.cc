// What a signal does to a program that waits.
#include "acceptance/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <string>

namespace {

using divisi::Parallel;
using divisi::ParallelOptions;
using divisi::task;
using jobs::Arguments;
using jobs::demand;
using jobs::Folder;
using jobs::Launched;
using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

// Longer than any test waits: who ends before that was not killed.
constexpr auto kGrace = std::chrono::minutes(10);

void wait_for_what_never_comes(const Arguments& args) {
  const auto running = task.start();
  jobs::append_line(args.at(0), "waiting", "x");
  demand(!task.wait_for("never", {.wake_on_finish = false}).has_value(), "nothing came");
  demand(!task.wait_for("never", {.wake_on_finish = false}).has_value(), "nor the second time");
  jobs::append_line(args.at(0), "ended", "x");
}
DIVISI_MAIN(wait_for_what_never_comes)

LAUNCHER(waiting_workers) {
  return Parallel::runner({.n_parallel_workers = std::stoi(args.at(1)), .grace = kGrace})
      .run(wait_for_what_never_comes, {args.at(0)});
}

class SignalTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Workers, SignalTest, ::testing::Values(1, 2));

TEST_P(SignalTest, A_wait_that_finish_does_not_end_ends_by_a_signal) {
  const auto n = static_cast<std::size_t>(GetParam());
  for (const int signal : {SIGTERM, SIGINT}) {
    const Folder folder;
    Launched job("waiting_workers", {folder.path(), std::to_string(n)});
    ASSERT_TRUE(jobs::eventually([&] { return jobs::count_lines(folder.path(), "waiting") == n; }));
    job.kill(signal);
    EXPECT_EQ(job.wait(), 128 + signal);
    EXPECT_EQ(jobs::count_lines(folder.path(), "ended"), n);
    EXPECT_THAT(job.output(), Not(HasSubstr("did not end")));
  }
}

void finish_the_other(const Arguments& args) {
  const auto running = task.start();
  if (task.router().node_id() == 0) {
    jobs::wait_for_note(args.at(0), "waiting");
    task.set_finish();
    task.emit("finish", divisi::only_remote, true);
    task.emit("after", divisi::only_remote, 7);
    demand(task.router().flush(jobs::kSoon), "it was taken");
    return;
  }
  jobs::note(args.at(0), "waiting", "x");
  const auto got = task.wait_for("after", {.timeout = jobs::kSoon, .wake_on_finish = false});
  demand(got.has_value(), "finish alone does not end the wait");
}
DIVISI_MAIN(finish_the_other)

TEST(SignalTest, A_finish_of_a_peer_does_not_end_such_a_wait) {
  const Folder folder;
  Parallel::runner({.n_parallel_workers = 2, .log_level = "error"})(finish_the_other,
                                                                    {folder.path()});
}

LAUNCHER(joins_nobody) {
  ParallelOptions options{.n_parallel_workers = 1,
                          .attach_to = {args.at(0)},
                          .protocol = "tcp",
                          .address = "127.0.0.1",
                          .ports = jobs::free_ports(1),
                          .grace = kGrace};
  return Parallel::runner(options).run([] {});
}

TEST(SignalTest, Joining_ends_by_a_signal_without_a_complaint) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Launched job("joins_nobody", {jobs::loopback(jobs::free_ports(1)[0])});
    ASSERT_TRUE(
        jobs::eventually([&] { return job.output().find("listen on") != std::string::npos; }));
    job.kill(signal);
    EXPECT_EQ(job.wait(), 128 + signal);
    EXPECT_THAT(job.output(), Not(HasSubstr("did not end")));
  }
}

// Whether the process has a handler for SIGINT by now.
bool watches_signals(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("SigCgt:")) continue;
    return (std::stoull(line.substr(7), nullptr, 16) >> (SIGINT - 1) & 1) != 0;
  }
  return false;
}

// As early as it can be heard, and twice: none is lost, and none is a reason to complain.
TEST(SignalTest, Joining_ends_by_early_and_impatient_signals_too) {
  for (int round = 0; round < 20; ++round) {
    Launched job("joins_nobody", {jobs::loopback(jobs::free_ports(1)[0])});
    ASSERT_TRUE(jobs::eventually([&] { return watches_signals(job.pid()); }));
    job.kill(SIGINT);
    if (round % 2 == 1) job.kill(SIGINT);
    EXPECT_EQ(job.wait(), 128 + SIGINT);
    EXPECT_THAT(job.output(), Not(HasSubstr("did not end")));
  }
}

void run_for_ever(const Arguments& args) {
  jobs::append_line(args.at(0), "started", "x");
  jobs::wait_for_note(args.at(0), "signalled");
  const auto running = task.start();
  task.use([](divisi::Context&) {});
  task.run();
}
DIVISI_MAIN(run_for_ever)

LAUNCHER(late_task) {
  return Parallel::runner({.n_parallel_workers = 1, .grace = kGrace})
      .run(run_for_ever, {args.at(0)});
}

TEST(SignalTest, A_task_that_starts_after_the_signal_ends_as_well) {
  const Folder folder;
  Launched job("late_task", {folder.path()});
  ASSERT_TRUE(jobs::eventually([&] { return jobs::count_lines(folder.path(), "started") == 1; }));
  job.kill(SIGTERM);
  jobs::note(folder.path(), "signalled", "x");
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
}

}  // namespace
