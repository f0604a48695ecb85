#include "divisi/error.h"
#include "divisi/sampler.h"
#include "tune/tpe_kernels.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

namespace divisi::tune {
namespace {

using Value = std::function<double(const std::vector<double>&)>;

double best_by_tpe(const SearchSpace& space, const Value& objective, TpeOptions options) {
  Sampler sampler = Sampler::tpe(space, options);
  double best = std::numeric_limits<double>::infinity();
  while (const std::optional<Sample> sample = sampler.ask()) {
    const double value = objective(sample->values);
    best = std::min(best, value);
    sampler.tell(sample->id, TrialState::kOk, options.maximize ? -value : value);
  }
  return best;
}

double bowl(const std::vector<double>& x) {
  double sum = 0;
  for (const double one : x) sum += (one - 0.3) * (one - 0.3);
  return sum;
}

// The sum of exp(log_density) over the middles of a fine grid, times the size of its cells.
double total_mass(TpeKernels& kernels, const std::vector<float>& weights) {
  double sum = 0;
  constexpr int kCells = 400;
  for (int i = 0; i < kCells; ++i) {
    for (double step = 0; step < 5; ++step) {
      for (double category = 0; category < 3; ++category) {
        const double x = (i + 0.5) / kCells;
        sum += std::exp(kernels.log_density({x, step, category}, weights)) / kCells;
      }
    }
  }
  return sum;
}

std::vector<TpeAxis> three_axes() {
  return {{.kind = TpeAxis::Kind::kInterval},
          {.kind = TpeAxis::Kind::kSteps, .count = 5},
          {.kind = TpeAxis::Kind::kCategory, .count = 3}};
}

TEST(TpeKernelsTest, TheMixtureIsADensity) {
  for (const std::size_t trials : {1U, 3U, 40U}) {
    TpeKernels kernels(three_axes(), 1);
    kernels.push({0.02, 0, 2});
    kernels.push({0.7, 3, 0});
    kernels.push({1.0, 4, 0});
    kernels.set_trials(trials);
    EXPECT_NEAR(total_mass(kernels, {1, 0.25, 2}), 1, 3e-3) << trials;
  }
}

TEST(TpeKernelsTest, TrialsWithoutAValueAreUniformThere) {
  std::vector<TpeAxis> axes = three_axes();
  for (TpeAxis& axis : axes) axis.conditional = true;
  const double absent = std::nan("");
  TpeKernels kernels(axes, 1);
  kernels.push({absent, absent, absent});
  kernels.push({0.7, 3, absent});
  kernels.push({0.1, absent, 1});
  kernels.set_trials(3);
  EXPECT_NEAR(total_mass(kernels, {1, 1, 1}), 1, 3e-3);
  // A kernel without values alone, the prior left out by its weight.
  TpeKernels alone(axes, 1e-12);
  alone.push({absent, absent, absent});
  alone.set_trials(1);
  const std::vector<float> one{1};
  EXPECT_NEAR(alone.log_density({0.9, 1, 2}, one), std::log(1.0 / 15), 1e-4);
  // Of a point without values only the kernels' weights remain.
  EXPECT_NEAR(kernels.log_density({absent, absent, absent}, std::vector<float>{1, 1, 1}), 0, 1e-6);
}

TEST(TpeKernelsTest, KernelsOfWeightZeroDoNotCount) {
  TpeKernels both(three_axes(), 1);
  both.push({0.5, 2, 1});
  both.push({0.9, 0, 0});
  both.set_trials(1);
  TpeKernels one(three_axes(), 1);
  one.push({0.9, 0, 0});
  one.set_trials(1);
  const std::vector<double> point{0.5, 2, 1};
  EXPECT_NEAR(both.log_density(point, std::vector<float>{0, 1}),
              one.log_density(point, std::vector<float>{1}), 1e-5);
}

TEST(TpeTest, FindsTheMinimum) {
  const SearchSpace plane{Space::continuous(0, 1), Space::continuous(0, 1)};
  for (const std::uint64_t seed : {0U, 1U, 2U}) {
    EXPECT_LT(best_by_tpe(plane, bowl, {.max_steps = 100, .seed = seed}), 4e-3);
    EXPECT_LT(best_by_tpe(plane, bowl, {.max_steps = 100, .maximize = true, .seed = seed}), 4e-3);
  }
}

TEST(TpeTest, FindsAlternativesAndSteps) {
  const SearchSpace space{Space::fixed(6), Space::separate(-10, 10, 1),
                          Space::separate(0, 1000, 1)};
  const auto objective = [](const std::vector<double>& x) {
    return (x[0] == 4 ? 0 : 1) + std::abs(x[1] - 7) / 10 + std::abs(x[2] - 250) / 500;
  };
  EXPECT_LT(best_by_tpe(space, objective, {.max_steps = 150, .seed = 1}), 0.2);
}

TEST(TpeTest, SuggestionsDependOnSeedNumberAndHistory) {
  const auto suggestion = [](std::uint64_t seed, double shift) {
    Sampler sampler = Sampler::tpe({Space::continuous(0, 1), Space::fixed(3)}, {.seed = seed});
    for (std::uint64_t id = 1; id <= 20; ++id) {
      const double x = static_cast<double>(id) / 20;
      sampler.adopt({.id = id, .values = {x, 0}});
      sampler.tell(id, TrialState::kOk, std::abs(x - shift));
    }
    return sampler.ask()->values;
  };
  EXPECT_EQ(suggestion(1, 0.1), suggestion(1, 0.1));
  EXPECT_NE(suggestion(1, 0.1), suggestion(2, 0.1));
  EXPECT_NE(suggestion(1, 0.1), suggestion(1, 0.9));
}

// The mean of the suggestions after twenty trials with x = 0, 0.05, ...; `tell` says how they
// ended.
double mean_suggestion(TpeOptions options,
                       const std::function<void(Sampler&, std::uint64_t, double)>& tell) {
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    options.seed = seed;
    Sampler sampler = Sampler::tpe({Space::continuous(0, 1)}, options);
    for (std::uint64_t id = 1; id <= 20; ++id) {
      const double x = static_cast<double>(id - 1) / 20;
      sampler.adopt({.id = id, .values = {x}});
      tell(sampler, id, x);
    }
    sum += sampler.ask()->values[0];
  }
  return sum / 40;
}

TEST(TpeTest, InfeasibleTrialsRankBehindFeasibleOnes) {
  // The values are best at 0, where the constraint is violated most.
  const double mean = mean_suggestion({}, [](Sampler& sampler, std::uint64_t id, double x) {
    sampler.tell(id, {.state = TrialState::kOk, .values = {x}, .violation = x < 0.8 ? 1 - x : 0});
  });
  EXPECT_GT(mean, 0.65);
}

TEST(TpeTest, PrunedTrialsRankBehindFinishedOnes) {
  const double mean = mean_suggestion({}, [](Sampler& sampler, std::uint64_t id, double x) {
    const TrialState state = x < 0.8 ? TrialState::kPruned : TrialState::kOk;
    sampler.tell(id, {.state = state, .values = {x}});
  });
  EXPECT_GT(mean, 0.65);
  // Where all were pruned, their last reports say which are good.
  const double pruned = mean_suggestion({}, [](Sampler& sampler, std::uint64_t id, double x) {
    sampler.tell(id, {.state = TrialState::kPruned, .values = {x}});
  });
  EXPECT_LT(pruned, 0.35);
}

TEST(TpeTest, FailedTrialsCountOnlyIfImputed) {
  const auto fails_below = [](Sampler& sampler, std::uint64_t id, double x) {
    if (x < 0.5) {
      sampler.tell(id, TrialState::kFail);
    } else {
      sampler.tell(id, TrialState::kOk, std::abs(x - 0.5));
    }
  };
  const double imputed = mean_suggestion({.impute_failures = true}, fails_below);
  const double without = mean_suggestion({}, fails_below);
  EXPECT_GT(imputed, without + 0.05);
}

TEST(TpeTest, RunningTrialsCountAsBad) {
  const auto spread = [](bool liar) {
    Sampler sampler = Sampler::tpe({Space::continuous(0, 1)}, {.constant_liar = liar, .seed = 4});
    for (std::uint64_t id = 1; id <= 40; ++id) {
      const double x = static_cast<double>(id - 1) / 40;
      sampler.adopt({.id = id, .values = {x}});
      sampler.tell(id, TrialState::kOk, std::abs(x - 0.5));
    }
    std::vector<double> asked;
    for (int i = 0; i < 20; ++i) asked.push_back(sampler.ask()->values[0]);
    const auto [low, high] = std::minmax_element(asked.begin(), asked.end());
    return *high - *low;
  };
  EXPECT_GT(spread(true), spread(false) + 0.1);
}

TEST(TpeTest, APointOfAFiniteSearchComesOnce) {
  Sampler sampler =
      Sampler::tpe({Space::fixed(4), Space::separate(0, 4, 1)}, {.max_steps = 22, .seed = 2});
  std::set<std::vector<double>> seen;
  int asked = 0;
  while (const std::optional<Sample> sample = sampler.ask()) {
    ++asked;
    seen.insert(sample->values);
    sampler.tell(sample->id, TrialState::kOk, bowl(sample->values));
  }
  EXPECT_EQ(asked, 22);
  EXPECT_EQ(seen.size(), 20U);
}

TEST(TpeTest, ManyTrialsAreThinnedAndStillModelled) {
  Sampler sampler =
      Sampler::tpe({Space::continuous(0, 1), Space::continuous(0, 1)}, {.n_candidates = 4});
  double late = 0;
  for (int i = 0; i < 5000; ++i) {
    const Sample sample = sampler.ask().value();
    if (i >= 4900) late += bowl(sample.values) / 100;
    sampler.tell(sample.id, TrialState::kOk, bowl(sample.values));
  }
  EXPECT_LT(late, 0.05);
}

TEST(TpeTest, FailuresOnlyKeepTheStart) {
  Sampler sampler = Sampler::tpe({Space::continuous(0, 1)}, {.max_steps = 30});
  int asked = 0;
  while (const std::optional<Sample> sample = sampler.ask()) {
    ++asked;
    sampler.tell(sample->id, asked % 2 == 0 ? TrialState::kFail : TrialState::kSkip);
  }
  EXPECT_EQ(asked, 30);
}

TEST(TpeTest, NoSpacesAndNoStartAreServed) {
  Sampler empty = Sampler::tpe({}, {.max_steps = 20, .n_startup = 0});
  int asked = 0;
  while (const std::optional<Sample> sample = empty.ask()) {
    ++asked;
    EXPECT_TRUE(sample->values.empty());
    empty.tell(sample->id, TrialState::kOk, 1);
  }
  EXPECT_EQ(asked, 20);
}

TEST(TpeTest, BadOptionsAreUsageErrors) {
  const SearchSpace space{Space::continuous(0, 1)};
  EXPECT_THROW(Sampler::tpe(space, {.max_steps = -1}), UsageError);
  EXPECT_THROW(Sampler::tpe(space, {.n_startup = -1}), UsageError);
  EXPECT_THROW(Sampler::tpe(space, {.n_candidates = 0}), UsageError);
  EXPECT_THROW(Sampler::tpe(space, {.gamma = 0}), UsageError);
  EXPECT_THROW(Sampler::tpe(space, {.gamma = 1}), UsageError);
  EXPECT_THROW(Sampler::tpe(space, {.max_good = 0}), UsageError);
  EXPECT_THROW(Sampler::tpe(space, {.prior_weight = 0}), UsageError);
}

}  // namespace
}  // namespace divisi::tune
