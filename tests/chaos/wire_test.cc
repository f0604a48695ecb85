// Two nodes with a bad wire between them: nothing is lost, repeated or out of order.
#include "chaos/traffic.h"
#include "mesh/testing/bad_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace {

using chaos::counters_of;
using chaos::demand;
using chaos::PeerChanges;
using chaos::Progress;
using chaos::Receiver;
using chaos::send_number;
using divisi::Parallel;
using divisi::ParallelOptions;
using divisi::mesh::testing::BadWire;
using jobs::Arguments;
using jobs::Folder;
using jobs::kSoon;
using jobs::Launched;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Sends until there is a note "enough": how many.
int send_until_enough(const std::string& folder, const std::string& me) {
  const Progress progress(folder, "sent_" + me);
  int sent = 0;
  while (sent % 50 != 0 || !jobs::read_note(folder, "enough")) {
    send_number(sent++);
    if (sent % 10 == 0) progress.note(sent);
  }
  return sent;
}

// Both ways at once, `count` events each. With "lost" in args each first waits until it has lost
// the other, and goes on sending meanwhile; with "stall" each sends until it was enough, and tells
// the other how many it has to wait for.
void exchange(const Arguments& args) {
  Parallel& router = Parallel::instance();
  const std::string& folder = args.at(0);
  int count = std::stoi(args.at(2));
  const int other = 1 - router.node_id();
  const std::string me = std::to_string(router.node_id());
  jobs::Gathered<int> done;
  jobs::Gathered<int> total;
  PeerChanges changes;
  Receiver receiver;
  const auto on_done = router.on("done", [&] { done.add(1); });
  const auto on_total = router.on("total", [&](int n) { total.add(n); });
  router.ready();
  if (router.node_id() == 0) jobs::note(folder, "address", router.address());
  demand(router.wait_for_peers(1, kSoon), "the other node comes");
  int sent = 0;
  if (args.at(3) == "lost") {
    while (sent < count / 2) send_number(sent++);
    receiver.wait_for(other, count / 2);
    jobs::note(folder, "half_" + me, "");
    jobs::wait_for_note(folder, "broken");
    while (sent < count * 3 / 4) send_number(sent++, 0, 1000);
    changes.wait_for("peer_lost " + std::to_string(other));
    jobs::note(folder, "lost_" + me, "");
    while (sent < count) send_number(sent++, 0, 1000);
    changes.wait_for("peer_back " + std::to_string(other));
  }
  if (args.at(3) == "stall") {
    router.emit("total", send_until_enough(folder, me));
    demand(total.wait_for(1), "the other says how many it has sent");
    count = total.values().front();
  } else {
    while (sent < count) send_number(sent++);
  }
  receiver.wait_for(other, count);
  // Before the other may leave, which it does not until it has heard us.
  const auto counters = counters_of(other);
  demand(counters.node_id == other && counters.received >= static_cast<unsigned>(count),
         "the counters know what came");
  demand(counters.dropped == 0 && counters.gaps == 0, "no gap was declared");
  jobs::note(folder, "reconnects_" + me, std::to_string(counters.reconnects));
  router.emit("done");
  demand(done.wait_for(1, kSoon), "the other has everything too");
  demand(router.flush(kSoon), "the last word is taken");
  receiver.check();
}

ParallelOptions node_options(const Arguments& args, int id) {
  ParallelOptions options{.n_parallel_workers = 1,
                          .protocol = args.at(1),
                          .topology = "alone",
                          .node_ids = {id},
                          .job_id = "chaos",
                          .secret = "between us",
                          .queue_bytes = 8 << 20};
  if (args.at(3) == "stall") options.queue_bytes = 1 << 20;  // full long before a peer is lost
  if (options.protocol == "tcp") {
    options.address = "127.0.0.1";
    options.ports = jobs::free_ports(1);
  }
  return options;
}

// args: folder, protocol, count, what happens; far: and the address to attach to
LAUNCHER(near_node) {
  return Parallel::runner(node_options(args, 0)).run([&] { exchange(args); });
}
LAUNCHER(far_node) {
  auto options = node_options(args, 1);
  options.attach_to = {args.at(4)};
  return Parallel::runner(options).run([&] { exchange(args); });
}

class WireTest : public ::testing::TestWithParam<std::string> {
 protected:
  void start(int count, const std::string& what, const std::function<void(BadWire&)>& spoil = {}) {
    Arguments args{folder_.path(), GetParam(), std::to_string(count), what};
    near_ = std::make_unique<Launched>("near_node", args);
    wire_ = std::make_unique<BadWire>(jobs::wait_for_note(folder_.path(), "address"));
    if (spoil) spoil(*wire_);
    args.push_back(wire_->address());
    far_ = std::make_unique<Launched>("far_node", args);
  }
  void wait(const std::string& name) {
    jobs::wait_for_note(folder_.path(), name + "_0");
    jobs::wait_for_note(folder_.path(), name + "_1");
  }
  void end_well() {
    EXPECT_EQ(near_->wait(2 * kSoon), 0);
    EXPECT_EQ(far_->wait(), 0);
  }
  int reconnects(int node) {
    return std::stoi(
        jobs::read_note(folder_.path(), "reconnects_" + std::to_string(node)).value_or("-1"));
  }

  const Folder folder_;
  std::unique_ptr<Launched> near_;
  std::unique_ptr<BadWire> wire_;
  std::unique_ptr<Launched> far_;
};
INSTANTIATE_TEST_SUITE_P(Transports, WireTest, ::testing::Values("ipc", "tcp"),
                         [](const auto& each) { return each.param; });

TEST_P(WireTest, Cut_in_the_middle_of_messages_again_and_again) {
  start(chaos::soak() ? 20'000 : 1'500, "cut", [](BadWire& wire) { wire.cut_every(1'234'567); });
  end_well();
  EXPECT_GT(wire_->cuts(), 5u);
  EXPECT_GE(reconnects(0), 5);
  EXPECT_GE(reconnects(1), 5);
}

TEST_P(WireTest, Stalled_in_the_middle_of_messages) {
  start(0, "stall");
  const Progress near(folder_.path(), "sent_0");
  const Progress far(folder_.path(), "sent_1");
  for (int i = 0; i < (chaos::soak() ? 40 : 4); ++i) {
    near.wait_beyond(near.sent() + 100);
    far.wait_beyond(far.sent() + 100);
    wire_->stall(true);
    near.wait_until_still();
    far.wait_until_still();
    wire_->stall(false);
  }
  near.wait_beyond(near.sent());
  far.wait_beyond(far.sent());
  jobs::note(folder_.path(), "enough", "");
  end_well();
  EXPECT_EQ(reconnects(0), 0);
}

TEST_P(WireTest, Slow_in_one_direction_only) {
  start(1'000, "slow", [](BadWire& wire) { wire.delay_forward(40ms); });
  end_well();
  EXPECT_EQ(reconnects(0), 0);
}

TEST_P(WireTest, Half_open_until_both_have_lost_the_other_and_then_whole_again) {
  start(400, "lost");
  wait("half");
  wire_->swallow(true);
  jobs::note(folder_.path(), "broken", "");
  wait("lost");
  EXPECT_GT(wire_->swallowed(), 0u);
  wire_->swallow(false);
  wire_->cut();
  end_well();
  EXPECT_THAT(near_->output(), HasSubstr("lost node 1"));
  EXPECT_THAT(far_->output(), HasSubstr("lost node 0"));
}

}  // namespace
