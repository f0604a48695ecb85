#include "tune/proposal.h"

#include "tune/box_minimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace divisi::tune {
namespace {

// Alternatives tried in one move; a space with more is searched by the candidates.
constexpr std::int64_t kMaxAlternatives = 24;
constexpr int kMaxMoves = 12;  // along discrete coordinates, per candidate

struct Scored {
  double value = -std::numeric_limits<double>::infinity();
  Point point;
};

class Proposal {
 public:
  Proposal(const AcquisitionRule& rule, const GpModel& model, const Encoding& encoding,
           const Region& region, int iterations)
      : rule_(rule), model_(model), encoding_(encoding), region_(region), iterations_(iterations) {
    for (std::size_t d = 0; d < encoding.size(); ++d) {
      if (!encoding.is_discrete(d)) intervals_.push_back(d);
    }
  }

  std::vector<Scored> score(const std::vector<Point>& points) const {
    const std::vector<Prediction> predictions = model_.predict(points);
    std::vector<Scored> scored;
    scored.reserve(points.size());
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double value = acquisition(rule_, predictions[i]);
      scored.push_back(
          {std::isnan(value) ? -std::numeric_limits<double>::infinity() : value, points[i]});
    }
    return scored;
  }

  Scored refine(Scored best) const {
    climb(best);
    if (intervals_.size() == encoding_.size()) return best;
    for (int i = 0; i < kMaxMoves && move(best); ++i) climb(best);
    return best;
  }

 private:
  // Along the intervals, with the other coordinates as they are.
  void climb(Scored& best) const {
    std::vector<std::size_t> along;
    for (const std::size_t d : intervals_) {
      if (encoding_.is_active(d, best.point)) along.push_back(d);
    }
    if (along.empty()) return;
    std::vector<double> x;
    std::vector<double> lower;
    std::vector<double> upper;
    for (const std::size_t d : along) {
      x.push_back(best.point[d]);
      lower.push_back(region_.lower[d]);
      upper.push_back(region_.upper[d]);
    }
    Point at = best.point;
    std::vector<double> full(at.size());
    const Smooth negated = [&](std::span<const double> here, std::span<double> gradient) {
      for (std::size_t i = 0; i < along.size(); ++i) at[along[i]] = here[i];
      const double value = acquisition_at(rule_, model_, at, full);
      for (std::size_t i = 0; i < along.size(); ++i) gradient[i] = -full[along[i]];
      return -value;
    };
    const double value = -minimize_in_box(negated, lower, upper, iterations_, x);
    if (!(value > best.value)) return;
    best.value = value;
    for (std::size_t i = 0; i < along.size(); ++i) best.point[along[i]] = x[i];
  }

  // To the best neighbour along one discrete coordinate; false when there is no better one.
  bool move(Scored& best) const {
    std::vector<Point> neighbours;
    for (std::size_t d = 0; d < encoding_.size(); ++d) {
      if (encoding_.is_discrete(d) && encoding_.is_active(d, best.point)) {
        add_neighbours(best.point, d, neighbours);
      }
    }
    if (neighbours.empty()) return false;
    bool moved = false;
    for (Scored& other : score(neighbours)) {
      if (other.value > best.value) {
        best = std::move(other);
        moved = true;
      }
    }
    return moved;
  }

  void add_neighbours(const Point& from, std::size_t d, std::vector<Point>& to) const {
    const std::int64_t count = *encoding_.space(d).count();
    const std::int64_t now = encoding_.index(d, from[d]);
    const bool all = encoding_.space(d).kind() == Space::Kind::kFixed && count <= kMaxAlternatives;
    const auto add = [&](std::int64_t index) {
      if (index < 0 || index >= count || index == now) return;
      const double x = encoding_.coordinate(d, index);
      if (x < region_.lower[d] || x > region_.upper[d]) return;
      Point neighbour = from;
      neighbour[d] = x;
      to.push_back(encoding_.settled(std::move(neighbour)));
    };
    if (all) {
      for (std::int64_t index = 0; index < count; ++index) add(index);
      return;
    }
    const std::int64_t far = std::max<std::int64_t>(2, count / 8);
    for (const std::int64_t step : {std::int64_t{-1}, std::int64_t{1}, -far, far}) add(now + step);
  }

  const AcquisitionRule& rule_;
  const GpModel& model_;
  const Encoding& encoding_;
  const Region& region_;
  int iterations_;
  std::vector<std::size_t> intervals_;
};

}  // namespace

Point propose(const AcquisitionRule& rule, const GpModel& model, const Encoding& encoding,
              const Region& region, const std::vector<Point>& candidates,
              const ProposalOptions& options, const std::function<bool(const Point&)>& taken) {
  const Proposal proposal(rule, model, encoding, region, options.iterations);
  const std::vector<Scored> scored = proposal.score(candidates);
  std::vector<std::size_t> order(scored.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return std::pair(-scored[a].value, a) < std::pair(-scored[b].value, b);
  });
  Scored best;
  int refined = 0;
  for (const std::size_t i : order) {
    const Scored& candidate = scored[i];
    if (refined == options.refined && !best.point.empty()) break;
    if (refined < options.refined) {
      ++refined;
      Scored better = proposal.refine(candidate);
      if (better.value > best.value && !taken(better.point)) best = std::move(better);
    }
    if (candidate.value > best.value && !taken(candidate.point)) best = candidate;
  }
  return best.point;
}

}  // namespace divisi::tune
