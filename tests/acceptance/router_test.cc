// The router beside events: barrier, calls, peers, counters, policies.
#include "acceptance/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace {

using divisi::Parallel;
using jobs::Arguments;
using jobs::demand;
using jobs::Folder;
using jobs::Gathered;
using jobs::kSoon;
using jobs::workers;
using namespace std::chrono_literals;

Parallel& router() {
  return Parallel::instance();
}

template <class F>
std::string error_of(F&& call) {
  try {
    call();
  } catch (const divisi::Error& error) {
    return error.what();
  }
  return "no error";
}

void demand_text(const std::string& text, const std::string& part) {
  demand(text.find(part) != std::string::npos, "'" + text + "' mentions '" + part + "'");
}

// --- barrier ---

void meet_five_times(const Arguments& args) {
  const auto n = static_cast<std::size_t>(router().n_parallel_workers());
  for (std::size_t round = 1; round <= 5; ++round) {
    if (router().node_id() == static_cast<int>(round % n)) std::this_thread::sleep_for(20ms);
    jobs::append_line(args.at(0), "reached", std::to_string(round));
    router().barrier(kSoon);
    demand(jobs::count_lines(args.at(0), "reached") >= n * round, "all have reached the barrier");
  }
}
DIVISI_MAIN(meet_five_times)

class BarrierTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Topologies, BarrierTest, ::testing::Values("mesh", "star"),
                         [](const auto& each) { return each.param; });

TEST_P(BarrierTest, Nobody_passes_before_all_have_come) {
  const Folder folder;
  auto options = workers(4);
  options.topology = GetParam();
  options.node_ids = {3, 11, 7, 5};
  Parallel::runner(options)(meet_five_times, {folder.path()});
  EXPECT_EQ(jobs::count_lines(folder.path(), "reached"), 20u);
}

// Node 1 dies before its third barrier or in it. Its successor's first one is the next.
void meet_with_a_successor(const Arguments& args) {
  const std::string& folder = args.at(0);
  const bool dies = router().node_id() == 1 && !jobs::read_note(folder, "died");
  const bool successor = router().node_id() == 1 && !dies;
  const auto meet = [&](int round) {
    jobs::append_line(folder, "reached" + std::to_string(round), "x");
    router().barrier(kSoon);
    demand(jobs::count_lines(folder, "reached" + std::to_string(round)) ==
               static_cast<std::size_t>(router().n_parallel_workers()),
           "all have reached barrier " + std::to_string(round));
  };
  const int next = args.at(1) == "inside" ? 4 : 3;
  for (int round = successor ? next : 1; round <= 5; ++round) {
    if (dies && round == 3) {
      if (args.at(1) == "inside") {  // it has come, and cannot go on
        jobs::append_line(folder, "reached3", "x");
        demand_text(error_of([] { router().barrier(50ms); }), "no word from");
        demand(router().flush(kSoon), "they have it");
      }
      jobs::note(folder, "died", "");
      ::raise(SIGKILL);
    }
    if (round == 3 && router().node_id() == 2 && args.at(1) != "before") {
      jobs::wait_for_note(folder, "died");
      if (args.at(1) == "late") demand(router().wait_for_peers(2, kSoon), "node 1 is back");
    }
    meet(round);
  }
}
DIVISI_MAIN(meet_with_a_successor)

TEST_P(BarrierTest, A_successor_takes_part_where_the_others_are) {
  for (const std::string how : {"before", "inside", "late"}) {
    const Folder folder;
    auto options = workers(3);
    options.topology = GetParam();
    options.worker_lost = "restart";
    if (GetParam() == "star" && how == "late") continue;  // a leaf does not see the other
    Parallel::runner(options)(meet_with_a_successor, {folder.path(), how});
    EXPECT_EQ(jobs::count_lines(folder.path(), "reached5"), 3u) << how;
  }
}

void wait_for_the_absent() {
  Gathered<int> over;
  const auto on_over = router().on("over", [&] { over.add(1); });
  if (router().node_id() == 2) {
    demand(over.wait_for(2), "the others gave up");
  } else {
    const std::string text = error_of([] { router().barrier(200ms); });
    demand_text(text, "no word from node");
    demand_text(text, " 2");
    router().emit("over");
    demand(over.wait_for(1), "the other gave up too");
    router().flush(kSoon);
  }
  router().off("over");
}
DIVISI_MAIN(wait_for_the_absent)

TEST(BarrierTimeoutTest, A_timeout_names_the_nodes_that_are_missing) {
  Parallel::runner(workers(3))(wait_for_the_absent);
}

void wait_as_long_as_it_takes() {
  constexpr auto kLongest = std::chrono::milliseconds::max();
  const bool serves = router().node_id() == 1;
  divisi::Subscription serves_add;
  if (serves) serves_add = router().serve("add", [](int a, int b) { return a + b; });
  router().barrier(kLongest);
  if (!serves) demand(router().call<int>(1, "add", kLongest, 2, 3) == 5, "the answer is awaited");
  demand(router().wait_for_peers(1, kLongest), "the peer is there");
  router().barrier(kLongest);
  demand(router().flush(kLongest), "all was taken");
}
DIVISI_MAIN(wait_as_long_as_it_takes)

TEST(BarrierTimeoutTest, The_longest_timeouts_are_long) {
  auto options = workers(2);
  options.join_timeout = options.send_timeout = std::chrono::milliseconds::max();
  Parallel::runner(options)(wait_as_long_as_it_takes);
}

// Node 1 is there, but it does not come, and answers too late.
void give_up(const Arguments& args) {
  const std::string& folder = args.at(0);
  if (router().node_id() == 1) {
    const auto serves_slow = router().serve("slow", [&] { jobs::wait_for_note(folder, "over"); });
    jobs::note(folder, "serving", "x");
    jobs::wait_for_note(folder, "over");
    return;
  }
  jobs::wait_for_note(folder, "serving");
  for (const bool before : {true, false}) {
    const auto given_up = [&](const std::function<void(const std::stop_token&)>& wait) {
      std::stop_source source;
      if (before) source.request_stop();
      const std::jthread meanwhile([&] { source.request_stop(); });
      wait(source.get_token());
    };
    const auto cancelled = [&](const std::function<void(const std::stop_token&)>& wait) {
      try {
        given_up(wait);
      } catch (const divisi::Error& error) {
        demand(error.code() == divisi::Code::kCancelled, error.what());
        return std::string(error.what());
      }
      return std::string("no error");
    };
    demand_text(cancelled([](auto& stop) { router().barrier(kSoon, stop); }),
                "no word from node 1 when it was given up");
    demand_text(cancelled([](auto& stop) {
                  router().call<void>(1, "slow", {.timeout = kSoon, .stop = stop});
                }),
                "call 'slow' on node 1: given up");
    given_up([](auto& stop) { demand(!router().wait_for_peers(2, kSoon, stop), "one is there"); });
    given_up([](auto& stop) { demand(router().wait_for_peers(1, kSoon, stop), "who is there"); });
  }
  jobs::note(folder, "over", "x");
}
DIVISI_MAIN(give_up)

TEST(GiveUpTest, A_stop_token_ends_every_wait_of_the_router) {
  const Folder folder;
  Parallel::runner(workers(2))(give_up, {folder.path()});
}

// --- calls ---

void call_and_serve() {
  Gathered<int> over;
  const auto on_over = router().on("over", [&] { over.add(1); });
  if (router().node_id() == 1) {
    const auto serves_add = router().serve("add", [](int a, int b) { return a + b; });
    const auto serves_greet =
        router().serve("greet", [](const std::string& who) { return "hello " + who; });
    const auto serves_nothing = router().serve("nothing", [] {});
    const auto serves_fail =
        router().serve("fail", []() -> int { throw std::runtime_error("no such thing"); });
    const auto serves_slow = router().serve("slow", [] { std::this_thread::sleep_for(300ms); });
    const auto serves_die = router().serve("die", [] { ::raise(SIGKILL); });
    router().ready();
    over.wait_for(1, kSoon);
    return;
  }
  const auto soon = std::chrono::milliseconds(kSoon);
  demand(router().call<int>(1, "add", soon, 2, 3) == 5, "an answer comes back");
  demand(router().call<std::string>(1, "greet", soon, "you") == "hello you", "of any type");
  router().call<void>(1, "nothing", soon);
  for (int i = 0; i < 100; ++i) demand(router().call<int>(1, "add", soon, i, i) == 2 * i, "again");
  demand_text(error_of([&] { router().call<int>(1, "fail", soon); }), "no such thing");
  demand_text(error_of([&] { router().call<int>(9, "add", soon, 1, 1); }), "node 9");
  demand_text(error_of([&] { router().call<void>(1, "slow", 20ms); }), "no answer");
  demand(jobs::eventually([] {
           for (const auto& peer : router().peers()) {
             if (peer.node_id == 1 && peer.ready) return true;
           }
           return false;
         }),
         "node 1 is ready");
  demand_text(error_of([&] { router().call<int>(1, "unknown", soon); }), "does not serve");
  demand_text(error_of([&] { router().call<void>(1, "die", soon); }), "gone");
}
DIVISI_MAIN(call_and_serve)

TEST(CallTest, Answers_errors_and_deaths_come_back_to_the_caller) {
  auto options = workers(2);
  options.worker_lost = "ignore";
  Parallel::runner(options)(call_and_serve);
}

// Node 1 serves; its emits would throw what a call had left behind.
void make_bad_calls() {
  Gathered<int> over;
  const auto on_over = router().on("over", [&] { over.add(1); });
  if (router().node_id() == 1) {
    const auto serves_add = router().serve("add", [](int a, int b) { return a + b; });
    const auto serves_throw = router().serve("throw", [](int what) { throw what; });
    const auto serves_huge =
        router().serve("huge", [](std::size_t size) { return divisi::Buffer(size); });
    router().barrier(kSoon);
    demand(over.wait_for(1), "node 0 has made its calls");
    router().emit("idle");
    return;
  }
  router().barrier(kSoon);
  const auto soon = std::chrono::milliseconds(kSoon);
  const auto add = [&](const auto&... args) {
    return error_of([&] { router().call<int>(1, "add", soon, args...); });
  };
  demand_text(add("one", "two"), "argument 1");
  demand_text(add(1), "expected 2 arguments");
  demand_text(add(1, 2, 3), "received 3");
  demand_text(add(1, 2, divisi::kw("c", 3)), "keyword arguments (c)");
  demand_text(error_of([&] { router().call<void>(1, "throw", soon, 3); }), "threw int");
  demand_text(error_of([&] { router().call(1, "huge", soon, 4 << 20); }), "at most");
  router().emit("call.add", "no call at all");
  demand(router().call<int>(1, "add", soon, 2, 3) == 5, "the server goes on");
  router().emit("over");
  router().flush(kSoon);
}
DIVISI_MAIN(make_bad_calls)

TEST(CallTest, A_bad_call_is_an_error_of_its_caller_only) {
  auto options = workers(2);
  options.max_message_bytes = 1 << 20;
  Parallel::runner(options)(make_bad_calls);
}

void leave_before_the_answer() {
  Gathered<int> called;
  if (router().node_id() == 0) {
    const auto on_called = router().on("called", [&] { called.add(1); });
    router().barrier(kSoon);
    demand_text(error_of([] { router().call<void>(1, "late", 1ms); }), "no answer");
    demand(called.wait_for(1), "the call is under way");
    router().off("*");
    return;
  }
  Gathered<int> answered;
  const auto on_peer_left =
      router().on("peer_left", [&](int node) { answered.add(node); });  // after the call: one loop
  const auto serves_late = router().serve("late", [] {
    router().emit("called");
    jobs::eventually([] { return router().peers().empty(); });
  });
  router().barrier(kSoon);
  demand(answered.wait_for(1), "the call has ended");
  router().emit("idle");
  router().off("*");
}
DIVISI_MAIN(leave_before_the_answer)

TEST(CallTest, An_answer_for_a_caller_that_has_gone_is_dropped) {
  Parallel::runner(workers(2))(leave_before_the_answer);
}

// Leaf 1 asks the hub, which relays; leaf 2 serves the same name and must not be asked.
void ask_the_hub() {
  std::atomic<int> asked{0};
  Gathered<int> said;
  const auto serves_who = router().serve("who", [&] {
    ++asked;
    return router().node_id();
  });
  const auto on_for_the_hub = router().on("for_the_hub", [&](int from) { said.add(from); });
  router().barrier(kSoon);
  if (router().node_id() == 1) {
    demand(router().call<int>(0, "who", std::chrono::milliseconds(kSoon)) == 0, "the hub answers");
    router().emit_to({.to = divisi::Target::to_node(0)}, "for_the_hub", 1);
    demand(router().flush(kSoon), "the hub took it");
  }
  router().barrier(kSoon);
  demand(asked == (router().node_id() == 0 ? 1 : 0), "only the hub was asked");
  demand(router().node_id() == 0 ? said.wait_for(1) : said.size() == 0, "only the hub was told");
  router().barrier(kSoon);
}
DIVISI_MAIN(ask_the_hub)

TEST(CallTest, A_hub_that_relays_keeps_what_is_meant_for_it_alone) {
  auto options = workers(3);
  options.topology = "star";
  options.relay = true;
  Parallel::runner(options)(ask_the_hub);
}

// --- peers and counters ---

void look_around() {
  Gathered<int> heard;
  Gathered<int> over;
  auto& self = router();
  demand(self.is_active() && self.n_parallel_workers() == 3 && self.mq_type() == "nng",
         "the facts");
  demand(self.labels().contains("lab"), "the launcher's labels are known");
  demand(self.wait_for_peers(2, kSoon), "two peers");
  demand(!self.wait_for_peers(3, 10ms), "and no third one");
  const auto on_listened = self.on("listened", [&](int i) { heard.add(i); });
  const auto on_over = self.on("over", [&] { over.add(1); });
  self.ready();
  for (const auto& peer : self.peers()) {
    demand(peer.node_id != self.node_id() && peer.labels.contains("lab"), "peers have labels");
    demand(peer.connected && !peer.lost && peer.address.starts_with("ipc://"), "and addresses");
  }
  demand(self.peers().size() == 2, "two others are listed");
  self.barrier(kSoon);
  const auto all_ready = [&] {
    const auto peers = self.peers();
    return std::all_of(peers.begin(), peers.end(), [](const auto& peer) { return peer.ready; });
  };
  demand(jobs::eventually(all_ready), "all become ready");
  if (self.node_id() == 0) {
    for (int i = 0; i < 50; ++i) self.emit("listened", i);
    for (int i = 0; i < 50; ++i) self.emit("unheard", i);
    demand(self.flush(kSoon), "all was taken");
    const auto stats = self.stats();
    for (const auto& topic : stats.topics) {
      if (topic.topic == "listened") demand(topic.sent == 100, "once for each peer");
      if (topic.topic == "unheard") demand(topic.sent == 0, "nobody wants it: it is not sent");
    }
    for (const auto& peer : stats.peers) {
      demand(peer.sent >= 50 && peer.unacknowledged == 0 && peer.queued_bytes == 0, "counts agree");
      demand(peer.dropped == 0 && peer.undelivered == 0 && peer.reconnects == 0, "nothing is lost");
    }
  } else {
    demand(heard.wait_for(50), "the events arrive");
    // Counted by the thread that read them, which may be behind the callbacks.
    const auto all_counted = [&] {
      const auto topics = self.stats().topics;
      return std::any_of(topics.begin(), topics.end(), [](const auto& topic) {
        return topic.topic == "listened" && topic.received == 50;
      });
    };
    demand(jobs::eventually(all_counted), "and are counted");
  }
  self.barrier(kSoon);
}
DIVISI_MAIN(look_around)

TEST(RouterTest, Peers_and_counters_tell_what_is_going_on) {
  auto options = workers(3);
  options.labels = {"lab"};
  Parallel::runner(options)(look_around);
}

TEST(RouterTest, Outside_of_a_run_it_is_inactive_and_emits_vanish) {
  EXPECT_FALSE(router().is_active());
  EXPECT_EQ(router().node_id(), -1);
  EXPECT_TRUE(router().peers().empty());
  EXPECT_EQ(router().get_attch_to_len(), 0);
  EXPECT_NO_THROW(router().emit("e", 1));
  EXPECT_THROW(static_cast<void>(router().on("e", [](int) {})), divisi::UsageError);
}

// --- what listeners throw, and what peers may not say ---

std::size_t failures(int emits) {
  std::size_t failed = 0;
  for (int i = 0; i < emits; ++i) failed += error_of([] { router().emit("idle"); }) != "no error";
  return failed;
}

void answer_after_a_failure() {
  Gathered<int> answers;
  Gathered<int> gone;
  if (router().node_id() == 0) {
    const auto on_answer = router().on("answer", [&](int i) { answers.add(i); });
    router().barrier(kSoon);
    router().emit("question", "no number");
    for (int i = 0; i < 10; ++i) router().emit("question", i);
    demand(answers.wait_for(10), "every question that can be read is answered");
    router().barrier(kSoon);
    router().barrier(kSoon);
    router().emit("question", "again no number");
    router().emit("question", 10);
    demand(answers.wait_for(11), "also after the next one");
    router().off("answer");
    router().barrier(kSoon);
    return;
  }
  const auto on_question = router().on("question", [](int i) { router().emit("answer", i); });
  const auto on_peer_left = router().on("peer_left", [&](int node) { gone.add(node); });
  router().barrier(kSoon);
  router().barrier(kSoon);
  demand_text(error_of([] { router().emit("idle"); }), "question");
  demand(failures(3) == 0, "it is thrown once");
  router().barrier(kSoon);
  router().barrier(kSoon);
  demand(gone.wait_for(1), "a stored error does not silence reports about peers");
  demand(failures(3) == 1, "the second one is thrown too, once");
  router().off("*");
}
DIVISI_MAIN(answer_after_a_failure)

TEST(RouterTest, A_listener_that_failed_is_told_once_and_silences_nobody) {
  Parallel::runner(workers(2))(answer_after_a_failure);
}

void fail_where_nobody_looks() {
  Gathered<int> heard;
  const auto on_number = router().on("number", [&](int n) {
    heard.add(n);
    if (router().node_id() == 0) throw std::runtime_error("nobody looks");
  });
  router().barrier(kSoon);
  if (router().node_id() == 1) router().emit("number", 1);
  if (router().node_id() == 0) demand(heard.wait_for(1), "the listener has failed");
  router().barrier(kSoon);
}
DIVISI_MAIN(fail_where_nobody_looks)

TEST(RouterTest, An_error_of_a_listener_that_nobody_sees_fails_the_run) {
  const auto failure =
      jobs::failure_of([] { Parallel::runner(workers(2))(fail_where_nobody_looks); });
  EXPECT_EQ(failure.exit_code, 1);
  EXPECT_EQ(failure.node, 0);
  EXPECT_THAT(failure.text, ::testing::HasSubstr("nobody looks"));
}

void leave_with_a_listener_of_locals() {
  std::mutex mutex;
  std::map<int, bool> gone;
  const auto on_peer_left = router().on("peer_left", [&](int node) {
    const std::lock_guard lock(mutex);
    gone[node] = true;
  });
  router().barrier(kSoon);
}
DIVISI_MAIN(leave_with_a_listener_of_locals)

TEST(SubscriptionTest, No_listener_runs_on_what_main_has_left) {
  for (int i = 0; i < 5; ++i) Parallel::runner(workers(8))(leave_with_a_listener_of_locals);
}

void fail_with_a_listener_of_locals() {
  std::vector<int> numbers;
  const auto on_number = router().on("number", [&](int n) { numbers.push_back(n); });
  if (router().node_id() == 1) {
    router().barrier(kSoon);
    for (int n = 0; n < 20'000; ++n) router().emit("number", n);
    return;
  }
  if (router().retries() == 0) router().barrier(kSoon);
  if (router().retries() < 3) throw std::runtime_error("try again");
}
DIVISI_MAIN(fail_with_a_listener_of_locals)

TEST(SubscriptionTest, No_listener_runs_on_what_a_failed_main_has_left) {
  ParallelOptions options = workers(2);
  options.auto_recover = true;
  Parallel::runner(options)(fail_with_a_listener_of_locals);
}

void end_while_it_runs() {
  if (router().node_id() == 1) {
    router().barrier(kSoon);
    for (int n = 0; n < 3; ++n) router().emit("number", n);
    router().flush(kSoon);
    return;
  }
  Gathered<int> begun;
  std::atomic<int> ended{0};
  divisi::Subscription slow = router().on("number", [&](int n) {
    begun.add(n);
    std::this_thread::sleep_for(100ms);
    ++ended;
  });
  Gathered<int> own;
  divisi::Subscription once = router().on("number", [&](int n) {
    once.end();
    own.add(n);
  });
  router().barrier(kSoon);
  demand(begun.wait_for(1), "the listener runs");
  slow.end();
  const int calls = ended;
  demand(calls == static_cast<int>(begun.size()), "end() has waited for the call");
  demand(!slow, "it is over");
  demand(own.wait_for(1), "the other listener has ended itself");
  demand(own.size() == 1 && ended == calls, "neither is called again");
}
DIVISI_MAIN(end_while_it_runs)

TEST(SubscriptionTest, Ends_after_the_call_that_runs_and_inside_of_its_own) {
  Parallel::runner(workers(2))(end_while_it_runs);
}

void sender_of_reports() {
  Gathered<int> heard;
  std::vector<divisi::Subscription> reports;
  for (const char* name : {"peer_joined", "peer_lost", "peer_back", "peer_left"}) {
    reports.push_back(router().on(name, [&](int node) {
      if (node == 7) heard.add(node);
    }));
    demand_text(error_of([&] { router().emit(name, 7); }), name);
  }
  router().ready();
  router().barrier(kSoon);
  router().barrier(kSoon);
  demand(heard.size() == 0, "nobody has heard a report");
  router().off("*");
}
DIVISI_MAIN(sender_of_reports)

TEST(RouterTest, Reports_about_peers_are_not_to_be_emitted) {
  Parallel::runner(workers(2))(sender_of_reports);
}

// --- policies ---

// The receiver's callback waits until all were emitted, so that the queue fills; what the policy
// drops is counted.
void overflow(const Arguments& args) {
  constexpr int kCount = 3000;
  const std::string& policy = args.at(0);
  const std::string& folder = args.at(1);
  Gathered<int> numbers;
  Gathered<int> totals;
  const auto on_number = router().on("number", [&](int i, const divisi::Buffer&) {
    if (numbers.size() == 0) jobs::wait_for_note(folder, "emitted");
    numbers.add(i);
  });
  const auto on_total = router().on("total", [&](int delivered) { totals.add(delivered); });
  router().ready();
  router().barrier(kSoon);  // what comes before a listener is kept up to a bound only
  if (router().node_id() == 1) {
    demand(totals.wait_for(1), "the sender is done");
    const auto got = numbers.values();
    demand(std::is_sorted(got.begin(), got.end()), "in order");
    demand(std::adjacent_find(got.begin(), got.end()) == got.end(), "none twice");
    demand(got.size() < kCount, "some were dropped");
    demand(policy == "error" || got.back() == kCount - 1, "the newest arrived");
    const int total = totals.values()[0];
    demand(static_cast<int>(got.size()) == total,
           "the counts agree: " + std::to_string(got.size()) + " of " + std::to_string(total));
    router().emit("total", 0);
    router().flush(kSoon);
    return;
  }
  divisi::SendOptions send;
  if (policy == "latest_only") send.policy = divisi::Policy::kLatestOnly;
  if (policy == "drop_oldest") send.policy = divisi::Policy::kDropOldest;
  if (policy == "error") send.policy = divisi::Policy::kError;
  const divisi::Buffer block(20'000);
  int refused = 0;
  for (int i = 0; i < kCount; ++i) {
    try {
      router().emit_to(send, "number", i, block);
    } catch (const divisi::Error& error) {
      demand(error.code() == divisi::Code::kWouldBlock, "the error says that it would block");
      demand_text(error.what(), "node 1");
      ++refused;
    }
  }
  jobs::note(folder, "emitted", "");
  demand(router().flush(kSoon), "the rest is taken");
  const auto dropped = router().stats().peers.at(0).dropped;
  router().emit("total", kCount - static_cast<int>(dropped) - refused);
  demand(totals.wait_for(1), "the receiver has counted");
}
DIVISI_MAIN(overflow)

class PolicyTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Policies, PolicyTest,
                         ::testing::Values("latest_only", "drop_oldest", "error", "of_the_runner"),
                         [](const auto& each) { return each.param; });

TEST_P(PolicyTest, What_a_full_queue_drops_is_counted_and_the_rest_stays_in_order) {
  auto options = workers(2);
  options.queue_bytes = 1 << 20;
  options.memory_bytes = 8 << 20;
  if (GetParam() == "of_the_runner") options.send_policy = divisi::Policy::kDropOldest;
  const Folder folder;
  Parallel::runner(options)(overflow, {GetParam(), folder.path()});
}

// The receiver is slow, so that the emits wait: nothing is dropped.
void choose_to_wait() {
  constexpr int kCount = 300;
  Gathered<int> numbers;
  Gathered<int> over;
  const auto on_number = router().on("number", [&](int i, const divisi::Buffer&) {
    numbers.add(i);
    std::this_thread::sleep_for(1ms);
  });
  const auto on_over = router().on("over", [&] { over.add(1); });
  router().barrier(kSoon);
  if (router().node_id() == 0) {
    const divisi::SendOptions wait{.policy = divisi::Policy::kBlock};
    for (int i = 0; i < kCount; ++i) router().emit_to(wait, "number", i, divisi::Buffer(20'000));
    router().emit("over");
    demand(router().flush(kSoon), "all is taken");
    demand(router().stats().peers.at(0).dropped == 0, "nothing was dropped");
  } else {
    demand(over.wait_for(1), "the sender is done");
    demand(numbers.size() == kCount, "all arrived");
  }
  router().barrier(kSoon);
}
DIVISI_MAIN(choose_to_wait)

TEST(RunnerPolicyTest, An_emit_that_chooses_to_wait_waits_under_any_policy_of_the_runner) {
  auto options = workers(2);
  options.queue_bytes = 1 << 20;
  options.memory_bytes = 8 << 20;
  options.send_policy = divisi::Policy::kDropOldest;
  Parallel::runner(options)(choose_to_wait);
}

}  // namespace
