// Order among results with several objectives, for NSGA-II and the public ParetoFront. Smaller
// values are better here, in every objective.
#pragma once

#include "divisi/pareto.h"

#include <cstddef>
#include <span>
#include <vector>

namespace divisi::tune {

// A result as it is compared.
struct Judged {
  std::vector<double> values;  // smaller is better
  double violation = 0;        // of the constraints; 0: all of them hold
};

// Nowhere larger, somewhere smaller. Both have the same length.
bool dominates(std::span<const double> a, std::span<const double> b);
// The same under constraints: feasible before infeasible, and of two infeasible ones the one with
// the smaller violation.
bool dominates(const Judged& a, const Judged& b);

// Of each result the number of its front: 0 for those that no other one dominates, 1 for those that
// only members of front 0 dominate, and so on. Costs n^2 comparisons.
std::vector<std::size_t> front_numbers(std::span<const Judged> results);
// Of each result how far apart its neighbours of the same front are, summed over the objectives and
// scaled by the extent of the front; infinite at the ends.
std::vector<double> crowding_distances(std::span<const Judged> results,
                                       std::span<const std::size_t> fronts);

// The volume of what the points dominate and `reference` does not: the union of the boxes between
// each point and it.
double hypervolume(std::vector<std::vector<double>> points, const std::vector<double>& reference);

}  // namespace divisi::tune
