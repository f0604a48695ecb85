// The barrier as a middleware (spec 7.5).
#include "acceptance/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <random>
#include <thread>

namespace {

using divisi::Context;
using divisi::Parallel;
using divisi::ParallelOptions;
using divisi::task;
using jobs::Arguments;
using jobs::demand;
using jobs::Folder;
using jobs::kSoon;
using namespace std::chrono_literals;

constexpr int kSteps = 2;

// Every node notes when it comes and when it goes: nobody may go before all have come.
// args: folder, the shortest and the longest time in milliseconds that a node takes to come
void run_in_step(const Arguments& args) {
  const std::string& folder = args.at(0);
  std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<int> on_the_way(std::stoi(args.at(1)), std::stoi(args.at(2)));
  const auto n = static_cast<std::size_t>(Parallel::instance().n_parallel_workers());
  const int node = Parallel::instance().node_id();
  const auto running = task.start();
  std::size_t step = 0;
  task.use([&](Context&) {
    ++step;
    std::this_thread::sleep_for(std::chrono::milliseconds(on_the_way(random)));
    jobs::append_line(folder, "forward", "x");
    divisi::suspend();
    demand(jobs::count_lines(folder, "backward") >= n * step, "all are on their way back");
  });
  task.use(divisi::barrier(kSoon));
  task.use([&](Context&) {
    demand(jobs::count_lines(folder, "forward") >= n * step, "all have come");
    divisi::suspend();
    std::this_thread::sleep_for(std::chrono::milliseconds(11 * node % 40));
    jobs::append_line(folder, "backward", "x");
  });
  task.run(kSteps);
}
DIVISI_MAIN(run_in_step)

class BarrierMiddlewareTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Topologies, BarrierMiddlewareTest, ::testing::Values("mesh", "star"),
                         [](const auto& each) { return each.param; });

TEST_P(BarrierMiddlewareTest, A104_four_tcp_nodes_go_in_step) {
  const Folder folder;
  const ParallelOptions options{.n_parallel_workers = 4,
                                .protocol = "tcp",
                                .address = "127.0.0.1",
                                .ports = jobs::free_ports(4),
                                .topology = GetParam(),
                                .log_level = "error"};
  Parallel::runner(options)(run_in_step, {folder.path(), "1000", "5000"});
  EXPECT_EQ(jobs::count_lines(folder.path(), "backward"), 4u * kSteps);
}

TEST_P(BarrierMiddlewareTest, A106_so_do_eight) {
  const Folder folder;
  const ParallelOptions options{
      .n_parallel_workers = 8, .topology = GetParam(), .log_level = "error"};
  Parallel::runner(options)(run_in_step, {folder.path(), "0", "40"});
  EXPECT_EQ(jobs::count_lines(folder.path(), "backward"), 8u * kSteps);
}

void one_has_a_barrier_less() {
  const int node = Parallel::instance().node_id();
  const auto running = task.start();
  task.use(divisi::barrier(kSoon));
  if (node != 2) task.use(divisi::barrier(2s));  // of those that are in step since the first
  try {
    task.run(1);
  } catch (const divisi::TimeoutError& error) {
    demand(node != 2, "node 2 ends");
    demand(std::string(error.what()).ends_with("no word from node 2"), error.what());
    return;
  }
  demand(node == 2, "the others are told that node 2 is missing");
}
DIVISI_MAIN(one_has_a_barrier_less)

TEST(BarrierMiddlewareTest, A105_who_is_missing_is_named) {
  Parallel::runner({.n_parallel_workers = 4, .log_level = "error"})(one_has_a_barrier_less);
}

// Node 1 never comes.
void wait_for_the_other(const Arguments& args) {
  const auto running = task.start();
  jobs::append_line(args.at(0), "waiting", "x");
  if (Parallel::instance().node_id() == 0) {
    task.use(divisi::barrier(10min));
    task.run();
  } else {
    task.wait_for("never", {.wake_on_finish = false});
  }
  jobs::append_line(args.at(0), "ended", "x");
}
DIVISI_MAIN(wait_for_the_other)

LAUNCHER(one_waits_at_a_barrier) {
  return Parallel::runner({.n_parallel_workers = 2, .grace = 10min})
      .run(wait_for_the_other, {args.at(0)});
}

TEST(BarrierMiddlewareTest, A_signal_ends_it_and_the_run) {
  const Folder folder;
  jobs::Launched job("one_waits_at_a_barrier", {folder.path()});
  ASSERT_TRUE(jobs::eventually([&] { return jobs::count_lines(folder.path(), "waiting") == 2; }));
  job.kill(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_EQ(jobs::count_lines(folder.path(), "ended"), 2u) << job.output();
}

TEST(BarrierMiddlewareTest, Without_a_job_it_does_nothing) {
  const auto running = task.start();
  task.use(divisi::barrier(1ms));
  task.run(3);
  EXPECT_EQ(task.ctx().total_step, 2);
}

}  // namespace
