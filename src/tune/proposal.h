// The search for the point with the largest acquisition.
#pragma once

#include "tune/acquisition.h"
#include "tune/encoding.h"
#include "tune/gp_model.h"

#include <functional>
#include <vector>

namespace divisi::tune {

// A part of the model's box that is searched.
struct Region {
  std::vector<double> lower;
  std::vector<double> upper;
};

struct ProposalOptions {
  int refined = 4;      // how many of the best candidates are refined
  int iterations = 25;  // of each refinement
};

// Refines the best of `candidates` (at least one): by gradient along intervals, by single moves
// along discrete coordinates. Points for which `taken` holds are not chosen unless all others are
// worse than nothing: then the result is empty.
Point propose(const AcquisitionRule& rule, const GpModel& model, const Encoding& encoding,
              const Region& region, const std::vector<Point>& candidates,
              const ProposalOptions& options, const std::function<bool(const Point&)>& taken);

}  // namespace divisi::tune
