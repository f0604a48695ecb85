// The link layer in a simulated network: thousands of faults, chosen by a seed.
//
//   DIVISI_SIM_SEED=17 build/release/tests/mesh_simulation_test      repeats one
//   DIVISI_SIM_SEEDS=100000 build/release/tests/mesh_simulation_test looks further (100; `./test
//   --all` 2,000; with DIVISI_SOAK 5,000)
#include "base/log.h"
#include "mesh/testing/sim_cluster.h"
#include "mesh/testing/sim_wire.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace divisi::mesh::testing {
namespace {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

class SimulationTest : public ::testing::Test {
 protected:
  // The faults would fill the terminal.
  void SetUp() override {
    if (std::getenv("DIVISI_SIM_SEED") == nullptr) log::set_level(log::Level::kOff);
  }
  void TearDown() override { log::set_level(log::Level::kInfo); }

  bool holds(std::uint64_t seed) {
    SimCluster cluster(seed);
    const std::string broken = cluster.run();
    EXPECT_EQ(broken, "") << "repeat with DIVISI_SIM_SEED=" << seed;
    total_ += cluster.tally();
    return broken.empty();
  }

  SimCluster::Tally total_;
};

// The seeds are split into tests that ctest runs side by side, each far from its time limit.
constexpr std::uint64_t kParts = 8;

class SimulationSeedsTest : public SimulationTest,
                            public ::testing::WithParamInterface<std::uint64_t> {};

TEST_P(SimulationSeedsTest, NothingIsLostRepeatedOrReordered) {
  if (std::getenv("DIVISI_SIM_SEED") != nullptr) {
    if (GetParam() == 0) holds(number_from("DIVISI_SIM_SEED", 0));
    return;
  }
  const std::uint64_t usual = std::getenv("DIVISI_SOAK") != nullptr ? 5'000 : 100;
  const std::uint64_t all = number_from("DIVISI_SIM_SEEDS", usual);
  std::uint64_t seeds = 0;
  int failed = 0;
  for (std::uint64_t seed = 1 + GetParam(); seed <= all && failed < 10; seed += kParts) {
    ++seeds;
    failed += holds(seed) ? 0 : 1;
  }
  // The runs were not idle. (`./test` and the presets with sanitizers take fewer seeds.)
  if (all < 300 || failed > 0) return;
  EXPECT_GT(total_.delivered, 100 * seeds);
  EXPECT_GT(total_.refused, seeds);
  EXPECT_GT(total_.dropped, seeds);
  EXPECT_GT(total_.resent, seeds);
  EXPECT_GT(total_.reconnects, seeds);
  EXPECT_GT(total_.lost, seeds / 10);
  EXPECT_GT(total_.back, seeds / 10);
  EXPECT_GT(total_.left, seeds / 2);
  EXPECT_GT(total_.restarts, seeds / 10);
  EXPECT_GE(total_.gone, seeds / 50);
  EXPECT_GT(total_.parting, 10 * seeds);
  EXPECT_GT(total_.relayed, 10 * seeds);
}
INSTANTIATE_TEST_SUITE_P(Parts, SimulationSeedsTest, ::testing::Range(std::uint64_t{0}, kParts));

// Seeds beyond the usual ones that once found something. What they do has changed with the
// simulation since then; they stay because they cost nothing.
TEST_F(SimulationTest, SeedsThatOnceFailedHold) {
  if (std::getenv("DIVISI_SIM_SEED") != nullptr) return;
  for (const std::uint64_t seed : {1'513u, 3'755u, 3'796u}) holds(seed);
}

// A frame that one side never takes breaks every connection in this way.
TEST_F(SimulationTest, ALinkThatBreaksAsSoonAsItIsThereIsDialledEverMoreSlowly) {
  SimWorld world(1);
  SimReactor reactors[2] = {SimReactor(world), SimReactor(world)};
  std::unique_ptr<Node> nodes[2];
  for (const int id : {0, 1}) {
    NodeOptions options;
    options.self.node = id;
    if (id == 0) options.listen = "tcp://node0:1";
    if (id == 1) options.dial = {"tcp://node0:1"};
    nodes[id] = *Node::start(reactors[id], options, {});
  }
  std::function<void()> cut = [&] {
    const auto peers = nodes[1]->peers();
    if (!peers.empty() && peers.front().connected) {
      for (const auto& wire : world.wires()) wire->cut(true);
    }
    world.after(std::chrono::milliseconds(1), cut);
  };
  cut();
  world.run_for(std::chrono::seconds(20));
  const auto reconnects = nodes[1]->stats().peers.at(0).reconnects;
  EXPECT_GT(reconnects, 10u);
  EXPECT_LT(reconnects, 60u);
}

// Otherwise what the acceptor emits to all when the dialler's main begins would miss it.
TEST_F(SimulationTest, WhoHasJoinedIsLinkedOnTheOtherSideToo) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SimWorld world(seed);
    SimReactor reactors[2] = {SimReactor(world), SimReactor(world)};
    NodeOptions options;
    options.listen = "tcp://node0:1";
    const auto acceptor = *Node::start(reactors[0], options, {});
    options.self.node = 1;
    options.listen.clear();
    options.dial = {"tcp://node0:1"};
    const auto dialler = *Node::start(reactors[1], options, {});
    while (!dialler->joined()) world.run_for(std::chrono::microseconds(1));
    EXPECT_EQ(acceptor->peers().size(), 1u) << seed;
  }
}

// A new connection brings no new window while another leaf has not taken what the old one brought.
TEST_F(SimulationTest, ALeafThatReconnectsMayNotFillItsHub) {
  SimWorld world(1);
  world.weather.least_moved = 64 * 1024;
  SimReactor reactors[3] = {SimReactor(world), SimReactor(world), SimReactor(world)};
  std::unique_ptr<Node> nodes[3];
  for (const int id : {0, 1, 2}) {
    NodeOptions options;
    options.self.node = id;
    options.queue_bytes = id == 2 ? 64 * 1024 : 4 << 20;
    options.relay = id == 0;
    options.expected_peers = id == 0 ? 2 : 1;
    if (id == 0) options.listen = "tcp://node0:1";
    if (id > 0) options.dial = {"tcp://node0:1"};
    nodes[id] = *Node::start(reactors[id], options, {});
  }
  EventLoop slow("slow");
  slow.on("n", [](const Buffer&) {});
  reactors[2].slowest_callback = std::chrono::hours(10'000);
  nodes[2]->subscribe("n", "n", slow.core());
  world.run_for(std::chrono::seconds(1));
  const Buffer bytes(16 * 1024);
  PackScratch scratch;
  std::uint64_t most = 0;
  for (int round = 0; round < 20; ++round) {
    while (nodes[1]->send("n", pack_args(scratch, bytes), {Target::all(), Policy::kError}).ok()) {
    }
    world.run_for(std::chrono::seconds(2));
    for (const PeerStats& peer : nodes[0]->stats().peers) most = std::max(most, peer.queued_bytes);
    for (const auto& wire : world.wires()) wire->cut(false);
    world.run_for(std::chrono::seconds(2));
  }
  EXPECT_GT(nodes[0]->stats().peers.at(0).reconnects, 10u);
  EXPECT_LT(most, std::uint64_t{5} << 20);
  for (SimReactor& reactor : reactors) reactor.slowest_callback = {};
  nodes[2].reset();
  reactors[2].run_handed_off();
}

TEST_F(SimulationTest, TheDeathOfAPredecessorIsNotHeldAgainstItsSuccessor) {
  SimWorld world(1);
  SimReactor reactors[2] = {SimReactor(world), SimReactor(world)};
  std::vector<PeerChange> changes;
  NodeOptions options;
  options.listen = "tcp://node0:1";
  const auto survivor = *Node::start(
      reactors[0], options, [&](PeerChange change, const PeerInfo&) { changes.push_back(change); });
  survivor->peer_died(1);  // before it was linked
  options.self.node = 1;
  options.listen.clear();
  options.dial = {"tcp://node0:1"};
  const auto successor = *Node::start(reactors[1], options, {});
  world.run_for(std::chrono::seconds(20));
  for (const auto& wire : world.wires()) wire->cut(true);
  world.run_for(std::chrono::seconds(2));
  EXPECT_EQ(changes, std::vector{PeerChange::kJoined});
}

}  // namespace
}  // namespace divisi::mesh::testing
