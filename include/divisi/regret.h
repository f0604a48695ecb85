// How much better than the best trial so far a trial could still be.
//
//   if (estimated_regret(spaces, points, values, {.maximize = true}) < 0.01) stop();
#pragma once

#include "divisi/export.h"
#include "divisi/sampler.h"

#include <cstdint>
#include <vector>

namespace divisi::tune {

// For estimated_regret().
struct RegretOptions {
  bool maximize = false;   // whether larger values are better
  std::uint64_t seed = 0;  // of everything random
};

// An upper estimate in units of the value: what a Gaussian process over the trials believes
// possible anywhere, less what it is sure of at the best of them. Infinite before there are five
// trials and two per space. A value that is not finite is left out; of more than 256 trials the
// best count. Costs some multiple of the cube of their number. Throws UsageError: points and values
// that do not fit.
DIVISI_API double estimated_regret(const std::vector<Space>& spaces,
                                   const std::vector<std::vector<double>>& points,
                                   const std::vector<double>& values,
                                   const RegretOptions& options = {});

}  // namespace divisi::tune
