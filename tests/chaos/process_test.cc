// Processes that die, stop or flood each other: those that live lose and reorder nothing.
#include "base/sanitizer.h"
#include "chaos/traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>
#include <unistd.h>

namespace {

using chaos::counters_of;
using chaos::demand;
using chaos::PeerChanges;
using chaos::Progress;
using chaos::Receiver;
using chaos::send_number;
using chaos::soak;
using chaos::wait_until_ready;
using divisi::Buffer;
using divisi::Parallel;
using divisi::ParallelOptions;
using jobs::Arguments;
using jobs::Folder;
using jobs::kSoon;
using jobs::Launched;
using namespace std::chrono_literals;

// Socket files go to a folder of the test's own, so that those left over can be counted.
class ChaosTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TMPDIR", sockets_.path().c_str(), 1);
    before_ = jobs::leftovers(sockets_.path());
  }
  void TearDown() override {
    EXPECT_TRUE(jobs::eventually([&] { return jobs::leftovers(sockets_.path()) == before_; }))
        << "processes or socket files are left";
    ::unsetenv("TMPDIR");
  }

  const Folder notes_;
  const Folder sockets_;
  jobs::Leftovers before_;
};

// --- kill -9 ---

// It may die before main could listen to the report. Dead for good, it is no peer any more.
bool is_gone(int node) {
  const auto peers = Parallel::instance().peers();
  return std::none_of(peers.begin(), peers.end(),
                      [&](const auto& peer) { return peer.node_id == node; });
}

// All send to all; the victim dies at a random moment of it. args: folder, victim, count, seed
void survive(const Arguments& args) {
  Parallel& router = Parallel::instance();
  const int victim = std::stoi(args.at(1));
  const int count = std::stoi(args.at(2));
  const int self = router.node_id();
  Receiver receiver;
  router.ready();
  if (self == victim) {
    std::mt19937 random(static_cast<unsigned>(std::stoi(args.at(3))));
    const int last = static_cast<int>(random() % static_cast<unsigned>(count));
    for (int n = 0; n < last; ++n) send_number(n);
    ::raise(SIGKILL);
  }
  for (int n = 0; n < count; ++n) send_number(n);
  for (int node = 0; node < router.n_parallel_workers(); ++node) {
    if (node != self && node != victim) receiver.wait_for(node, count);
  }
  demand(jobs::eventually([&] { return is_gone(victim); }), "the dead peer is gone");
  demand(router.flush(kSoon), "the survivors took everything");
  receiver.check();
  jobs::append_line(args.at(0), "survived", std::to_string(self));
}
DIVISI_MAIN(survive)

ParallelOptions going_on(int n) {
  return {.n_parallel_workers = n, .worker_lost = "ignore", .log_level = "error"};
}

class KillTest : public ChaosTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Victims, KillTest, ::testing::Values(0, 2, 3));

TEST_P(KillTest, Kill_9_of_a_worker_while_all_exchange_numbered_events) {
  Parallel::runner(going_on(4))(survive, {notes_.path(), std::to_string(GetParam()), "2000", "7"});
  EXPECT_EQ(jobs::count_lines(notes_.path(), "survived"), 3u);
}

// The hub of a star dies while it speaks; its second life goes on with all leaves.
void hub_with_two_lives(const Arguments& args) {
  constexpr int kCount = 1000;
  Parallel& router = Parallel::instance();
  if (router.node_id() == 0) {
    const int life = jobs::read_note(args.at(0), "died") ? 1 : 0;
    jobs::Gathered<int> done;
    const auto on_done = router.on("done", [&](int leaf) { done.add(leaf); });
    if (life == 0) wait_until_ready(2);  // or a leaf that is late does not hear who was lost
    for (int n = 0; n < kCount; ++n) {
      if (life == 0 && n == kCount / 2) {
        jobs::note(args.at(0), "died", "");
        ::raise(SIGKILL);
      }
      send_number(n, life);
    }
    demand(done.wait_for(2), "both leaves have everything of the second life");
    return;
  }
  PeerChanges changes;
  Receiver receiver;
  router.ready();
  changes.wait_for("peer_lost 0");
  receiver.wait_for(0, kCount, 1);
  demand(changes.all() == std::vector<std::string>{"peer_lost 0", "peer_back 0"},
         "the hub is reported lost and back, once");
  demand(receiver.count(0) <= kCount / 2, "of the first life what had been sent, from the start");
  receiver.check();
  router.emit("done", router.node_id());
  demand(router.flush(kSoon), "the hub takes the answer");
}
DIVISI_MAIN(hub_with_two_lives)

TEST_F(ChaosTest, Kill_9_of_the_hub_and_its_restart) {
  auto options = going_on(3);
  options.topology = "star";
  options.worker_lost = "restart";
  Parallel::runner(options)(hub_with_two_lives, {notes_.path()});
  EXPECT_TRUE(jobs::read_note(notes_.path(), "died"));
}

TEST_F(ChaosTest, Starts_and_stops_with_random_kills_leave_nothing_behind) {
  const int cycles = soak() ? 200 : 20;
  std::mt19937 random(20'26);
  for (int cycle = 0; cycle < cycles; ++cycle) {
    const std::string victim = std::to_string(random() % 3);
    const std::string seed = std::to_string(random() % 10'000);
    ASSERT_NO_THROW(Parallel::runner(going_on(3))(survive, {notes_.path(), victim, "100", seed}))
        << "cycle " << cycle << ", victim " << victim << ", seed " << seed;
    ASSERT_EQ(jobs::leftovers(sockets_.path()), before_) << "cycle " << cycle;
  }
  EXPECT_EQ(jobs::count_lines(notes_.path(), "survived"), static_cast<std::size_t>(2 * cycles));
}

// --- two callbacks that flood each other ---

// Every ball is answered by two, up to a number that is many times what the queues hold.
void flood_each_other() {
  constexpr int kBalls = 4000;
  Parallel& router = Parallel::instance();
  const Buffer block(8'000);
  std::atomic<int> thrown{0};
  std::atomic<int> next_expected{0};
  std::atomic<int> caught{0};
  const auto answer = [&] {
    const int n = thrown++;
    if (n < kBalls) router.emit("ball", n, block);
  };
  jobs::Gathered<int> all;
  const auto on_ball = router.on("ball", [&](int n, const Buffer&) {
    demand(n == next_expected++, "balls come in order");
    answer();
    answer();
    if (++caught == kBalls) all.add(1);
  });
  answer();
  demand(all.wait_for(1, 2 * kSoon), "all balls come, not " + std::to_string(caught));
  demand(router.flush(kSoon), "and all are taken");
  router.off("ball");
}
DIVISI_MAIN(flood_each_other)

TEST_F(ChaosTest, Two_callbacks_that_flood_each_other_do_not_deadlock) {
  auto options = going_on(2);
  options.queue_bytes = 256 << 10;
  options.memory_bytes = 64 << 20;
  Parallel::runner(options)(flood_each_other);
}

// --- a receiver that is stopped ---

constexpr std::size_t kBlock = 50'000;
constexpr const char* kSent = "sent";

ParallelOptions attached(int id, const std::string& job) {
  return {.n_parallel_workers = 1,
          .topology = "alone",
          .node_ids = {id},
          .job_id = job,
          .secret = "between us",
          .queue_bytes = 4 << 20,
          .memory_bytes = 16 << 20};
}

// Sends until there is a note "enough", then says how many it were. args: folder, what happens
LAUNCHER(flooder) {
  return Parallel::runner(attached(0, "flood")).run([&] {
    const std::string& folder = args.at(0);
    Parallel& router = Parallel::instance();
    PeerChanges changes;
    jobs::Gathered<int> done;
    const auto on_done = router.on("done", [&](int node) { done.add(node); });
    jobs::note(folder, "address", router.address());
    wait_until_ready(2);
    const Progress progress(folder, kSent);
    int n = 0;
    while (n % 50 != 0 || !jobs::read_note(folder, "enough")) {
      send_number(n++, 0, kBlock);
      if (n % 10 == 0) progress.note(n);
    }
    const auto dropped = counters_of(1).dropped;
    demand(counters_of(2).dropped == 0, "nothing is dropped for the one that was not stopped");
    router.emit("total", n, dropped);
    demand(done.wait_for(2, 2 * kSoon), "both have counted");
    if (args.at(1) == "lost") {
      changes.wait_for("peer_lost 1");
      changes.wait_for("peer_back 1");
      demand(dropped > 0, "what went beyond the bound was dropped and counted");
    } else {
      demand(dropped == 0, "nothing was dropped");
    }
  });
}

// args: folder, node id, address
LAUNCHER(receiver_of_flood) {
  auto options = attached(std::stoi(args.at(1)), "flood");
  options.attach_to = {args.at(2)};
  return Parallel::runner(options).run([&] {
    Parallel& router = Parallel::instance();
    Receiver receiver(true);
    jobs::Gathered<std::uint64_t> total;
    const auto on_total = router.on("total", [&](std::uint64_t n, std::uint64_t dropped) {
      total.add(n);
      total.add(dropped);
    });
    router.ready();
    const std::string name = "count_" + args.at(1);
    while (!total.wait_for(2, 10ms)) {
      jobs::note(args.at(0), name, std::to_string(receiver.count(0)));
    }
    receiver.check();
    const std::uint64_t sent = total.values()[0];
    const std::uint64_t missing = sent - static_cast<std::uint64_t>(receiver.count(0));
    const std::uint64_t told = counters_of(0).gaps;
    demand(missing == told, std::to_string(missing) + " of " + std::to_string(sent) +
                                " are missing, told were " + std::to_string(told));
    demand(args.at(1) == "1" || missing == 0, "the one that was not stopped got everything");
    demand(args.at(1) != "1" || total.values()[1] == told, "both sides count the same gap");
    router.emit("done", router.node_id());
    demand(router.flush(kSoon), "the answer is taken");
  });
}

class StoppedTest : public ChaosTest {
 protected:
  void start(const std::string& what) {
    flooder_ = std::make_unique<Launched>("flooder", Arguments{notes_.path(), what});
    const std::string address = jobs::wait_for_note(notes_.path(), "address");
    for (const char* const id : {"1", "2"}) {
      receivers_.push_back(
          std::make_unique<Launched>("receiver_of_flood", Arguments{notes_.path(), id, address}));
    }
    wait_until(1, 200);
    wait_until(2, 200);
  }
  int count(int node) const {
    return std::stoi(jobs::read_note(notes_.path(), "count_" + std::to_string(node)).value_or("0"));
  }
  // Meanwhile the memory of the flooder is watched.
  void wait_until(int node, int wanted) {
    EXPECT_TRUE(jobs::eventually([&] {
      highest_ = std::max(highest_, resident());
      return count(node) >= wanted;
    })) << "node "
        << node << " has " << count(node) << " of " << wanted;
  }
  std::size_t resident() const {
    std::ifstream file("/proc/" + std::to_string(flooder_->pid()) + "/statm");
    std::size_t all = 0;
    std::size_t pages = 0;
    file >> all >> pages;
    return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  }
  void end_well() {
    jobs::note(notes_.path(), "enough", "");
    EXPECT_EQ(flooder_->wait(2 * kSoon), 0);
    for (const auto& receiver : receivers_) EXPECT_EQ(receiver->wait(), 0);
  }

  std::unique_ptr<Launched> flooder_;
  std::vector<std::unique_ptr<Launched>> receivers_;
  std::size_t highest_ = 0;
};

TEST_F(StoppedTest, For_a_moment_it_only_holds_the_sender_up) {
  start("held_up");
  const Progress sender(notes_.path(), kSent);
  const int before = count(1);
  sender.wait_beyond(sender.sent());
  receivers_[0]->kill(SIGSTOP);
  sender.wait_until_still();
  receivers_[0]->kill(SIGCONT);
  sender.wait_beyond(sender.sent());
  wait_until(1, before + 500);
  end_well();
}

// AddressSanitizer keeps what is freed, and room around what is not.
constexpr std::size_t kMoreMemory = std::size_t{divisi::kAddressSanitizer ? 192 : 48} << 20;

TEST_F(StoppedTest, For_long_it_is_lost_the_others_are_served_and_the_gap_is_counted) {
  start("lost");
  const std::size_t usual = highest_;
  receivers_[0]->kill(SIGSTOP);
  wait_until(2, count(2) + 2000);
  EXPECT_LT(highest_, usual + kMoreMemory) << "the sender's memory is bounded";
  const int before = count(1);
  receivers_[0]->kill(SIGCONT);
  wait_until(1, before + 200);
  end_well();
}

}  // namespace
