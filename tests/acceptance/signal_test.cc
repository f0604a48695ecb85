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

// Node 0 waits for others in one of the ways of the router.
void wait_for_others(const Arguments& args) {
  auto& router = Parallel::instance();
  const std::string& way = args.at(1);
  const auto signalled = [&] { return jobs::eventually([&] { return router.interrupted(); }); };
  std::vector<divisi::Subscription> served;
  if (router.node_id() == 1) {
    served.push_back(router.serve("slow", signalled));
    served.push_back(router.serve("add", [](int a, int b) { return a + b; }));
    jobs::note(args.at(0), "serving", "x");
  }
  jobs::wait_for_note(args.at(0), "serving");
  jobs::append_line(args.at(0), "waiting", "x");
  if (router.node_id() == 1) {
    const auto running = task.start();
    task.wait_for("never", {.wake_on_finish = false});
    if (way == "a call afterwards") jobs::wait_for_note(args.at(0), "called");
  } else if (way == "a call afterwards") {  // which may bring what is to be saved
    demand(signalled(), "the signal has come");
    demand(router.call<int>(1, "add", kGrace, 2, 3) == 5, "it is answered");
    jobs::note(args.at(0), "called", "x");
  } else if (way == "peers") {
    demand(!router.wait_for_peers(2, kGrace), "there is one");
  } else {
    try {
      if (way == "barrier") router.barrier(kGrace);
      if (way == "call") router.call<bool>(1, "slow", kGrace);
      demand(way == "call", "nobody passes");  // the answer may have been faster
    } catch (const divisi::Error& error) {
      demand(error.code() == divisi::Code::kCancelled, error.what());
    }
  }
  jobs::append_line(args.at(0), "ended", "x");
}
DIVISI_MAIN(wait_for_others)

LAUNCHER(one_waits_for_the_other) {
  return Parallel::runner({.n_parallel_workers = 2, .grace = kGrace}).run(wait_for_others, args);
}

TEST(SignalTest, Waits_for_others_end_by_a_signal) {
  for (const std::string way : {"barrier", "call", "a call afterwards", "peers"}) {
    const Folder folder;
    Launched job("one_waits_for_the_other", {folder.path(), way});
    ASSERT_TRUE(jobs::eventually([&] { return jobs::count_lines(folder.path(), "waiting") == 2; }));
    job.kill(SIGTERM);
    EXPECT_EQ(job.wait(), 128 + SIGTERM) << way;
    EXPECT_EQ(jobs::count_lines(folder.path(), "ended"), 2u) << way << ": " << job.output();
  }
}

// The loop of the task has still something to do when the signal comes.
void run_beside_a_slow_listener(const Arguments& args) {
  const auto running = task.start();
  task.on("slow", [&] {
    jobs::note(args.at(0), "busy", "x");
    jobs::wait_for_note(args.at(0), "run ended");
  });
  task.use([](divisi::Context&) {});
  task.emit("slow");
  task.run();
  jobs::note(args.at(0), "run ended", "x");
}
DIVISI_MAIN(run_beside_a_slow_listener)

LAUNCHER(slow_listener) {
  return Parallel::runner({.n_parallel_workers = 1, .grace = kGrace})
      .run(run_beside_a_slow_listener, args);
}

TEST(SignalTest, A_run_does_not_wait_for_listeners_before_it_ends) {
  const Folder folder;
  Launched job("slow_listener", {folder.path()});
  ASSERT_TRUE(jobs::eventually([&] { return jobs::read_note(folder.path(), "busy").has_value(); }));
  job.kill(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.output();
  EXPECT_TRUE(jobs::read_note(folder.path(), "run ended").has_value());
}

// Two launchers, as on two hosts: the first gets a signal, the second is told to finish.
void run_in_step(const Arguments& args) {
  const auto running = task.start();
  jobs::append_line(args.at(0), "running", "x");
  if (args.at(1) == "barrier") task.use(divisi::barrier(kGrace));
  task.use([](divisi::Context&) {
    if (Parallel::instance().auto_recover() && Parallel::instance().interrupted()) {
      throw std::runtime_error("main fails after the signal");
    }
  });
  task.run();
}
DIVISI_MAIN(run_in_step)

ParallelOptions host(const Arguments& args) {
  ParallelOptions options{.n_parallel_workers = 1,
                          .protocol = "tcp",
                          .address = "127.0.0.1",
                          .ports = {std::stoi(args.at(2))},
                          .grace = kGrace};
  return options;
}

LAUNCHER(first_host) {
  ParallelOptions options = host(args);
  options.auto_recover = args.at(1) == "fails";
  return Parallel::runner(options).run(run_in_step, args);
}

LAUNCHER(second_host) {
  ParallelOptions options = host(args);
  options.attach_to = {jobs::loopback(std::stoi(args.at(3)))};
  options.node_ids = {1};
  return Parallel::runner(options).run(run_in_step, args);
}

TEST(SignalTest, A_signal_on_one_host_finishes_the_others) {
  for (const std::string how : {"barrier", "fails"}) {
    const Folder folder;
    const auto ports = jobs::free_ports(2);
    Launched first("first_host", {folder.path(), how, std::to_string(ports[0])});
    Launched second("second_host",
                    {folder.path(), how, std::to_string(ports[1]), std::to_string(ports[0])});
    ASSERT_TRUE(jobs::eventually([&] { return jobs::count_lines(folder.path(), "running") == 2; }));
    first.kill(SIGTERM);
    EXPECT_EQ(first.wait(), 128 + SIGTERM) << how << first.output();
    EXPECT_EQ(second.wait(), 0) << how << second.output();
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
