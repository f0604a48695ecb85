#include "tune/acquisition.h"
#include "tune/box_minimizer.h"
#include "tune/gp_model.h"
#include "tune/proposal.h"
#include "tune/random_words.h"

#include <gtest/gtest.h>

#include <cmath>

namespace divisi::tune {
namespace {

double bump(double x, double y) {
  const double dx = x - 0.62;
  const double dy = y - 0.37;
  return std::exp(-8 * (dx * dx + dy * dy));
}

GpModel fitted_bump() {
  GpModel model(std::vector<Axis>(2), {});
  const RandomWords words = python_random(7);
  for (int i = 0; i < 24; ++i) {
    const double x = draw_unit(words);
    const double y = draw_unit(words);
    model.add(std::vector<double>{x, y}, bump(x, y));
  }
  model.fit(40, 2, words);
  return model;
}

TEST(BoxMinimizerTest, FindsMinimumInsideAndOnTheEdge) {
  const Smooth rosenbrock = [](std::span<const double> x, std::span<double> gradient) {
    const double a = 1 - x[0];
    const double b = x[1] - x[0] * x[0];
    gradient[0] = -2 * a - 400 * x[0] * b;
    gradient[1] = 200 * b;
    return a * a + 100 * b * b;
  };
  std::vector<double> x{-1.2, 1};
  const std::vector<double> lower{-2, -2};
  EXPECT_LT(minimize_in_box(rosenbrock, lower, std::vector<double>{2, 2}, 200, x), 1e-8);
  EXPECT_NEAR(x[0], 1, 1e-3);
  x = {-1.2, 1};
  minimize_in_box(rosenbrock, lower, std::vector<double>{0.5, 2}, 200, x);
  EXPECT_NEAR(x[0], 0.5, 1e-6);
  EXPECT_NEAR(x[1], 0.25, 1e-4);
}

TEST(GpModelTest, PredictsKnownPointsAndDoubtsOthers) {
  GpModel model(std::vector<Axis>(1), {});
  for (int i = 0; i <= 6; ++i) model.add(std::vector<double>{i / 20.0}, std::sin(i / 2.0));
  const RandomWords words = python_random(1);
  model.fit(40, 2, words);
  const Prediction best = model.predict(std::vector<double>{3 / 20.0});
  EXPECT_NEAR(best.mean, model.best(), 0.01);
  EXPECT_LT(best.deviation, 0.01);
  EXPECT_NEAR(model.predict(std::vector<double>{0.0}).mean, model.worst(), 0.01);
  EXPECT_GT(model.predict(std::vector<double>{0.95}).deviation, 0.2);
}

TEST(GpModelTest, AddedPointEqualsRebuiltModel) {
  GpModel grown(std::vector<Axis>(1), {});
  GpModel whole(std::vector<Axis>(1), {});
  for (int i = 0; i < 40; ++i) grown.add(std::vector<double>{i / 40.0}, std::sin(i / 5.0));
  for (int i = 0; i < 40; ++i) whole.add(std::vector<double>{i / 40.0}, std::sin(i / 5.0));
  const RandomWords words = python_random(1);
  whole.fit(0, 0, words);  // the same parameters, the factor computed at once
  for (const double x : {0.0, 0.33, 0.77, 1.0}) {
    const Prediction a = grown.predict(std::vector<double>{x});
    const Prediction b = whole.predict(std::vector<double>{x});
    EXPECT_NEAR(a.mean, b.mean, 1e-5);
    EXPECT_NEAR(a.deviation, b.deviation, 1e-5);
  }
}

TEST(GpModelTest, GradientsMatchDifferences) {
  const GpModel model = fitted_bump();
  const std::vector<double> at{0.31, 0.58};
  std::vector<double> by_mean(2);
  std::vector<double> by_deviation(2);
  model.predict(at, by_mean, by_deviation);
  for (std::size_t d = 0; d < 2; ++d) {
    std::vector<double> above = at;
    std::vector<double> below = at;
    above[d] += 1e-5;
    below[d] -= 1e-5;
    const Prediction up = model.predict(above);
    const Prediction down = model.predict(below);
    EXPECT_NEAR(by_mean[d], (up.mean - down.mean) / 2e-5, 1e-4);
    EXPECT_NEAR(by_deviation[d], (up.deviation - down.deviation) / 2e-5, 1e-4);
  }
}

TEST(AcquisitionTest, LogImprovementIsSmoothFarBelowTheBest) {
  for (const Acquisition kind :
       {Acquisition::kExpectedImprovement, Acquisition::kProbabilityOfImprovement}) {
    const AcquisitionRule rule{.kind = kind, .best = 0};
    double last = -1e300;
    for (double mean = -200; mean < 3; mean += 0.5) {
      const AcquisitionSlope slope = acquisition_slope(rule, {mean, 1});
      ASSERT_TRUE(std::isfinite(slope.value)) << mean;
      EXPECT_GT(slope.value, last) << mean;
      last = slope.value;
      const double up = acquisition(rule, {mean + 1e-4, 1});
      const double down = acquisition(rule, {mean - 1e-4, 1});
      EXPECT_NEAR(slope.by_mean, (up - down) / 2e-4, 1e-3 * std::max(1.0, slope.by_mean)) << mean;
    }
  }
}

struct BumpCase {
  Acquisition kind;
  double kappa;
  double xi;
};

TEST(AcquisitionTest, H044_MaximumIsThatOfAFineMesh) {
  const GpModel model = fitted_bump();
  const SearchSpace space{Space::continuous(0, 1), Space::continuous(0, 1)};
  const Encoding encoding(space.spaces, Activity::of(space).value(), false);
  const Region region{{0, 0}, {1, 1}};
  for (const BumpCase& given : {BumpCase{Acquisition::kUpperConfidenceBound, 1, 0},
                                BumpCase{Acquisition::kExpectedImprovement, 0, 1e-6},
                                BumpCase{Acquisition::kProbabilityOfImprovement, 0, 1e-4}}) {
    const AcquisitionRule rule{.kind = given.kind,
                               .best = model.best(),
                               .kappa = given.kappa,
                               .xi = given.xi * model.unit()};
    std::vector<Point> mesh;
    for (int i = 0; i <= 200; ++i) {
      for (int j = 0; j <= 200; ++j) mesh.push_back({i * 0.005, j * 0.005});
    }
    const std::vector<Prediction> predictions = model.predict(mesh);
    std::size_t best = 0;
    for (std::size_t i = 0; i < mesh.size(); ++i) {
      if (acquisition(rule, predictions[i]) > acquisition(rule, predictions[best])) best = i;
    }
    const RandomWords words = python_random(11);
    std::vector<Point> candidates;
    for (int i = 0; i < 384; ++i) candidates.push_back({draw_unit(words), draw_unit(words)});
    const Point found =
        propose(rule, model, encoding, region, candidates, {}, [](const Point&) { return false; });
    ASSERT_EQ(found.size(), 2U);
    EXPECT_NEAR(found[0], mesh[best][0], 0.01) << static_cast<int>(given.kind);
    EXPECT_NEAR(found[1], mesh[best][1], 0.01) << static_cast<int>(given.kind);
  }
}

}  // namespace
}  // namespace divisi::tune
