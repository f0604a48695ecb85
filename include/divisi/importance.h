// Importance: which variables a result depends on, from trials that have ended.
//
//   std::vector<double> shares = importance(spaces, points, values);   // one per space
//
// docs/tuner.md.
#pragma once

#include "divisi/export.h"
#include "divisi/sampler.h"

#include <cstdint>
#include <vector>

namespace divisi::tune {

// How importance is measured.
enum class ImportanceMethod {
  kVariance,    // fANOVA: the share of a forest's variance that a variable explains alone
  kDivergence,  // PED-ANOVA: how far the distribution of the best trials is from that of all
};

// For importance().
struct ImportanceOptions {
  ImportanceMethod method = ImportanceMethod::kVariance;  // how it is measured
  bool maximize = false;    // whether larger values are better; of kDivergence
  int trees = 64;           // of kVariance
  double best_share = 0.1;  // of kDivergence: the part of the trials that counts as the best
  std::uint64_t seed = 0;   // of the forest
  bool normalize = true;    // the importances sum to 1, unless all are 0
};

// The importance of each space, in their order. Points are those of Sample; a point whose value is
// not finite is left out. All are 0 where the values do not differ. Deterministic by the seed.
// Throws UsageError: fewer than two trials, points and values that do not fit, options out of
// range.
DIVISI_API std::vector<double> importance(const std::vector<Space>& spaces,
                                          const std::vector<std::vector<double>>& points,
                                          const std::vector<double>& values,
                                          const ImportanceOptions& options = {});

}  // namespace divisi::tune
