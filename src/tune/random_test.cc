#include "divisi/sampler.h"
#include "tune/random_words.h"
#include "tune/sobol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace divisi::tune {
namespace {

using ::testing::ElementsAre;

std::vector<std::vector<double>> drawn(Sampler sampler, std::size_t limit = 100000) {
  std::vector<std::vector<double>> samples;
  while (samples.size() < limit) {
    std::optional<Sample> sample = sampler.ask();
    if (!sample) break;
    samples.push_back(sample->values);
  }
  return samples;
}

TEST(RandomTest, DrawsAreThoseOfPython) {
  // random.seed(12): random().
  RandomWords words = python_random(12);
  EXPECT_EQ(draw_unit(words), 0.4745706786885481);
  // A seed of two words: random.seed(2**40 + 7).
  words = python_random((std::uint64_t{1} << 40U) + 7);
  EXPECT_EQ(draw_unit(words), 0.6137037779936511);
}

TEST(RandomTest, GoldenSamplesOfSeedTwelve) {
  const auto samples =
      drawn(Sampler::random({Space::continuous(-2, 8), Space::separate(-1.6, 7.8, 0.2)},
                            {.max_steps = 4, .words = python_random(12)}));
  EXPECT_THAT(
      samples,
      ElementsAre(ElementsAre(2.7457067868854805, 6.8), ElementsAre(3.29130776721317, 2.8),
                  ElementsAre(-0.5739964707463223, -1.6), ElementsAre(7.966222299244588, 4.4)));
}

TEST(RandomTest, H033_FiniteSpaceGivesEveryPointOnce) {
  const Space space = Space::separate(-2.5, 2.5, 0.1);
  const auto samples = drawn(Sampler::random({space, space}, {.max_steps = 10000}));
  EXPECT_EQ(samples.size(), 2601U);
  EXPECT_EQ((std::set<std::vector<double>>(samples.begin(), samples.end()).size()), 2601U);
}

TEST(RandomTest, SameSeedSameSamples) {
  const std::vector<Space> spaces{Space::continuous(0, 1), Space::fixed(7)};
  const auto once = drawn(Sampler::random(spaces, {.max_steps = 50, .words = python_random(24)}));
  EXPECT_EQ(once, drawn(Sampler::random(spaces, {.max_steps = 50, .words = python_random(24)})));
  EXPECT_NE(once, drawn(Sampler::random(spaces, {.max_steps = 50, .words = python_random(25)})));
}

TEST(RandomTest, EmptyStructureIsOneSample) {
  EXPECT_EQ(drawn(Sampler::random({}, {.max_steps = 10})).size(), 1U);
  EXPECT_EQ(drawn(Sampler::random({Space::fixed(3)}, {.max_steps = 0})).size(), 0U);
}

TEST(RandomTest, HugeFiniteSpaceIsDrawnFrom) {
  const Space many = Space::separate(0, 9e15, 1);
  EXPECT_EQ(drawn(Sampler::random({many, many}, {.max_steps = 100})).size(), 100U);
}

TEST(SobolTest, EveryCoordinateIsStratified) {
  constexpr std::size_t kPoints = 256;
  Sobol sobol(Sobol::kDimensions + 1, python_random(3));
  std::vector<std::set<int>> cells(Sobol::kDimensions);
  for (std::size_t i = 0; i < kPoints; ++i) {
    const std::vector<double> point = sobol.next();
    ASSERT_EQ(point.size(), Sobol::kDimensions + 1);
    for (std::size_t d = 0; d < Sobol::kDimensions; ++d) {
      cells[d].insert(static_cast<int>(point[d] * kPoints));
    }
    EXPECT_GE(point.back(), 0);
    EXPECT_LT(point.back(), 1);
  }
  for (const std::set<int>& of_dimension : cells) EXPECT_EQ(of_dimension.size(), kPoints);
}

TEST(SobolTest, PairsOfHighCoordinatesAreEvenerThanChance) {
  // 256 points in 16 by 16 squares: chance fills 162 of them on average.
  constexpr std::size_t kFirst = 21;
  constexpr std::size_t kLast = 60;
  Sobol sobol(kLast, python_random(5));
  std::vector<std::vector<double>> points;
  for (int i = 0; i < 256; ++i) points.push_back(sobol.next());
  double filled = 0;
  for (std::size_t d = kFirst; d < kLast; ++d) {
    std::set<std::pair<int, int>> squares;
    for (const std::vector<double>& point : points) {
      squares.emplace(static_cast<int>(point[d - 1] * 16), static_cast<int>(point[d] * 16));
    }
    filled += static_cast<double>(squares.size()) / (kLast - kFirst);
  }
  EXPECT_GE(filled, 180);
}

TEST(SobolTest, FirstCoordinatesFillSquares) {
  // 64 points of the first two coordinates: one in each of 8 by 8 squares.
  Sobol sobol(2, python_random(5));
  std::set<std::pair<int, int>> squares;
  for (int i = 0; i < 64; ++i) {
    const std::vector<double> point = sobol.next();
    squares.emplace(static_cast<int>(point[0] * 8), static_cast<int>(point[1] * 8));
  }
  EXPECT_EQ(squares.size(), 64U);
}

}  // namespace
}  // namespace divisi::tune
