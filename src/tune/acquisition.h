// How promising a point is, given what a model says about it.
#pragma once

#include "divisi/sampler.h"
#include "tune/gp_model.h"

#include <span>

namespace divisi::tune {

// The settings in standardised values; larger is better throughout.
struct AcquisitionRule {
  Acquisition kind = Acquisition::kExpectedImprovement;
  double best = 0;   // the best value so far
  double kappa = 0;  // of the confidence bound
  double xi = 0;     // what an improvement must exceed
};

// Expected improvement and its probability as logarithms: the same order of points, and no
// underflow far from the best.
double acquisition(const AcquisitionRule& rule, const Prediction& at);

// Its derivatives by mean and deviation.
struct AcquisitionSlope {
  double value = 0;
  double by_mean = 0;
  double by_deviation = 0;
};
AcquisitionSlope acquisition_slope(const AcquisitionRule& rule, const Prediction& at);

// The acquisition at a point of the model, and its gradient.
double acquisition_at(const AcquisitionRule& rule, const GpModel& model,
                      std::span<const double> point, std::span<double> gradient);

}  // namespace divisi::tune
