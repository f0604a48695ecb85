// Section 9.3, second half: launchers that meet, and what happens to processes.
#include "acceptance/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>
#include <unistd.h>

namespace {

using divisi::Context;
using divisi::only_remote;
using divisi::Parallel;
using divisi::ParallelOptions;
using divisi::task;
using jobs::Arguments;
using jobs::demand;
using jobs::failure_of;
using jobs::Folder;
using jobs::Gathered;
using jobs::kSoon;
using jobs::Launched;
using jobs::node;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

// --- A058 ---

void run_until_node_1_finishes() {
  const auto running = task.start();
  task.use([](Context& ctx) {
    std::this_thread::sleep_for(100ms);
    if (node() == 1 && ctx.total_step == 1) task.set_finish();
  });
  task.run(200);
  demand(task.ctx().total_step < 199, "the end came from node 1");
}
DIVISI_MAIN(run_until_node_1_finishes)

LAUNCHER(attached_pair) {
  ParallelOptions options{.n_parallel_workers = 2,
                          .attach_to = {args.at(0)},
                          .protocol = "tcp",
                          .address = "127.0.0.1",
                          .ports = {std::stoi(args.at(1)), std::stoi(args.at(2))},
                          .topology = "alone",
                          .node_ids = {1, 2}};
  return Parallel::runner(options).run(run_until_node_1_finishes);
}

TEST(AttachTest, A058_finish_travels_over_attached_nodes) {
  const auto ports = jobs::free_ports(3);
  Launched pair("attached_pair",
                {jobs::loopback(ports[0]), std::to_string(ports[1]), std::to_string(ports[2])});
  Parallel::runner({.n_parallel_workers = 1,
                    .protocol = "tcp",
                    .address = "127.0.0.1",
                    .ports = {ports[0]},
                    .log_level = "error"})([] {
    demand(task.router().wait_for_peers(2, kSoon), "both attached nodes came");
    run_until_node_1_finishes();
  });
  EXPECT_EQ(pair.wait(), 0);
}

// --- A066 ---

LAUNCHER(caller) {
  ParallelOptions options{.n_parallel_workers = 1,
                          .attach_to = {args.at(0)},
                          .protocol = "tcp",
                          .address = "127.0.0.1",
                          .ports = jobs::free_ports(1),
                          .topology = "alone",
                          .node_ids = {1}};
  return Parallel::runner(options).run([&] {
    const auto running = task.start();
    task.emit("call", only_remote, args.at(1));
    task.wait_for("heard", {.timeout = kSoon, .ignore_timeout = false});
  });
}

// `start`: what main begins with.
void hear_a_word_in_each_of_two_runs(const std::function<std::optional<divisi::Running>()>& start) {
  const auto port = jobs::free_ports(1);
  for (const char* const word : {"first", "second"}) {
    Launched caller("caller", {jobs::loopback(port[0]), word});
    Gathered<std::string> heard;
    Parallel::runner({.n_parallel_workers = 1,
                      .protocol = "tcp",
                      .address = "127.0.0.1",
                      .ports = port,
                      .log_level = "error"})([&] {
      const auto running = start();
      task.on("call", [&](std::string text) { heard.add(std::move(text)); });
      demand(heard.wait_for(1), "the remote event arrives");
      task.emit("heard", only_remote);
    });
    EXPECT_THAT(heard.values(), ::testing::ElementsAre(word));
    EXPECT_EQ(caller.wait(), 0);
    EXPECT_FALSE(Parallel::instance().is_active());
    EXPECT_FALSE(task.running());
  }
}

TEST(AttachTest, A066_two_runs_in_one_process_both_receive) {
  hear_a_word_in_each_of_two_runs([] { return std::optional(task.start()); });
}

TEST(AttachTest, A066_so_do_two_runs_that_start_their_task_by_using_it) {
  hear_a_word_in_each_of_two_runs([] { return std::nullopt; });
}

// Stays in one run and speaks until it hears that it is enough.
LAUNCHER(speaker) {
  ParallelOptions options{.n_parallel_workers = 1,
                          .attach_to = {args.at(0)},
                          .protocol = "tcp",
                          .address = "127.0.0.1",
                          .ports = jobs::free_ports(1),
                          .topology = "alone",
                          .node_ids = {1}};
  return Parallel::runner(options).run([&] {
    const auto running = task.start();
    Gathered<int> enough;
    task.on("enough", [&] { enough.add(1); });
    while (!enough.wait_for(1, 20ms)) task.emit("word", only_remote);
  });
}

TEST(AttachTest, A066_a_peer_that_stays_is_heard_in_every_run_on_one_port) {
  const auto port = jobs::free_ports(1);
  Launched speaker("speaker", {jobs::loopback(port[0])});
  for (int run = 1; run <= 3; ++run) {
    Parallel::runner({.n_parallel_workers = 1,
                      .protocol = "tcp",
                      .address = "127.0.0.1",
                      .ports = port,
                      .log_level = "error"})([&] {
      const auto running = task.start();
      Gathered<int> heard;
      task.on("word", [&] { heard.add(1); });
      demand(heard.wait_for(1), "the peer is heard");
      if (run == 3) task.emit("enough", only_remote);
    });
  }
  EXPECT_EQ(speaker.wait(), 0) << speaker.output();
}

constexpr int kReruns = 50;

LAUNCHER(calls_in_each_run) {
  const auto port = jobs::free_ports(1);
  for (int run = 0; run < kReruns; ++run) {
    const int code = Parallel::runner({.n_parallel_workers = 1,
                                       .attach_to = {args.at(0)},
                                       .protocol = "tcp",
                                       .address = "127.0.0.1",
                                       .ports = port,
                                       .topology = "alone",
                                       .node_ids = {1}})
                         .run([&] {
                           const auto running = task.start();
                           Gathered<int> answers;
                           task.on("answer", [&](int n) { answers.add(n); });
                           task.emit("call", only_remote, run);
                           demand(answers.wait_for(1), "the call is answered");
                           demand(answers.values().front() == run, "by the same run");
                         });
    if (code != 0) return code;
  }
  return 0;
}

TEST(AttachTest, A066_two_processes_that_run_again_and_again_meet_every_time) {
  const auto port = jobs::free_ports(1);
  Launched caller("calls_in_each_run", {jobs::loopback(port[0])});
  for (int run = 0; run < kReruns; ++run) {
    Parallel::runner({.n_parallel_workers = 1,
                      .protocol = "tcp",
                      .address = "127.0.0.1",
                      .ports = port,
                      .log_level = "error"})([&] {
      const auto running = task.start();
      Gathered<int> calls;
      task.on("call", [&](int n) { calls.add(n); });
      demand(calls.wait_for(1), "the call arrives");
      task.emit("answer", only_remote, calls.values().front());
    });
  }
  EXPECT_EQ(caller.wait(), 0) << caller.output();
}

// --- A065 ---

void nothing() {}
DIVISI_MAIN(nothing)

TEST(AttachTest, A065_an_occupied_port_ends_the_launcher_with_the_address_in_the_message) {
  const auto ports = jobs::free_ports(2);
  Parallel::runner({.n_parallel_workers = 1,
                    .protocol = "tcp",
                    .address = "127.0.0.1",
                    .ports = {ports[1]},
                    .log_level = "error"})([&] {
    const Folder folder;  // another process, because this one is a node already
    Launched second("occupied", {std::to_string(ports[0]), std::to_string(ports[1])});
    EXPECT_EQ(second.wait(10s), 3);
    EXPECT_THAT(second.output(), HasSubstr("127.0.0.1:" + std::to_string(ports[1])));
    EXPECT_THAT(second.output(), HasSubstr("node 1"));
  });
}

LAUNCHER(occupied) {
  return Parallel::runner({.n_parallel_workers = 2,
                           .protocol = "tcp",
                           .address = "127.0.0.1",
                           .ports = {std::stoi(args.at(0)), std::stoi(args.at(1))},
                           .log_level = "off"})
      .run(nothing);
}

// --- A067 ---

void fail_once_in_node_1() {
  Gathered<int> heard;
  const bool is_first = task.router().retries() == 0;
  const auto running = task.start();
  if (node() == 1) {
    if (is_first) {
      task.emit("about_to_fail", only_remote);
      throw std::runtime_error("once");
    }
    task.emit("again", only_remote);
    task.wait_for("seen", {.timeout = kSoon, .ignore_timeout = false});
    return;
  }
  task.on("about_to_fail", [&] { heard.add(0); });
  task.on("again", [&] { heard.add(1); });
  task.use([&](Context&) {
    if (!heard.wait_for(2, 10ms)) return;
    demand(!task.finish(), "the failed block of node 1 told nobody to finish");
    task.emit("seen", only_remote);
    task.set_finish();
  });
  task.run();
  demand(heard.values() == std::vector<int>{0, 1}, "node 0 outlived the failure of node 1");
}
DIVISI_MAIN(fail_once_in_node_1)

TEST(RecoveryTest, A067_a_block_that_fails_and_is_tried_again_does_not_finish_its_peers) {
  Parallel::runner({.n_parallel_workers = 2, .auto_recover = true, .log_level = "error"})(
      fail_once_in_node_1);
}

void listen_in_each_attempt() {
  static std::atomic<int> calls_of_first{0};
  static std::atomic<int> calls_of_second{0};
  auto& router = task.router();
  auto& calls = router.retries() == 0 ? calls_of_first : calls_of_second;
  if (node() == 1) {
    const auto on_number = router.on("number", [&calls](int) { ++calls; });
    if (router.retries() == 0) throw std::runtime_error("try again");
    router.emit("ready_now");
    demand(jobs::eventually([&] { return calls_of_second == 5; }), "the new listener hears all");
    demand(calls_of_first == 0, "that of the first attempt is gone");
    return;
  }
  Gathered<int> ready;
  const auto on_ready_now = router.on("ready_now", [&] { ready.add(1); });
  demand(ready.wait_for(1), "the second attempt begins");
  for (int i = 0; i < 5; ++i) router.emit("number", i);
  router.flush(kSoon);
  router.off("*");
}
DIVISI_MAIN(listen_in_each_attempt)

TEST(RecoveryTest, Listeners_of_a_failed_attempt_are_removed_before_the_next) {
  Parallel::runner({.n_parallel_workers = 2, .auto_recover = true, .log_level = "error"})(
      listen_in_each_attempt);
}

TEST(RecoveryTest, What_a_failed_attempt_has_started_by_using_it_ends_with_it) {
  Gathered<int> heard;
  Gathered<int> ran;
  Gathered<int> finished;
  Parallel::runner({.n_parallel_workers = 1, .auto_recover = true, .log_level = "off"})([&] {
    const int attempt = task.router().retries();
    std::optional<divisi::Running> running;
    if (attempt == 2) running.emplace(task.start());
    task.on("e", [&heard, attempt] { heard.add(attempt); });
    task.use([&ran, attempt](Context&) { ran.add(attempt); });
    task.on_finish([&finished, attempt](Context&) { finished.add(attempt); });
    if (attempt == 0) throw std::runtime_error("before the run");
    task.run(1);
    task.emit("e");
    if (attempt == 1) {
      demand(heard.wait_for(1), "the listener of this attempt hears");
      throw std::runtime_error("after it");
    }
  });
  EXPECT_THAT(heard.values(), ::testing::ElementsAre(1, 2));
  EXPECT_THAT(ran.values(), ::testing::ElementsAre(1, 2));
  EXPECT_THAT(finished.values(), ::testing::ElementsAre(2)) << "hooks of a main that is gone";
}

TEST(RecoveryTest, The_end_of_main_tells_what_a_listener_threw) {
  const auto failure = failure_of([] {
    Parallel::runner({.n_parallel_workers = 1, .log_level = "off"})([] {
      task.on("e", [] { throw std::runtime_error("a listener's"); });
      task.emit("e");
    });
  });
  EXPECT_THAT(failure.text, HasSubstr("a listener's"));
}

// --- A068 and the policies of worker_lost ---

void die_in_node_1(const Arguments& args) {
  const auto running = task.start();
  task.use([](Context& ctx) {
    std::this_thread::sleep_for(10ms);
    if (node() == 1 && ctx.total_step == 5) ::raise(SIGKILL);
  });
  task.run();
  jobs::append_line(args.at(0), "ended", std::to_string(node()));
}
DIVISI_MAIN(die_in_node_1)

// The others are told: nobody would kill them before the test has failed.
TEST(LostWorkerTest, A068_a_killed_worker_ends_the_launcher_with_its_node_id) {
  const Folder folder;
  const auto failure = failure_of([&] {
    Parallel::runner({.n_parallel_workers = 3, .grace = 10min, .log_level = "error"})(
        die_in_node_1, {folder.path()});
  });
  EXPECT_THAT(failure.text, HasSubstr("node 1"));
  EXPECT_THAT(failure.text, HasSubstr("SIGKILL"));
  EXPECT_EQ(failure.exit_code, 128 + SIGKILL);
  EXPECT_EQ(failure.node, 1);
  EXPECT_EQ(jobs::count_lines(folder.path(), "ended"), 2u);
}

// Node 1 dies once; node 0 hears who is lost and, when it is started again, who is back.
void die_once_in_node_1(const Arguments& args) {
  Gathered<std::string> changes;
  Gathered<int> numbers;
  auto& router = task.router();
  const auto running = task.start();
  if (node() == 1) {
    if (!jobs::read_note(args.at(0), "died")) {
      demand(router.wait_for_peers(1, kSoon), "node 0 is linked");
      task.wait_for("go", {.timeout = kSoon, .ignore_timeout = false});
      jobs::note(args.at(0), "died", "");
      ::raise(SIGKILL);
    }
    for (int i = 0; i < 100; ++i) task.emit("number", only_remote, i);
    task.wait_for("enough", {.timeout = kSoon, .ignore_timeout = false});
    return;
  }
  std::vector<divisi::Subscription> reports;
  for (const char* change : {"peer_lost", "peer_back"}) {
    reports.push_back(router.on(change, [&changes, change](int who) {
      changes.add(change + (" " + std::to_string(who)));
    }));
  }
  task.on("number", [&](int i) { numbers.add(i); });
  task.emit("go", only_remote);
  demand(changes.wait_for(1) && changes.values()[0] == "peer_lost 1", "the lost peer is named");
  if (args.at(1) == "restart") {
    demand(changes.wait_for(2) && changes.values()[1] == "peer_back 1", "so is its return");
    demand(numbers.wait_for(100), "what its new life says arrives");
    for (int i = 0; i < 100; ++i) demand(numbers.values()[std::size_t(i)] == i, "in order");
    task.emit("enough", only_remote);
  }
  jobs::note(args.at(0), "survived", "");
}
DIVISI_MAIN(die_once_in_node_1)

TEST(LostWorkerTest, With_worker_lost_ignore_the_others_go_on_and_hear_who_is_lost) {
  const Folder folder;
  Parallel::runner({.n_parallel_workers = 2, .worker_lost = "ignore", .log_level = "error"})(
      die_once_in_node_1, {folder.path(), "ignore"});
  EXPECT_TRUE(jobs::read_note(folder.path(), "survived"));
}

void meet_without_the_dead() {
  auto& router = Parallel::instance();
  Gathered<int> lost;
  const auto on_peer_lost = router.on("peer_lost", [&](int peer) { lost.add(peer); });
  router.ready();
  router.barrier(kSoon);
  if (node() == 2) ::kill(::getpid(), SIGKILL);
  demand(lost.wait_for(1), "the death is reported");
  router.barrier(kSoon);
  demand(router.stats().peers.size() == 1, "nothing is kept for the dead");
  router.barrier(kSoon);  // nobody ends while another one looks
  router.off("peer_lost");
}
DIVISI_MAIN(meet_without_the_dead)

TEST(LostWorkerTest, With_worker_lost_ignore_barriers_leave_out_the_dead) {
  Parallel::runner({.n_parallel_workers = 3, .worker_lost = "ignore", .log_level = "error"})(
      meet_without_the_dead);
}

constexpr int kSlowEvents = 70;

// The listener takes longer for all of them than any single wait of the sender may last.
void end_before_a_slow_listener(const Arguments& args) {
  auto& router = Parallel::instance();
  Gathered<int> heard;
  divisi::Subscription on_n;
  if (node() == 0) {
    on_n = router.on("n", [&](int n, const std::string&) {
      std::this_thread::sleep_for(100ms);
      heard.add(n);
    });
  }
  router.ready();
  router.barrier(kSoon);
  if (node() == 1) {
    for (int i = 0; i < kSlowEvents; ++i) router.emit("n", i, std::string(100'000, 'x'));
    return;
  }
  demand(heard.wait_for(kSlowEvents), "everything arrives");
  demand(router.stats().gaps == 0, "without a gap");
  jobs::append_line(args.at(0), "all", std::to_string(heard.size()));
}
DIVISI_MAIN(end_before_a_slow_listener)

TEST(CleanEndTest, Everything_emitted_before_main_returned_reaches_a_slow_listener) {
  const Folder folder;
  Parallel::runner({.n_parallel_workers = 2, .queue_bytes = 4u << 20, .log_level = "error"})(
      end_before_a_slow_listener, {folder.path()});
  EXPECT_EQ(jobs::count_lines(folder.path(), "all"), 1u);
}

TEST(LostWorkerTest, With_worker_lost_restart_it_comes_back_and_is_heard_again) {
  const Folder folder;
  Parallel::runner({.n_parallel_workers = 2, .worker_lost = "restart", .log_level = "error"})(
      die_once_in_node_1, {folder.path(), "restart"});
  EXPECT_TRUE(jobs::read_note(folder.path(), "survived"));
}

// Of three nodes one returns, and then node 1 is killed: its next life has nobody else to wait for.
void die_after_another_ended(const Arguments& args) {
  const int ended = std::stoi(args.at(1));
  Gathered<int> heard;
  auto& router = task.router();
  if (node() == 1 && jobs::read_note(args.at(0), "died")) {
    router.emit("back", node());
    demand(router.flush(kSoon), "the survivor took it");
    return;
  }
  const std::string awaited = node() == 1 ? "peer_left" : "back";
  const auto on_event = router.on(awaited, [&](int who) { heard.add(who); });
  router.barrier(kSoon);
  if (node() != ended) demand(heard.wait_for(1), awaited + " is heard");
  router.off(awaited);
  if (node() != 1) return;
  demand(heard.values().front() == ended, "it has ended");
  jobs::note(args.at(0), "died", "");
  ::raise(SIGKILL);
}
DIVISI_MAIN(die_after_another_ended)

TEST(LostWorkerTest, With_worker_lost_restart_it_does_not_wait_for_one_that_has_ended) {
  for (const char* ended : {"0", "2"}) {  // whom it dials, and who dials it
    const Folder folder;
    Parallel::runner({.n_parallel_workers = 3, .worker_lost = "restart", .log_level = "error"})(
        die_after_another_ended, {folder.path(), ended});
    EXPECT_TRUE(jobs::read_note(folder.path(), "died"));
  }
}

TEST(LostWorkerTest, In_a_job_of_known_size_those_that_have_ended_are_not_missed) {
  const Folder folder;
  Parallel::runner({.n_parallel_workers = 3,
                    .worker_lost = "restart",
                    .expected_nodes = 3,
                    .log_level = "error"})(die_after_another_ended, {folder.path(), "2"});
  EXPECT_TRUE(jobs::read_note(folder.path(), "died"));
}

void die_in_the_hub(const Arguments& args) {
  const auto running = task.start();
  if (node() == 0) {
    task.wait_for("go", {.timeout = kSoon, .ignore_timeout = false});
    ::raise(SIGKILL);
  }
  task.emit("go", only_remote);
  task.use([](Context&) { std::this_thread::sleep_for(10ms); });
  task.run();
  jobs::append_line(args.at(0), "ended", std::to_string(node()));
}
DIVISI_MAIN(die_in_the_hub)

void start_after_the_hub_died(const Arguments& args) {
  Gathered<int> heard;
  auto& router = task.router();
  if (node() == 0) {
    const auto on_go = router.on("go", [&](int who) { heard.add(who); });
    demand(heard.wait_for(2), "both leaves listen");
    ::raise(SIGKILL);
  }
  const auto on_peer_lost = router.on("peer_lost", [&](int who) { heard.add(who); });
  router.emit("go", node());
  demand(heard.wait_for(1), "the lost hub is named");
  router.off("peer_lost");
  const auto running = task.start();
  task.use([](Context&) {});
  task.run();
  jobs::append_line(args.at(0), "ended", std::to_string(node()));
}
DIVISI_MAIN(start_after_the_hub_died)

class HubLostTest : public ::testing::TestWithParam<void (*)(const Arguments&)> {};
INSTANTIATE_TEST_SUITE_P(LostWorkerTest, HubLostTest,
                         ::testing::Values(die_in_the_hub, start_after_the_hub_died),
                         [](const auto& which) {
                           return which.index == 0 ? "running" : "starting";
                         });

TEST_P(HubLostTest, With_hub_lost_finish_the_leaves_end_when_their_hub_dies) {
  const Folder folder;
  Parallel::runner({.n_parallel_workers = 3,
                    .topology = "star",
                    .worker_lost = "ignore",
                    .hub_lost = "finish",
                    .log_level = "error"})(GetParam(), {folder.path()});
  EXPECT_EQ(jobs::count_lines(folder.path(), "ended"), 2u);
}

// --- A069 ---

void receive_blocks() {
  constexpr int kBlocks = 1000;
  Gathered<int> received;
  auto& router = task.router();
  if (node() == 0) {
    divisi::Buffer block(100'000);
    std::fill_n(block.mutable_data(), block.size(), std::byte{7});
    for (int i = 0; i < kBlocks; ++i) router.emit("block", i, block);
    return;  // at once: nobody waits for what the receivers have
  }
  const auto on_block = router.on("block", [&](int i, const divisi::Buffer& block) {
    received.add(block.size() == 100'000 && block.data()[99'999] == std::byte{7} ? i : -1);
  });
  demand(received.wait_for(kBlocks, 2 * kSoon), "all blocks arrive");
  router.off("block");
  for (int i = 0; i < kBlocks; ++i)
    demand(received.values()[std::size_t(i)] == i, "in order, whole");
}
DIVISI_MAIN(receive_blocks)

class BlocksTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Receivers, BlocksTest, ::testing::Values(1, 2, 4, 6));

TEST_P(BlocksTest, A069_every_receiver_gets_1000_blocks_of_100_kB) {
  Parallel::runner({.n_parallel_workers = GetParam() + 1, .log_level = "error"})(receive_blocks);
}

// A program that knows nothing of its job but what ditask tells it.
void meet_under_ditask(const Arguments& args) {
  auto& router = Parallel::instance();
  demand(router.n_parallel_workers() == 3, "ditask says how many there are");
  demand(router.labels().contains("lab"), "and what they are called");
  // Before the barrier: whoever has passed it may end, and is no peer any more.
  demand(router.peers().size() == 2, "all are linked");
  router.barrier(kSoon);
  jobs::append_line(args.at(0), "met", std::to_string(router.node_id()));
}

LAUNCHER(program_after_ditask) {
  return Parallel::runner_from_environment().run(meet_under_ditask, args);
}

LAUNCHER(ditask_with_a_program) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string ditask = program.substr(0, program.rfind("/tests/")) + "/bin/ditask";
  ::execl(ditask.c_str(), "ditask", "--parallel-workers", "3", "--topology", "mesh", "--protocol",
          "ipc", "--labels", "lab", "--", program.c_str(), "--launch", "program_after_ditask",
          args.at(0).c_str(), nullptr);
  return 127;
}

TEST(FromEnvironmentTest, Programs_that_ditask_starts_are_one_job) {
  const Folder folder;
  Launched job("ditask_with_a_program", {folder.path()});
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_EQ(jobs::count_lines(folder.path(), "met"), 3u);
}

TEST(FromEnvironmentTest, Without_ditask_it_is_a_usage_error) {
  const auto failure = jobs::failure_of([] { Parallel::runner_from_environment()([] {}); });
  EXPECT_TRUE(failure.usage);
  EXPECT_THAT(failure.text, ::testing::HasSubstr("ditask did not start this program"));
}

}  // namespace
