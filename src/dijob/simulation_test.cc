// The operator in a simulated cluster: thousands of orders of events, chosen by a seed.
//
//   DIVISI_SIM_SEED=17 build/release/tests/dijob_simulation_test       repeats one and tells of it
//   DIVISI_SIM_SEEDS=100000 build/release/tests/dijob_simulation_test  looks further
//
// 150 are usual, 2,000 in `./test --all`.
#include "dijob/testing/simulation.h"

#include "base/log.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace divisi::dijob::testing {
namespace {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

class SimulationTest : public ::testing::Test {
 protected:
  // The faults would fill the terminal.
  void SetUp() override {
    if (!tells_) log::set_level(log::Level::kOff);
  }
  void TearDown() override { log::set_level(log::Level::kInfo); }

  bool holds(std::uint64_t seed) {
    Simulation simulation(seed, tells_);
    const std::string broken = simulation.run();
    EXPECT_EQ(broken, "") << "repeat with DIVISI_SIM_SEED=" << seed;
    total_ += simulation.tally();
    return broken.empty();
  }

  const bool tells_ = std::getenv("DIVISI_SIM_SEED") != nullptr;
  Simulation::Tally total_;
};

TEST_F(SimulationTest, EveryJobComesToItsEndUnderHundredsOfSeedsOfTrouble) {
  if (tells_) {
    holds(number_from("DIVISI_SIM_SEED", 0));
    return;
  }
  const std::uint64_t seeds = number_from("DIVISI_SIM_SEEDS", 150);
  int failed = 0;
  for (std::uint64_t seed = 1; seed <= seeds && failed < 10; ++seed) failed += holds(seed) ? 0 : 1;
  // The runs were not idle. (A handful may be.)
  if (seeds < 100 || failed > 0) return;
  EXPECT_GT(total_.succeeded, seeds / 2);
  EXPECT_GT(total_.failed, seeds / 4);
  EXPECT_GT(total_.deleted, seeds / 50);
  EXPECT_GT(total_.restarts, seeds / 2);
  EXPECT_GT(total_.crashes, seeds);
  EXPECT_GT(total_.blocked, 0u);
  EXPECT_GT(total_.edits_refused, 0u);
  EXPECT_GT(total_.forced, 0u);
}

TEST_F(SimulationTest, ASeedThatOnceFailedHolds) {
  if (tells_) return;
  holds(4112);  // suspended and resumed while a former gang was leaving
  holds(1861);  // a bad edit before the first status, and a pod deleted meanwhile
}

TEST_F(SimulationTest, ASeedReplaysExactly) {
  if (tells_) return;
  const auto replay = [](std::uint64_t seed) {
    Simulation simulation(seed, false);
    return fmt::format("{} {}", simulation.run(), simulation.tally().requests);
  };
  for (std::uint64_t seed = 42; seed < 52; ++seed) EXPECT_EQ(replay(seed), replay(seed)) << seed;
}

}  // namespace
}  // namespace divisi::dijob::testing
