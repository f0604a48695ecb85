// Section 9.2 as a program sees it: events of a task, most of them between two processes.
#include "acceptance/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <numeric>

namespace {

using divisi::Context;
using divisi::Kwargs;
using divisi::only_remote;
using divisi::Parallel;
using divisi::Target;
using divisi::task;
using jobs::demand;
using jobs::failure_of;
using jobs::Gathered;
using jobs::kSoon;
using jobs::Launched;
using jobs::node;
using jobs::workers;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> up_to(int n) {
  std::vector<int> numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// --- in one process ---

TEST(TaskEventsTest, A035_ten_greetings_of_ten_steps_are_there_after_the_block) {
  std::atomic<int> greetings{0};
  {
    const auto running = task.start();
    task.on("Greeting", [&](const std::string& text) { greetings += text == "Hi" ? 1 : 0; });
    task.use([](Context&) { task.emit("Greeting", "Hi"); });
    task.run(10);
  }
  EXPECT_EQ(greetings, 10);
}

TEST(TaskEventsTest, A039_the_first_example_of_the_guide_prints_one_line) {
  ::testing::internal::CaptureStdout();
  {
    const auto running = task.start();
    task.on("greeting",
            [](const std::string& text) { std::printf("Get msg: %s\n", text.c_str()); });
    task.emit("greeting", "Hi");
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "Get msg: Hi\n");
}

TEST(TaskEventsTest, A040_receiver_and_sender_middleware_exchange_ten_messages_in_order) {
  Gathered<int> received;
  {
    const auto running = task.start();
    task.on("message", [&](int i) { received.add(i); });
    task.use([](Context& ctx) { task.emit("message", ctx.total_step); });
    task.use([&](Context& ctx) { received.wait_for(std::size_t(ctx.total_step) + 1); });
    task.run(10);
  }
  EXPECT_EQ(received.values(), up_to(10));
}

// --- between processes ---

void three_listeners() {
  Gathered<int> heard;
  const auto running = task.start();
  if (node() == 0) {
    for (int i = 0; i < 3; ++i) task.on("once", [&, i](int) { heard.add(i); });
    task.on("then", [&] { heard.add(99); });
    demand(heard.wait_for(4), "all three ran");
    demand(heard.values() == std::vector<int>{0, 1, 2, 99}, "each once, in the order of on()");
    task.emit("enough", only_remote);
  } else {
    task.emit("once", only_remote, 1);
    task.emit("then", only_remote);
    task.wait_for("enough", {.timeout = kSoon, .ignore_timeout = false});
  }
}
DIVISI_MAIN(three_listeners)

// Nobody waits for anybody: the event comes before the listeners, between them or behind them.
TEST(RemoteEventsTest, A042_three_listeners_run_once_each_for_one_remote_emit) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_NO_THROW(Parallel::runner(workers(2))(three_listeners)) << "start " << i;
  }
}

Gathered<std::string>& called() {
  static Gathered<std::string> all;
  return all;
}
void f(int) {
  called().add("f");
}
void g(int) {
  called().add("g");
}

void one_of_two_listeners() {
  const auto running = task.start();
  if (node() == 0) {
    task.on("e", f);
    task.on("e", g);
    task.off("e", f);
    task.on("done", [] { called().add("done"); });
    task.router().barrier(kSoon);
    demand(called().wait_for(2), "the event arrives");
    demand(called().values() == std::vector<std::string>{"g", "done"}, "only g is left");
    task.emit("enough", only_remote);
  } else {
    task.router().barrier(kSoon);
    task.emit("e", only_remote, 1);
    task.emit("done", only_remote);
    task.wait_for("enough", {.timeout = kSoon, .ignore_timeout = false});
  }
}
DIVISI_MAIN(one_of_two_listeners)

TEST(RemoteEventsTest, A043_off_of_one_listener_leaves_the_other) {
  Parallel::runner(workers(2))(one_of_two_listeners);
}

void keyword_arguments() {
  Gathered<std::int64_t> heard;
  const auto running = task.start();
  if (node() == 0) {
    task.on("e", [&](int position, const Kwargs& keywords) {
      heard.add(position);
      heard.add(keywords.at("x").as<int>());
      heard.add(std::int64_t(keywords.size()));
    });
    demand(heard.wait_for(3), "the event arrives");
    demand(heard.values() == std::vector<std::int64_t>{1, 2, 1}, "as (1, x=2)");
    task.emit("enough", only_remote);
  } else {
    task.emit("e", only_remote, 1, divisi::kw("x", 2));
    task.wait_for("enough", {.timeout = kSoon, .ignore_timeout = false});
  }
}
DIVISI_MAIN(keyword_arguments)

TEST(RemoteEventsTest, A044_positional_and_keyword_arguments_travel) {
  Parallel::runner(workers(2))(keyword_arguments);
}

void ten_thousand() {
  constexpr int kCount = 10'000;
  Gathered<int> heard;
  const auto running = task.start();
  if (node() == 0) {
    task.on("number", [&](int i) { heard.add(i); });
    demand(heard.wait_for(kCount), "all arrive");
    task.emit("enough", only_remote);
    demand(heard.values() == up_to(kCount), "in order, none twice");
  } else {
    for (int i = 0; i < kCount; ++i) task.emit("number", only_remote, i);
    task.wait_for("enough", {.timeout = kSoon, .ignore_timeout = false});
  }
}
DIVISI_MAIN(ten_thousand)

class RemoteOrderTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Transports, RemoteOrderTest, ::testing::Values("ipc", "tcp"),
                         [](const auto& each) { return each.param; });

TEST_P(RemoteOrderTest, A045_10000_remote_emits_arrive_complete_and_in_order) {
  auto options = workers(2);
  options.protocol = GetParam();
  if (GetParam() == "tcp") {
    options.address = "127.0.0.1";
    options.ports = jobs::free_ports(2);
  }
  Parallel::runner(options)(ten_thousand);
}

void raise_in_a_listener() {
  Gathered<int> heard;
  std::string raised;
  {
    const auto running = task.start();
    if (node() == 1) {
      for (int i = 0; i < 10; ++i) task.emit("e", only_remote, i);
      task.wait_for("enough", {.timeout = kSoon, .ignore_timeout = false});
      return;
    }
    task.on("e", [&](int i) {
      heard.add(i);
      if (i == 3) throw std::runtime_error("listener failed at 3");
    });
    task.use([&](Context&) { heard.wait_for(10); });
    try {
      task.run(5);
    } catch (const std::exception& error) {
      raised = error.what();
    }
    demand(heard.values() == up_to(10), "the later events arrived all the same");
    demand(raised.find("listener failed at 3") != std::string::npos, "run raised it");
    demand(task.ctx().total_step == 0, "at the end of the step");
    task.router().emit("task.enough");
  }
}
DIVISI_MAIN(raise_in_a_listener)

TEST(RemoteEventsTest, A046_a_failing_listener_stops_no_later_event_and_run_raises_its_error) {
  Parallel::runner(workers(2))(raise_in_a_listener);
}

// The error of a listener that expects other types than a peer sends.
void other_types() {
  Gathered<int> heard;
  const auto running = task.start();
  if (node() == 1) {
    task.emit("loss", only_remote, "seven", 2);
    task.emit("loss", only_remote, 7, 2);
    task.wait_for("enough", {.timeout = kSoon, .ignore_timeout = false});
    return;
  }
  task.on("loss", [&](int step, int) { heard.add(step); });
  demand(heard.wait_for(1), "the event that fits arrives");
  std::string text;
  try {
    task.emit("anything");
  } catch (const std::exception& error) {
    text = error.what();
  }
  task.router().emit("task.enough");
  throw std::runtime_error(text);
}
DIVISI_MAIN(other_types)

TEST(RemoteEventsTest, Wrong_types_are_an_error_that_names_event_expected_and_received) {
  const auto failure = failure_of([] { Parallel::runner(workers(2))(other_types); });
  EXPECT_THAT(failure.text, HasSubstr("loss"));
  EXPECT_THAT(failure.text, HasSubstr("int"));
  EXPECT_THAT(failure.text, HasSubstr("string"));
}

// --- directed events (N15) ---

// Node 0 directs; the others say what reached them. Nodes 1 and 2 are collectors, 3 is a learner.
void directed() {
  Gathered<std::string> heard;
  Gathered<int> present;
  auto& router = task.router();
  const auto running = task.start();
  task.on("e", [&](std::string text) { heard.add(std::move(text)); });
  task.on("present", [&](int who) { present.add(who); });
  if (node() != 0) {
    task.add_role(node() == 3 ? divisi::Role::kLearner : divisi::Role::kCollector);
    task.emit("present", Target::to_node(0), node());
    task.wait_for("enough", {.timeout = kSoon, .ignore_timeout = false});
  } else {
    demand(present.wait_for(3), "all are there");
    task.emit("e", Target::to_node(2), "two");
    task.emit("e", Target::to_role("collector"), "collectors");
    task.emit("e", Target::to_role("learner"), "learner");
    task.emit("e", Target::to_node(0), "myself");
    for (int i = 0; i < 10; ++i) task.emit("e", Target::one_of_role("collector"), "job");
    std::string refused;
    try {
      task.emit("e", Target::to_node(17), "nobody");
    } catch (const divisi::Error& error) {
      refused = error.what();
    }
    demand(refused.find("17") != std::string::npos, "an unknown node is an error that names it");
    task.emit("enough", only_remote);
  }
  router.barrier(kSoon);
  const auto all = heard.values();
  const auto jobs_done = std::count(all.begin(), all.end(), "job");
  std::vector<std::string> rest;
  std::copy_if(all.begin(), all.end(), std::back_inserter(rest),
               [](const auto& text) { return text != "job"; });
  const std::vector<std::vector<std::string>> expected = {
      {"myself"}, {"collectors"}, {"two", "collectors"}, {"learner"}};
  demand(rest == expected.at(static_cast<std::size_t>(node())), "who was meant, and nobody else");
  demand(jobs_done == (node() == 1 || node() == 2 ? 5 : 0), "the jobs are shared evenly");
}
DIVISI_MAIN(directed)

TEST(DirectedEventsTest, Events_reach_the_node_or_role_they_name_and_jobs_one_collector_in_turn) {
  Parallel::runner(workers(4))(directed);
}

void work() {
  Gathered<int> bye;
  std::atomic<int> done{0};
  const auto running = task.start();
  task.on("job", [&](int) { ++done; });
  task.on("news", [&] { done += 100; });
  task.on("bye", [&] { bye.add(1); });  // made before the first wait_for makes this node ready
  task.emit("present", only_remote);
  task.wait_for("enough", {.timeout = kSoon, .ignore_timeout = false});
  task.emit("done", only_remote, done.load());
  demand(bye.wait_for(1), "the end is told");
}
DIVISI_MAIN(work)

// Each names itself when it starts its task.
void answer_to_a_label() {
  const int node = task.router().node_id();
  Gathered<int> present;
  Gathered<int> named;
  const auto running =
      task.start({.labels = {node % 2 == 0 ? "even" : "odd", "is." + std::to_string(node)}});
  task.on("present", [&] { present.add(1); });
  task.on("named", [&](int n) { named.add(n); });
  task.emit("present", only_remote);  // behind the labels
  demand(present.wait_for(2), "all are there");
  task.emit("named", Target::to_label("odd"), node);
  task.emit("named", Target::to_label("is.[02]"), 10 + node);
  task.emit("named", Target::to_label("nobody"), 100 + node);
  demand(named.wait_for(3), "from each");
  for (const int n : named.values()) demand(n / 10 == (node == 1 ? 0 : 1), std::to_string(n));
  task.router().barrier(kSoon);  // nobody's labels go before all were found by them
}
DIVISI_MAIN(answer_to_a_label)

TEST(DirectedEventsTest, Labels_of_a_task_name_its_node) {
  Parallel::runner({.n_parallel_workers = 3, .topology = "mesh", .log_level = "error"})(
      answer_to_a_label);
}

LAUNCHER(labelled) {
  return Parallel::runner({.n_parallel_workers = 3,
                           .attach_to = {args.at(0)},
                           .protocol = "tcp",
                           .address = "127.0.0.1",
                           .ports = jobs::free_ports(3),
                           .topology = "alone",
                           .labels = {"gpu.big", "cheap"},
                           .node_ids = {1}})
      .run(work);
}

TEST(DirectedEventsTest, A_label_pattern_names_peers_and_one_of_them_is_a_work_queue) {
  const auto port = jobs::free_ports(1);
  Launched labelled("labelled", {jobs::loopback(port[0])});
  Parallel::runner({.n_parallel_workers = 1,
                    .protocol = "tcp",
                    .address = "127.0.0.1",
                    .ports = port,
                    .log_level = "error"})([] {
    Gathered<int> present;
    Gathered<int> done;
    const auto running = task.start();
    task.on("present", [&] { present.add(1); });
    task.on("done", [&](int count) { done.add(count); });
    EXPECT_TRUE(present.wait_for(3));
    for (const auto& peer : task.router().peers()) {
      EXPECT_TRUE(peer.labels.contains("gpu.big")) << peer.node_id;
    }
    for (int i = 0; i < 9; ++i) task.emit("job", Target::one_of_label("gpu.*"), i);
    task.emit("news", Target::to_label("cheap"));
    task.emit("news", Target::to_label("expensive"));
    EXPECT_THROW(task.emit("job", Target::one_of_label("expensive"), 1), divisi::Error);
    task.emit("enough", only_remote);
    EXPECT_TRUE(done.wait_for(3));
    EXPECT_THAT(done.values(), ElementsAre(103, 103, 103));
    task.emit("bye", only_remote);
  });
  EXPECT_EQ(labelled.wait(), 0);
}

}  // namespace
