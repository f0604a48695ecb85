// Searches that go on in another process: the trials of the first one are adopted, and the second
// one suggests what the first one would have suggested.
#include "divisi/error.h"
#include "divisi/sampler.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>

namespace divisi::tune {
namespace {

double value_of(const Sample& sample) {
  double sum = 0;
  for (const double x : sample.values) {
    if (!std::isnan(x)) sum += (x - 0.3) * (x - 0.3);
  }
  return sum;
}

// Some trials fail, and one is pruned: a search must go on after those as well.
void tell_of(Sampler& sampler, const Sample& sample) {
  if (sample.id % 5 == 3) {
    sampler.tell(sample.id, TrialState::kFail);
  } else {
    sampler.tell(sample.id, TrialState::kOk, value_of(sample));
  }
}

std::vector<std::vector<double>> values_of(Sampler& sampler, int n) {
  std::vector<std::vector<double>> points;
  for (int i = 0; i < n; ++i) {
    const std::optional<Sample> sample = sampler.ask();
    if (!sample) break;
    points.push_back(sample->values);
    tell_of(sampler, *sample);
  }
  return points;
}

// `make` gives the same search each time. Whether it goes on after `first` trials as it would have.
void expect_continues(const std::function<Sampler()>& make, int first, int then) {
  Sampler whole = make();
  Sampler resumed = make();
  for (int i = 0; i < first; ++i) {
    const std::optional<Sample> sample = whole.ask();
    ASSERT_TRUE(sample);
    tell_of(whole, *sample);
    resumed.adopt(*sample);
    tell_of(resumed, *sample);
  }
  EXPECT_EQ(values_of(resumed, then), values_of(whole, then));
}

std::vector<Space> mixed() {
  return {Space::continuous(-1, 1), Space::separate(0, 1, 0.1), Space::fixed(3)};
}

TEST(AdoptTest, AGridGoesOnBehindAdoptedTrials) {
  expect_continues([] { return Sampler::grid(mixed(), {.max_steps = 60}); }, 7, 100);
}

TEST(AdoptTest, AGridLeavesOutAdoptedPointsThatComeLater) {
  Sampler sampler = Sampler::grid({Space::fixed(4)}, {});
  sampler.adopt({.id = 1, .values = {2}});
  EXPECT_THAT(values_of(sampler, 10),
              testing::ElementsAre(testing::ElementsAre(0.0), testing::ElementsAre(1.0),
                                   testing::ElementsAre(3.0)));
}

TEST(AdoptTest, ARandomSearchGoesOnWithItsGenerator) {
  expect_continues(
      [] {
        return Sampler::random(mixed(),
                               {.max_steps = 40, .words = python_random(std::uint64_t{12})});
      },
      9, 100);
}

TEST(AdoptTest, AFiniteRandomSearchGivesNoPointTwiceAfterAdoption) {
  const auto make = [](std::uint64_t seed) {
    return Sampler::random({Space::separate(0, 4, 1), Space::fixed(4)},
                           {.words = python_random(seed)});
  };
  for (const std::uint64_t seed : {7U, 8U}) {  // of the same generator, and of another one
    for (const int first : {3, 17, 19}) {      // drawn from all, and from the list of the rest
      Sampler whole = make(7);
      Sampler resumed = make(seed);
      std::vector<std::vector<double>> seen;
      for (int i = 0; i < first; ++i) {
        const Sample sample = whole.ask().value();
        seen.push_back(sample.values);
        resumed.adopt(sample);
      }
      for (std::vector<double>& point : values_of(resumed, 100)) seen.push_back(std::move(point));
      EXPECT_EQ(seen.size(), 20U);
      std::sort(seen.begin(), seen.end());
      EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
    }
  }
}

TEST(AdoptTest, ABayesianSearchGoesOnWithTheSameSuggestions) {
  for (const int first : {3, 12, 30}) {
    expect_continues([] { return Sampler::bayes(mixed(), {.max_steps = 60, .seed = 5}); }, first,
                     6);
  }
}

TEST(AdoptTest, AParzenEstimatorGoesOnWithTheSameSuggestions) {
  for (const int first : {3, 12, 40}) {
    expect_continues([] { return Sampler::tpe(mixed(), {.max_steps = 60, .seed = 5}); }, first, 20);
  }
}

TEST(AdoptTest, ASobolSearchGoesOnBehindAdoptedTrials) {
  expect_continues([] { return Sampler::qmc(mixed(), {.max_steps = 60, .seed = 5}); }, 7, 100);
  expect_continues(
      [] { return Sampler::qmc({Space::fixed(5), Space::separate(0, 3, 1)}, {.seed = 5}); }, 9, 11);
}

TEST(AdoptTest, ConditionalSearchesGoOn) {
  const SearchSpace space({Space::fixed(2), Space::separate(0, 1, 0.25), Space::continuous(0, 1)},
                          {{.dimension = 1, .parent = 0, .indices = {0}},
                           {.dimension = 2, .parent = 0, .indices = {1}}});
  // NaN differs from itself: what is compared has a number in its place.
  const auto next_of = [](Sampler& sampler) {
    const Sample sample = sampler.ask().value();
    tell_of(sampler, sample);
    std::vector<double> values = sample.values;
    for (double& value : values) value = std::isnan(value) ? -7 : value;
    return values;
  };
  const std::vector<std::function<Sampler()>> searches{
      [&] { return Sampler::grid(space, {.max_steps = 60}); },
      [&] { return Sampler::random(space, {.words = python_random(std::uint64_t{3})}); },
      [&] { return Sampler::bayes(space, {.max_steps = 60, .seed = 3}); },
      [&] { return Sampler::tpe(space, {.seed = 3}); },
      [&] { return Sampler::qmc(space, {.seed = 3}); },
  };
  for (const std::function<Sampler()>& make : searches) {
    Sampler whole = make();
    Sampler resumed = make();
    for (int i = 0; i < 20; ++i) {
      const Sample sample = whole.ask().value();
      tell_of(whole, sample);
      resumed.adopt(sample);
      tell_of(resumed, sample);
    }
    for (int i = 0; i < 8; ++i) EXPECT_EQ(next_of(resumed), next_of(whole));
  }
}

TEST(AdoptTest, ACmaesSearchGoesOnWithTheSameSuggestions) {
  for (const int first : {3, 50, 700}) {  // in the first generation, later, after a restart
    expect_continues([] { return Sampler::cmaes(mixed(), {.max_steps = 900, .seed = 5}); }, first,
                     100);
  }
}

TEST(AdoptTest, ANsga2SearchGoesOnWithTheSameSuggestions) {
  const auto make = [] {
    return Sampler::nsga2(
        mixed(),
        {.max_steps = 200, .directions = {Direction::kMinimize}, .population_size = 10, .seed = 5});
  };
  for (const int first : {3, 50}) expect_continues(make, first, 100);
}

TEST(AdoptTest, CmaesLearnsFromPointsThatOthersChose) {
  Sampler sampler = Sampler::cmaes({Space::continuous(-1, 1), Space::continuous(-1, 1)},
                                   {.population_size = 4, .seed = 1});
  for (std::uint64_t id = 1; id <= 40; ++id) {  // ten generations, all of them around (0.8, 0.8)
    const double shift = 0.02 * static_cast<double>(id % 5);
    sampler.adopt({.id = id, .values = {0.8 - shift, 0.8 + shift}},
                  id % 2 == 0 ? Origin::kUser : Origin::kSearch);
    sampler.tell(id, TrialState::kOk, shift);
  }
  double sum = 0;
  for (int i = 0; i < 20; ++i) {
    const Sample sample = sampler.ask().value();
    sum += sample.values[0] + sample.values[1];
  }
  EXPECT_GT(sum / 40, 0.5);
}

TEST(AdoptTest, APointOfTheUserUsesUpOneStep) {
  Sampler sampler = Sampler::random({Space::fixed(3)}, {.max_steps = 3});
  sampler.adopt({.id = 1, .values = {1}}, Origin::kUser);
  sampler.tell(1, TrialState::kOk, 0);
  EXPECT_THAT(values_of(sampler, 10),
              testing::UnorderedElementsAre(testing::ElementsAre(0.0), testing::ElementsAre(2.0)));
}

TEST(AdoptTest, IdsGoOnBehindTheLargestAdoptedOne) {
  Sampler sampler = Sampler::random({Space::continuous(0, 1)}, {});
  sampler.adopt({.id = 41, .values = {0.5}});
  EXPECT_EQ(sampler.ask()->id, 42U);
  sampler.tell(41, TrialState::kPruned);
  EXPECT_EQ(sampler.pending(), 1U);
}

TEST(AdoptTest, WhatCannotBeAdoptedIsRefused) {
  Sampler sampler = Sampler::random({Space::continuous(0, 1)}, {});
  EXPECT_THROW(sampler.adopt({.id = 0, .values = {0.5}}), UsageError);
  EXPECT_THROW(sampler.adopt({.id = 1, .values = {0.5, 1}}), UsageError);
  sampler.adopt({.id = 1, .values = {0.5}});
  EXPECT_THROW(sampler.adopt({.id = 1, .values = {0.5}}), UsageError);
}

}  // namespace
}  // namespace divisi::tune
