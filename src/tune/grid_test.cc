#include "divisi/error.h"
#include "divisi/sampler.h"
#include "tune/algorithm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::tune {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> allocated(const std::vector<Space>& spaces, GridOptions options) {
  return allocate_grid(spaces, options).value();
}

std::vector<std::vector<double>> all(Sampler sampler) {
  std::vector<std::vector<double>> samples;
  while (std::optional<Sample> sample = sampler.ask()) samples.push_back(sample->values);
  return samples;
}

GridOptions by_length(std::optional<std::int64_t> steps) {
  return {.max_steps = steps, .allocation = Allocation::kLength};
}

TEST(GridTest, H023_GoldenAllocationsByLength) {
  const Space choice = Space::fixed(5);
  const Space integers = Space::separate(-10, 100, 1);
  const Space two = Space::separate(-10, 20, 30);
  const Space wide = Space::continuous(-10, 100);
  const Space narrow = Space::continuous(-10, 20);
  EXPECT_THAT(allocated({integers, two, choice}, by_length(std::nullopt)), ElementsAre(111, 2, 5));
  EXPECT_THAT(allocated({integers, two, choice}, by_length(10000)), ElementsAre(111, 2, 5));
  EXPECT_THAT(allocated({wide, narrow, choice}, by_length(1000)), ElementsAre(27, 7, 5));
  EXPECT_THAT(allocated({wide, two, choice}, by_length(1000)), ElementsAre(100, 2, 5));
  EXPECT_THAT(allocated({wide, two, choice}, by_length(11)), ElementsAre(2, 1, 5));
  EXPECT_EQ(all(Sampler::grid({wide, two, choice}, by_length(11)))[0][1], -10);
  EXPECT_EQ(all(Sampler::grid({wide, narrow, choice}, by_length(1000))).size(), 945U);
}

TEST(GridTest, GoldenAllocationsOfEqualLengths) {
  const Space unit = Space::continuous(0, 1);
  for (const Allocation allocation : {Allocation::kLength, Allocation::kBalanced}) {
    const auto counts = [&](std::int64_t steps) {
      return allocated({unit, unit}, {.max_steps = steps, .allocation = allocation});
    };
    EXPECT_THAT(counts(3), ElementsAre(2, 2));
    EXPECT_THAT(counts(6), ElementsAre(2, 3));
    EXPECT_THAT(counts(7), ElementsAre(3, 2));
    EXPECT_THAT(counts(8), ElementsAre(3, 3));
    EXPECT_THAT(counts(50), ElementsAre(7, 7));
  }
  EXPECT_THAT(allocated({Space::fixed(20)}, {.max_steps = 5}), ElementsAre(20));
}

TEST(GridTest, H025_ContinuousWithoutStepsIsRefused) {
  const Space unit = Space::continuous(0, 1);
  EXPECT_THROW(Sampler::grid({unit, unit}, {}), UsageError);
}

TEST(GridTest, H028_GuideStructureInOrder) {
  EXPECT_THAT(all(Sampler::grid({Space::continuous(0.5, 1)}, {.max_steps = 5})),
              ElementsAre(ElementsAre(0.5), ElementsAre(0.625), ElementsAre(0.75),
                          ElementsAre(0.875), ElementsAre(1.0)));
}

TEST(GridTest, H029_BalancedSharesUnlikeUnits) {
  const std::vector<Space> spaces{Space::continuous(1e-4, 1e-3), Space::continuous(0.9, 0.99)};
  EXPECT_THAT(allocated(spaces, {.max_steps = 16}), ElementsAre(4, 4));
  EXPECT_THAT(allocated(spaces, by_length(16)), ElementsAre(1, 16));
}

TEST(GridTest, LastSpaceVariesFastest) {
  EXPECT_THAT(
      all(Sampler::grid({Space::separate(1, 2, 1), Space::fixed(2)}, {})),
      ElementsAre(ElementsAre(1, 0), ElementsAre(1, 1), ElementsAre(2, 0), ElementsAre(2, 1)));
}

TEST(GridTest, SinglePointTakesNoShare) {
  const std::vector<Space> spaces{Space::separate(3, 3, 1), Space::continuous(0, 1)};
  EXPECT_THAT(allocated(spaces, by_length(8)), ElementsAre(1, 8));
  EXPECT_THAT(allocated(spaces, {.max_steps = 8}), ElementsAre(1, 8));
}

TEST(GridTest, StrictBudgetLowersLargestCounts) {
  const std::vector<Space> spaces{Space::continuous(0, 1), Space::continuous(0, 1)};
  EXPECT_THAT(allocated(spaces, {.max_steps = 3, .strict_budget = true}), ElementsAre(1, 2));
  EXPECT_THROW(Sampler::grid({Space::fixed(20)}, {.max_steps = 5, .strict_budget = true}),
               UsageError);
}

TEST(GridTest, EmptyStructureIsOneSample) {
  EXPECT_EQ(all(Sampler::grid({}, {})).size(), 1U);
  EXPECT_EQ(all(Sampler::grid({}, {.max_steps = 0})).size(), 0U);
}

TEST(GridTest, HugeGridIsRefused) {
  const Space many = Space::separate(0, 1e9, 1);
  EXPECT_THROW(Sampler::grid({many, many}, {}), UsageError);
  EXPECT_THROW(Sampler::grid({many}, {}), UsageError);
  EXPECT_THROW(Sampler::grid({Space::continuous(0, 1)}, {.max_steps = 1'000'000'000}), UsageError);
  EXPECT_THROW(Sampler::grid({many}, {.max_steps = -1}), UsageError);
}

TEST(SamplerTest, TellRefusesUnknownAndFinishedIds) {
  Sampler sampler = Sampler::grid({Space::fixed(2)}, {});
  const Sample first = sampler.ask().value();
  EXPECT_EQ(first.id, 1U);
  EXPECT_EQ(sampler.pending(), 1U);
  EXPECT_THROW(sampler.tell(2, TrialState::kOk, 1), UsageError);
  sampler.tell(1, TrialState::kOk, 1);
  EXPECT_THROW(sampler.tell(1, TrialState::kOk, 1), UsageError);
  EXPECT_EQ(sampler.pending(), 0U);
}

}  // namespace
}  // namespace divisi::tune
