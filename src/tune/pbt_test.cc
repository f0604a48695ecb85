#include "divisi/pbt.h"

#include "divisi/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace divisi::tune {
namespace {

using ::testing::ElementsAre;

// A training whose speed is largest where the setting is 0.8; its state is what it has reached.
double train(double from, double setting) {
  return from + 1 - std::abs(setting - 0.8);
}

struct Training {
  double best = 0;
  std::vector<PbtSegment> segments;
};

Training run_all(const PbtOptions& options) {
  Pbt pbt({Space::continuous(0, 1)}, options);
  Training run;
  std::map<std::uint64_t, double> checkpoints{{0, 0.0}};
  while (const std::optional<PbtSegment> segment = pbt.ask()) {
    const double reached = train(checkpoints.at(segment->parent), segment->values[0]);
    checkpoints[segment->id] = reached;
    run.best = std::max(run.best, reached);
    run.segments.push_back(*segment);
    pbt.tell(segment->id, options.maximize ? reached : -reached);
    // What is not needed is not asked for again.
    const std::vector<std::uint64_t> needed = pbt.needed();
    std::erase_if(checkpoints, [&](const auto& one) {
      return one.first != 0 && !std::binary_search(needed.begin(), needed.end(), one.first);
    });
  }
  EXPECT_TRUE(pbt.done());
  return run;
}

TEST(PbtTest, TheBestSettingsSpread) {
  for (const bool maximize : {true, false}) {
    const Training run =
        run_all({.population = 8, .generations = 20, .maximize = maximize, .seed = 1});
    EXPECT_EQ(run.segments.size(), 160u);
    // One of 8 that never changes reaches 20 * 0.95 or so; the average one 15.
    EXPECT_GT(run.best, 18.5) << maximize;
    double settings = 0;
    for (std::size_t i = 120; i < 160; ++i) settings += run.segments[i].values[0] / 40;
    EXPECT_NEAR(settings, 0.8, 0.15) << "the whole population has come near";
  }
}

TEST(PbtTest, ABadMemberGoesOnFromTheBest) {
  Pbt pbt({Space::continuous(0, 1), Space::fixed(3), Space::separate(0, 9, 1)},
          {.population = 4, .generations = 2, .maximize = true, .resample = 0, .seed = 2});
  std::vector<PbtSegment> first;
  while (const std::optional<PbtSegment> segment = pbt.ask()) first.push_back(*segment);
  ASSERT_EQ(first.size(), 4u);
  EXPECT_FALSE(pbt.done()) << "they run";
  for (const PbtSegment& segment : first) {
    EXPECT_EQ(segment.parent, 0u);
    pbt.tell(segment.id, 10.0 - static_cast<double>(segment.id));
  }
  for (const PbtSegment& before : first) {
    const PbtSegment next = *pbt.ask();
    EXPECT_EQ(next.generation, 1);
    if (before.id < 4) {
      EXPECT_EQ(next.parent, before.id);
      EXPECT_EQ(next.values, before.values);
      continue;
    }
    EXPECT_EQ(next.parent, first[0].id);
    EXPECT_NEAR(next.values[0], first[0].values[0], 0.2);
    EXPECT_NE(next.values[0], first[0].values[0]);
    EXPECT_EQ(next.values[1], first[0].values[1]) << "alternatives have no neighbours";
    EXPECT_GE(next.values[2], 0);
    EXPECT_LE(next.values[2], 9);
    EXPECT_EQ(next.values[2], std::round(next.values[2]));
  }
  EXPECT_THAT(pbt.needed(), ElementsAre(1, 2, 3, 4));
}

TEST(PbtTest, AFailureCopiesAnotherOrBeginsAnew) {
  Pbt pbt({Space::continuous(0, 1)}, {.population = 2, .generations = 3});
  const PbtSegment a = *pbt.ask();
  const PbtSegment b = *pbt.ask();
  pbt.tell(a.id, std::numeric_limits<double>::quiet_NaN());
  const PbtSegment again = *pbt.ask();
  EXPECT_EQ(again.member, a.member);
  EXPECT_EQ(again.parent, 0u) << "nobody has anything";
  pbt.tell(b.id, 1);
  pbt.tell(again.id, std::numeric_limits<double>::infinity());
  const PbtSegment copied = *pbt.ask();
  EXPECT_EQ(copied.member, b.member) << "who is behind comes first";
  EXPECT_EQ(copied.parent, b.id);
  EXPECT_EQ(pbt.ask()->parent, b.id);
}

TEST(PbtTest, OneSeedGivesOneRun) {
  const auto values = [](std::uint64_t seed) {
    std::vector<double> all;
    for (const PbtSegment& one : run_all({.seed = seed}).segments) all.push_back(one.values[0]);
    return all;
  };
  EXPECT_EQ(values(3), values(3));
  EXPECT_NE(values(3), values(4));
}

TEST(PbtTest, AdoptedPopulationGoesOnWhereItWas) {
  const PbtOptions options{.population = 2, .generations = 3, .maximize = true, .seed = 5};
  Pbt before({Space::continuous(0, 1)}, options);
  const PbtSegment a = *before.ask();
  const PbtSegment b = *before.ask();
  before.tell(a.id, 1);
  const PbtSegment c = *before.ask();

  Pbt after({Space::continuous(0, 1)}, options);
  after.adopt({{a, true, 1.0}, {b, false, {}}, {c, false, {}}});
  EXPECT_FALSE(after.ask()) << "both members run";
  EXPECT_THAT(after.needed(), ElementsAre(a.id));
  after.tell(c.id, 2);
  after.tell(b.id, std::numeric_limits<double>::quiet_NaN());
  const PbtSegment next = *after.ask();
  EXPECT_EQ(next.id, 4u);
  EXPECT_EQ(next.member, b.member) << "who is behind comes first";
  EXPECT_EQ(next.parent, c.id) << "a failure copies the best";
  EXPECT_EQ(after.ask()->parent, c.id);
}

TEST(PbtTest, SegmentsOfAnotherPopulationAreNotAdopted) {
  Pbt pbt({Space::continuous(0, 1)}, {.population = 2, .generations = 3});
  for (const PbtSegment& wrong : {PbtSegment{1, 2, 0, {0.5}, 0}, PbtSegment{1, 0, 3, {0.5}, 0},
                                  PbtSegment{1, 0, 0, {}, 0}, PbtSegment{0, 0, 0, {0.5}, 0}}) {
    EXPECT_THROW(pbt.adopt({{wrong, true, 1.0}}), UsageError);
  }
}

TEST(PbtTest, WrongInputIsRefused) {
  EXPECT_THROW(Pbt({}, {.population = 1}), UsageError);
  EXPECT_THROW(Pbt({}, {.population = 100'001}), UsageError);
  EXPECT_THROW(Pbt({}, {.generations = 0}), UsageError);
  EXPECT_THROW(Pbt({}, {.quantile = 0.6}), UsageError);
  EXPECT_THROW(Pbt({}, {.quantile = 0}), UsageError);
  EXPECT_THROW(Pbt({}, {.resample = -1}), UsageError);
  Pbt pbt({}, {});
  EXPECT_THROW(pbt.tell(0, 1), UsageError);
  EXPECT_THROW(pbt.tell(7, 1), UsageError);
}

}  // namespace
}  // namespace divisi::tune
