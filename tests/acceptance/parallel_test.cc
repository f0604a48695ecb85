// Section 9.3, first half: several workers of one launcher, and what they hear of each other.
#include "acceptance/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

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
using jobs::node;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

// --- A050 ---

void ping_each_other() {
  Gathered<int> pings;
  const auto running = task.start();
  task.on("ping", [&](int from) { pings.add(from); });
  task.use([&](Context&) {
    task.emit("ping", only_remote, node());
    pings.wait_for(1, 30ms);
  });
  task.run(30);
  demand(pings.wait_for(1), "a ping came");
  demand(pings.values().front() == 1 - node(), "it came from the other node");
}
DIVISI_MAIN(ping_each_other)

class ParallelTest : public ::testing::TestWithParam<std::string> {
 protected:
  ParallelOptions options(int n) const {
    ParallelOptions made{.n_parallel_workers = n, .protocol = GetParam(), .log_level = "error"};
    if (GetParam() == "tcp") {
      made.address = "127.0.0.1";
      made.ports = jobs::free_ports(n);
    }
    return made;
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, ParallelTest, ::testing::Values("ipc", "tcp"),
                         [](const auto& each) { return each.param; });

TEST_P(ParallelTest, A050_two_nodes_hear_each_others_ping) {
  Parallel::runner(options(2))(ping_each_other);
}

// --- fork ---

// A child of a node is not the node: what it emits reaches nobody, and the parent's link goes on.
void fork_and_go_on() {
  Gathered<std::string> heard;
  const auto running = task.start();
  task.on("e", [&](const std::string& from) { heard.add(from); });
  task.router().ready();
  task.router().barrier(kSoon);
  if (node() == 0) {
    task.emit("e", only_remote, "before");
    const pid_t child = ::fork();
    if (child == 0) {
      int wrong = task.router().is_active() || task.router().node_id() != -1 ? 1 : 0;
      wrong += task.running() ? 2 : 0;
      try {
        task.emit("e", only_remote, "child");
        wrong += 4;
      } catch (const divisi::UsageError&) {
      }
      task.router().emit("e", "child");
      const auto own = task.start();  // alone
      Gathered<std::string> ours;
      task.on("e", [&](const std::string& from) { ours.add(from); });
      task.emit("e", "child");
      wrong += ours.wait_for(1) ? 0 : 8;
      task.stop();
      ::_exit(wrong);
    }
    int status = 0;
    demand(::waitpid(child, &status, 0) == child && status == 0,
           "the child was nobody: " + std::to_string(status));
    task.emit("e", only_remote, "after");
    demand(task.router().flush(kSoon), "it was taken");
    const auto stats = task.router().stats();
    demand(stats.peers.at(0).reconnects == 0, "the link did not notice");
  } else {
    demand(heard.wait_for(2), "both came");
    demand(heard.values() == std::vector<std::string>{"before", "after"}, "and nothing else");
  }
  task.router().barrier(kSoon);
}
DIVISI_MAIN(fork_and_go_on)

TEST_P(ParallelTest, A_forked_child_of_a_node_is_nobody) {
  Parallel::runner(options(2))(fork_and_go_on);
}

// --- what a listener took with it calls the router when it is freed ---

struct CallsTheRouter {
  explicit CallsTheRouter(bool* told) : freed(told) {}
  CallsTheRouter(const CallsTheRouter&) = delete;
  CallsTheRouter& operator=(const CallsTheRouter&) = delete;
  ~CallsTheRouter() {
    task.router().off("another");
    *freed = true;
  }
  bool* const freed;
};

void free_a_listener() {
  bool freed = false;
  const auto on_e = task.router().on("e", [held = std::make_shared<CallsTheRouter>(&freed)] {});
  task.router().off("e");
  demand(freed, "the listener is gone");
}
DIVISI_MAIN(free_a_listener)

TEST_P(ParallelTest, What_a_listener_took_with_it_may_call_the_router) {
  Parallel::runner(options(1))(free_a_listener);
}

// --- A051, A052 ---

void count_each_other() {
  Gathered<int> heard;
  const auto running = task.start();
  task.on("count", [&](int from) { heard.add(from); });
  task.use([&](Context&) {
    std::this_thread::sleep_for(200ms + 100ms * node());
    task.emit("count", only_remote, node());
  });
  task.run(10);
  // On a busy machine the other may still be in its first step.
  demand(heard.wait_for(1), "the other's counts arrive");
  for (const int from : heard.values()) demand(from == 1 - node(), "they are the other's");
}
DIVISI_MAIN(count_each_other)

TEST_P(ParallelTest, A051_both_nodes_count_remote_emits) {
  Parallel::runner(options(2))(count_each_other);
}

void speak_from_one() {
  Gathered<int> heard;
  const auto running = task.start();
  task.on("only_remote", [&](int i) { heard.add(i); });
  if (node() == 1) {
    for (int i = 0; i < 20; ++i) task.emit("only_remote", only_remote, i);
    demand(task.router().flush(kSoon), "all was taken");
    demand(heard.size() == 0, "node 1 does not hear itself");
  } else {
    demand(heard.wait_for(20), "all twenty arrive");
  }
}
DIVISI_MAIN(speak_from_one)

TEST_P(ParallelTest, A052_only_remote_reaches_the_other_node_and_not_the_own_listener) {
  Parallel::runner(options(2))(speak_from_one);
}

// --- A053, A054 ---

void fail_in_node_0() {
  const auto running = task.start();
  task.use([](Context&) {
    std::this_thread::sleep_for(10ms);
    if (node() == 0 && task.ctx().total_step == 10) throw std::runtime_error("uncaught exception");
  });
  task.run();
}
DIVISI_MAIN(fail_in_node_0)

TEST_P(ParallelTest, A053_an_exception_of_a_worker_leaves_the_launcher_with_its_text) {
  const auto failure = failure_of([&] { Parallel::runner(options(2))(fail_in_node_0); });
  EXPECT_THAT(failure.text, HasSubstr("uncaught exception"));
  EXPECT_THAT(failure.text, HasSubstr("node 0"));
  EXPECT_EQ(failure.node, 0);
  EXPECT_EQ(failure.exit_code, 1);
}

// args: folder, pace, bytes of a greeting
void leave_after_one_greeting(const Arguments& args) {
  const std::string& pace = args.at(1);
  const std::string greeting(std::stoul(args.at(2)), 'x');
  const auto left = std::make_shared<Gathered<int>>();  // the listener may outlive this function
  const auto running = task.start();
  if (node() == 0) {
    task.wait_for("greeting", {.timeout = kSoon, .ignore_timeout = false});
    return;
  }
  const auto on_peer_left = task.router().on("peer_left", [left](int who) { left->add(who); });
  for (int i = 0; i < 10; ++i) {
    task.emit("greeting", greeting);
    if (pace == "meanwhile") left->wait_for(1, 5ms);
    if (pace == "afterwards" && i == 0) {
      demand(left->wait_for(1), "node 0 says goodbye");
      demand(left->values().front() == 0, "the event names the node");
    }
  }
  jobs::note(args.at(0), "sent", "10");
}
DIVISI_MAIN(leave_after_one_greeting)

TEST_P(ParallelTest, A054_a_node_that_left_does_not_disturb_the_one_that_sends) {
  for (const char* const pace : {"at once", "meanwhile", "afterwards"}) {
    for (const char* const bytes : {"1", "2000000"}) {
      SCOPED_TRACE(std::string(pace) + ", " + bytes + " bytes");
      const Folder folder;
      ASSERT_NO_THROW(
          Parallel::runner(options(2))(leave_after_one_greeting, {folder.path(), pace, bytes}));
      EXPECT_EQ(jobs::read_note(folder.path(), "sent"), "10");
    }
  }
}

// --- A055, A056 ---

// Node 2 greets all the time, also while node 1 fails and is called again. Its greetings say
// whether it knows of the recovery: those that do were not kept from before.
void recover_in_node_1() {
  Gathered<int> heard;
  Gathered<int> late;
  auto& router = task.router();
  const auto running = task.start();
  const auto listen = [&](const char* event) {
    task.on(event, [&heard](int number) { heard.add(number); });
  };
  switch (node()) {
    case 0:
      listen("recovered_p1");
      demand(heard.wait_for(1), "node 0 hears of the recovery");
      break;
    case 1: {
      task.on("greeting", [&](bool is_late) { (is_late ? late : heard).add(1); });
      if (router.retries() == 0) {
        demand(heard.wait_for(3), "node 1 fails in the middle of the traffic");
        throw std::runtime_error("P1 Error");
      }
      demand(router.retries() == 1, "one failure was counted");
      task.emit("recovered_p1", only_remote, 1);
      demand(late.wait_for(1), "node 1 still receives from node 2");
      task.emit("heard_p2", only_remote, 1);
      break;
    }
    case 2: {
      listen("heard_p2");
      task.on("recovered_p1", [&](int number) { late.add(number); });
      const auto end = std::chrono::steady_clock::now() + 2 * kSoon;
      while (!heard.wait_for(1, 5ms)) {
        task.emit("greeting", only_remote, late.size() > 0);
        demand(std::chrono::steady_clock::now() < end, "node 1 hears after its recovery");
      }
      break;
    }
  }
}
DIVISI_MAIN(recover_in_node_1)

TEST_P(ParallelTest, A055_auto_recover_calls_main_again_over_the_same_links) {
  auto recovering = options(3);
  recovering.auto_recover = true;
  recovering.max_retries = 1;
  Parallel::runner(recovering)(recover_in_node_1);
}

TEST_P(ParallelTest, A056_without_retries_left_the_launcher_fails_with_the_workers_error) {
  auto recovering = options(3);
  recovering.auto_recover = true;
  recovering.max_retries = 0;
  recovering.grace = 500ms;
  const auto failure = failure_of([&] { Parallel::runner(recovering)(recover_in_node_1); });
  EXPECT_THAT(failure.text, HasSubstr("P1 Error"));
  EXPECT_EQ(failure.node, 1);
}

// --- A057 ---

void run_until_the_first_ends(const Arguments& args) {
  const auto running = task.start();
  task.use([](Context& ctx) {
    std::this_thread::sleep_for(500ms);
    // On a busy machine the others may need longer for their two steps than node 0 for five.
    if (node() == 0 && ctx.total_step == 5) jobs::eventually([] { return task.finish(); });
  });
  task.run(node() == 0 ? 10 : 2);
  const auto last = task.ctx().total_step;
  demand(last < 7, "it ended early, not at step " + std::to_string(last));
  jobs::append_line(args.at(0), "ended", std::to_string(node()));
}
DIVISI_MAIN(run_until_the_first_ends)

TEST_P(ParallelTest, A057_the_first_node_that_ends_ends_the_others) {
  const Folder folder;
  Parallel::runner(options(3))(run_until_the_first_ends, {folder.path()});
  EXPECT_EQ(jobs::count_lines(folder.path(), "ended"), 3u);
}

// --- A059 ---

void greet() {
  const auto running = task.start();
  if (node() == 0) {
    const auto message = task.wait_for("greeting", {.timeout = kSoon, .ignore_timeout = false});
    demand(message->get<std::string>(0) == "Hi", "the message is whole");
  } else {
    task.emit("greeting", only_remote, "Hi");
  }
}
DIVISI_MAIN(greet)

// 100 times over ipc; 10 over tcp, where every start takes ports of its own.
TEST_P(ParallelTest, A059_a_greeting_right_after_the_start_arrives_in_every_start) {
  for (int i = 0; i < (GetParam() == "ipc" ? 100 : 10); ++i) {
    ASSERT_NO_THROW(Parallel::runner(options(2))(greet)) << "start " << i;
  }
}

// --- A060, A061 ---

// Everybody speaks at once, right after the start; nobody leaves before all have what they expect.
void tell_all(const Arguments& args) {
  Gathered<int> heard;
  auto& router = task.router();
  const auto running = task.start();
  task.emit("here", only_remote, node());
  task.on("here", [&](int from) { heard.add(from); });
  std::vector<int> expected;
  for (int i = 0; i < router.n_parallel_workers(); ++i) {
    const bool linked = args.at(0) == "mesh" || args.at(0) == "relay" || node() == 0 || i == 0;
    if (i != node() && linked) expected.push_back(i);
  }
  demand(heard.wait_for(expected.size()), "all that are linked are heard");
  router.barrier(kSoon);
  auto got = heard.values();
  std::sort(got.begin(), got.end());
  demand(got == expected, "nobody is heard twice, and nobody else");
}
DIVISI_MAIN(tell_all)

TEST_P(ParallelTest, A060_in_a_star_the_leaves_hear_the_hub_only) {
  auto star = options(4);
  star.topology = "star";
  Parallel::runner(star)(tell_all, {"star"});
}

TEST_P(ParallelTest, A061_in_a_mesh_each_hears_the_three_others_from_the_first_emit_on) {
  Parallel::runner(options(4))(tell_all, {"mesh"});
}

// The first would give up before the last is started, if its time began with its own start.
TEST_P(ParallelTest, Workers_that_start_one_after_the_other_wait_for_the_last_one) {
  auto slow = options(3);
  slow.startup_interval = 1'500ms;
  slow.join_timeout = 2'500ms;
  Parallel::runner(slow)(tell_all, {"mesh"});
}

TEST_P(ParallelTest, A_hub_that_relays_lets_the_leaves_hear_each_other) {
  auto star = options(4);
  star.topology = "star";
  star.relay = true;
  Parallel::runner(star)(tell_all, {"relay"});
}

}  // namespace
