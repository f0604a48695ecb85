// The normal distribution of CMA-ES over the numbers of a search.
#pragma once

#include "divisi/sampler.h"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace divisi::tune {

struct CmaSetup {
  std::size_t population = 0;  // results of an update, from 4
  double sigma = 0.3;          // the first deviation
  bool active = true;          // whether bad results have negative weights
  std::vector<double> mean;    // the first one; its length is the number of coordinates
  std::vector<double> steps;   // of each coordinate the distance of its points; 0: none
};

// A draw. `direction` is what the update learns from, `position` where the trial is.
struct CmaDraw {
  std::vector<double> direction;  // (position - mean) / sigma, without the bound of steps
  std::vector<double> position;
};

// Mean, step size and covariance, with the updates of Hansen's tutorial (rank one, rank mu, active
// weights, cumulative step-size adaptation). Coordinates are unbounded: who maps them to a box
// does it after the draw.
//
// A coordinate with steps is drawn with at least the deviation at which a draw leaves the middle of
// a step with probability 1 / (coordinates * population): otherwise the step size shrinks below the
// steps and all draws become one point.
//
// The eigenvectors are computed again only once the covariance has changed noticeably; a draw costs
// n^2. Not thread-safe.
class CmaDistribution {
 public:
  explicit CmaDistribution(const CmaSetup& setup);
  CmaDistribution(CmaDistribution&&) noexcept;
  CmaDistribution& operator=(CmaDistribution&&) noexcept;
  ~CmaDistribution();

  // Depends on the words and on the updates only.
  CmaDraw draw(const RandomWords& words) const;
  // The direction of a point that was drawn by somebody else or before an update, shortened to what
  // a draw may have: a point from afar must not blow up the covariance.
  std::vector<double> direction_to(std::span<const double> position) const;
  // Of `population` draws, the best one first.
  void update(const std::vector<std::vector<double>>& directions);

  const std::vector<double>& mean() const;
  // Along a coordinate, without the bound of steps.
  double deviation(std::size_t coordinate) const;
  // Whether no further update makes sense: continuous coordinates without extent, or numbers that
  // have degenerated.
  bool is_spent() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A normal number; takes four words.
double draw_normal(const RandomWords& words);

}  // namespace divisi::tune
