// Bayesian search: an even start, then the point that a Gaussian process finds most promising.
#include "tune/acquisition.h"
#include "tune/algorithm.h"
#include "tune/encoding.h"
#include "tune/gp_model.h"
#include "tune/proposal.h"
#include "tune/random_words.h"
#include "tune/sobol.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace divisi::tune {
namespace {

constexpr double kSame = 1e-6;              // coordinates that are closer are one point
constexpr std::size_t kCandidates = 384;    // over the whole region
constexpr std::size_t kNearIncumbent = 96;  // around the best point so far
constexpr std::size_t kReferenceCandidates = 10000;
// More observations than this are too many for one factor; the best of them then say where to
// search, within a region around the best point.
constexpr std::size_t kMaxPoints = 1000;
constexpr std::size_t kRegionPoints = 500;
constexpr double kFailureRadius = 0.5;  // in length scales of the model
// But of a scale no more than this, in the unit cube: a function that is smooth over the whole cube
// may fail at a point, not everywhere.
constexpr double kFailureScale = 0.25;
// After so many further trials the radius is half, after three times as many a quarter: a failure
// may have been bad luck, and the best point may be behind it.
constexpr double kFailureMemory = 10;
// Then the point itself may be tried again.
constexpr double kFailureForgotten = 30;
constexpr double kFirstHalfWidth = 0.2;
constexpr double kMinHalfWidth = 0.01;
constexpr double kMaxHalfWidth = 0.5;

struct Observation {
  Point point;
  double value;  // larger is better
};

GpOptions model_options(const BayesOptions& options) {
  if (!options.reference_engine) return {};
  return {.shared_scale = true,
          .learn_amplitude = false,
          .learn_noise = false,
          .priors = false,
          .noise = options.noise,
          .min_scale = 1e-5,
          .max_scale = 1e5};
}

// A trial that failed or was skipped.
struct Failure {
  Point point;
  std::int64_t emitted;  // trials that had been given until then
};

class Bayes final : public Algorithm {
 public:
  Bayes(std::vector<Space> spaces, Activity activity, const BayesOptions& options)
      : options_(options),
        encoding_(std::move(spaces), std::move(activity), options.reference_engine),
        axes_(encoding_.axes()),
        words_(python_random(options.seed)),
        start_(encoding_.size(), words_),
        model_(axes_, model_options(options)),
        start_steps_(start_steps()),
        kappa_(options.kappa) {}

  std::optional<std::vector<double>> next(std::uint64_t id) override {
    if (options_.max_steps && emitted_ >= *options_.max_steps) return std::nullopt;
    ++emitted_;
    begin_suggestion(id);
    Point point = is_start() ? start_point() : suggest();
    std::vector<double> values = encoding_.values(point);
    pending_.emplace(id, std::move(point));
    return values;
  }

  void adopt(std::uint64_t id, const std::vector<double>& values, Origin origin) override {
    ++emitted_;
    if (origin == Origin::kSearch) {
      begin_suggestion(id);
      if (is_start()) {
        start_point();
      } else if (observations_.size() >= next_fit_) {
        update_model();  // learns when and what it would have learned for the suggestion
      }
    }
    pending_.emplace(id, encoding_.point(values));
  }

  void finish(std::uint64_t id, const Outcome& outcome) override {
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    Point point = std::move(found->second);
    pending_.erase(found);
    // An infeasible result counts as the worst value seen, so that the model leads away from it.
    const bool feasible = outcome.violation == 0;
    if (outcome.state == TrialState::kOk && (feasible || !observations_.empty())) {
      ++successes_;
      const double value = outcome.values.front();
      observe(std::move(point), !feasible ? worst_ : (options_.maximize ? value : -value));
      if (options_.kappa_decay < 1 && ++fits_ > options_.kappa_decay_delay) {
        kappa_ *= options_.kappa_decay;
      }
    } else if (outcome.state == TrialState::kFail && options_.impute_failures &&
               !observations_.empty()) {
      observe(std::move(point), worst_);
    } else {
      failed_.push_back({std::move(point), emitted_});
    }
  }

 private:
  std::int64_t start_steps() const {
    if (options_.init_steps == 0) return 1;
    if (options_.reference_engine) return options_.init_steps;
    std::int64_t steps =
        std::max(options_.init_steps, 2 * static_cast<std::int64_t>(encoding_.size()));
    if (options_.max_steps) steps = std::min(steps, *options_.max_steps / 4);
    return std::max<std::int64_t>(steps, 1);
  }

  bool is_start() const { return successes_ < start_steps_ || observations_.empty(); }

  void begin_suggestion(std::uint64_t id) { words_ = trial_words(options_.seed, id); }

  Point start_point() {
    return options_.reference_engine ? uniform_point() : encoding_.from_unit(start_.next());
  }

  Point uniform_point() {
    std::vector<double> unit(encoding_.size());
    for (double& x : unit) x = draw_unit(words_);
    return encoding_.from_unit(std::move(unit));
  }

  void observe(Point point, double value) {
    if (observations_.empty() || value > observations_[incumbent_].value) {
      incumbent_ = observations_.size();
      half_width_ = std::min(half_width_ * 2, kMaxHalfWidth);
      without_gain_ = 0;
    } else if (++without_gain_ > 4 + 2 * encoding_.size() && observations_.size() > kMaxPoints) {
      half_width_ = half_width_ / 2 < kMinHalfWidth ? kFirstHalfWidth : half_width_ / 2;
      without_gain_ = 0;
    }
    worst_ = observations_.empty() ? value : std::min(worst_, value);
    observations_.push_back({std::move(point), value});
  }

  // The model holds every observation, or the best of many.
  void update_model() {
    if (observations_.size() > kMaxPoints) {
      if (modelled_ != observations_.size()) model_best();
    } else {
      for (; modelled_ < observations_.size(); ++modelled_) {
        model_.add(observations_[modelled_].point, observations_[modelled_].value);
      }
    }
    if (observations_.size() < next_fit_) return;
    const std::size_t n = observations_.size();
    if (options_.reference_engine) {
      model_.fit(50, options_.restarts, words_);
      next_fit_ = n + 1;
    } else if (n <= 60) {
      model_.fit(40, 2, words_);
      next_fit_ = n + std::max<std::size_t>(1, n / 20);
    } else {
      model_.fit(15, 0, words_);
      next_fit_ = n + n / 8;
    }
  }

  void model_best() {
    std::vector<std::size_t> order(observations_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::partial_sort(order.begin(), order.begin() + kRegionPoints, order.end(),
                      [&](std::size_t a, std::size_t b) {
                        return std::pair(-observations_[a].value, a) <
                               std::pair(-observations_[b].value, b);
                      });
    model_.clear();
    for (std::size_t i = 0; i < kRegionPoints; ++i) {
      model_.add(observations_[order[i]].point, observations_[order[i]].value);
    }
    modelled_ = observations_.size();
  }

  Region region() const {
    Region region;
    for (const Axis& axis : axes_) {
      region.lower.push_back(axis.lower);
      region.upper.push_back(axis.upper);
    }
    if (observations_.size() <= kMaxPoints || options_.reference_engine) return region;
    const Point& center = observations_[incumbent_].point;
    for (std::size_t d = 0; d < axes_.size(); ++d) {
      if (axes_[d].category) continue;
      region.lower[d] = std::max(0.0, center[d] - half_width_);
      region.upper[d] = std::min(1.0, center[d] + half_width_);
    }
    return region;
  }

  // The model with a stand-in for every trial that still runs.
  GpModel model_with_pending() const {
    GpModel model = model_;
    for (const auto& [id, point] : pending_) {
      double value = 0;  // the mean of standardised values
      switch (options_.pending) {
        case Lie::kPredicted: value = model.predict(point).mean; break;
        case Lie::kBest: value = model.best(); break;
        case Lie::kWorst: value = model.worst(); break;
        case Lie::kMean: break;
      }
      model.add_assumed(point, value);
    }
    return model;
  }

  std::vector<Point> candidates(const Region& region) {
    std::vector<Point> points;
    if (options_.reference_engine) {
      points.reserve(kReferenceCandidates);
      for (std::size_t i = 0; i < kReferenceCandidates; ++i) points.push_back(uniform_point());
      return points;
    }
    Sobol sobol(encoding_.size(), words_);
    for (std::size_t i = 0; i < kCandidates; ++i) {
      Point point = encoding_.from_unit(sobol.next());
      for (std::size_t d = 0; d < point.size(); ++d) {
        if (axes_[d].category) continue;
        point[d] =
            encoding_.snapped(d, region.lower[d] + point[d] * (region.upper[d] - region.lower[d]));
      }
      points.push_back(encoding_.settled(std::move(point)));
    }
    for (std::size_t i = 0; i < kNearIncumbent; ++i) {
      // From a tenth of the cube to a thousandth.
      const double width = std::pow(10.0, -1 - 2 * draw_unit(words_));
      points.push_back(near(observations_[incumbent_].point, width, region));
    }
    for (const auto& [id, point] : pending_) points.push_back(near(point, 0.1, region));
    return points;
  }

  Point near(Point point, double width, const Region& region) {
    for (std::size_t d = 0; d < point.size(); ++d) {
      if (axes_[d].category) {
        if (draw_unit(words_) < 0.2) {
          point[d] = encoding_.coordinate(d, draw_below(words_, *encoding_.space(d).count()));
        }
        continue;
      }
      // The sum of three uniform numbers: near enough to a normal one, and bounded.
      const double shift = draw_unit(words_) + draw_unit(words_) + draw_unit(words_) - 1.5;
      point[d] = encoding_.snapped(
          d, std::clamp(point[d] + 2 * width * shift, region.lower[d], region.upper[d]));
    }
    return encoding_.settled(std::move(point));
  }

  bool same(const Point& a, const Point& b) const {
    for (std::size_t d = 0; d < a.size(); ++d) {
      const double width = std::max(axes_[d].upper - axes_[d].lower, kSame);
      if (std::abs(a[d] - b[d]) > kSame * width) return false;
    }
    return true;
  }

  bool is_taken(const Point& point) const {
    for (const auto& [id, other] : pending_) {
      if (same(point, other)) return true;
    }
    return std::any_of(observations_.begin(), observations_.end(),
                       [&](const Observation& known) { return same(point, known.point); }) ||
           is_near_failure(point);
  }

  // Whether the nearest trial that has ended has failed, or was skipped, within its radius. The
  // model does not know of such trials and would propose the same place again.
  bool is_near_failure(const Point& point) const {
    if (failed_.empty()) return false;
    const std::vector<double> scales = model_.length_scales();
    const auto distance = [&](const Point& other) {
      double sum = 0;
      for (std::size_t d = 0; d < point.size(); ++d) {
        const double difference =
            axes_[d].category ? (point[d] == other[d] ? 0.0 : 1.0) : point[d] - other[d];
        const double scale = axes_[d].category ? scales[d] : std::min(scales[d], kFailureScale);
        sum += difference * difference / (scale * scale);
      }
      return sum;
    };
    double nearest = std::numeric_limits<double>::infinity();
    for (const Failure& other : failed_) {
      const auto age = static_cast<double>(emitted_ - other.emitted);
      if (age > kFailureForgotten) continue;
      const double radius = kFailureRadius * kFailureMemory / (kFailureMemory + age);
      const double here = distance(other.point);
      if (here < radius * radius) nearest = std::min(nearest, here);
    }
    return std::isfinite(nearest) &&
           std::none_of(observations_.begin(), observations_.end(),
                        [&](const Observation& known) { return distance(known.point) <= nearest; });
  }

  Point suggest() {
    update_model();
    const Region searched = region();
    const std::vector<Point> points = candidates(searched);
    const auto propose_with = [&](const GpModel& model) {
      const AcquisitionRule rule{.kind = options_.acquisition,
                                 .best = model.best(),
                                 .kappa = kappa_,
                                 .xi = options_.xi * model.unit()};
      return propose(rule, model, encoding_, searched, points,
                     {.refined = options_.reference_engine ? 10 : 4},
                     [this](const Point& point) { return is_taken(point); });
    };
    Point best = pending_.empty() || options_.reference_engine ? propose_with(model_)
                                                               : propose_with(model_with_pending());
    // Every candidate was tried: in a small space, all points may have been.
    for (int i = 0; best.empty() && i < 1000; ++i) {
      Point drawn = uniform_point();
      if (i == 999 || !is_taken(drawn)) best = std::move(drawn);
    }
    return best;
  }

  const BayesOptions options_;
  const Encoding encoding_;
  const std::vector<Axis> axes_;
  RandomWords words_;
  Sobol start_;
  GpModel model_;
  const std::int64_t start_steps_;
  double kappa_;
  std::int64_t fits_ = 0;
  std::int64_t emitted_ = 0;
  std::int64_t successes_ = 0;
  std::map<std::uint64_t, Point>
      pending_;  // in the order of ids: results must not depend on hashes
  std::vector<Observation> observations_;
  std::vector<Failure> failed_;  // and skipped ones
  std::size_t modelled_ = 0;     // observations that the model has seen
  std::size_t incumbent_ = 0;
  std::size_t next_fit_ = 0;
  double worst_ = 0;
  double half_width_ = kFirstHalfWidth;
  std::size_t without_gain_ = 0;  // observations since the last improvement
};

Status check_bayes(const std::vector<Space>& spaces, const BayesOptions& options) {
  if (options.init_steps < 0) {
    return make_status(Code::kInvalid, "init_steps must not be negative: {}", options.init_steps);
  }
  if (!(options.noise > 0) || !std::isfinite(options.noise)) {
    return make_status(Code::kInvalid, "the model's noise (alpha) must be positive: {}",
                       options.noise);
  }
  if (options.restarts < 0 || options.restarts > 1000) {
    return make_status(Code::kInvalid, "restarts of the fit must be 0 to 1000: {}",
                       options.restarts);
  }
  if (!std::isfinite(options.kappa) || !std::isfinite(options.xi) ||
      !(options.kappa_decay > 0 && options.kappa_decay <= 1)) {
    return make_status(Code::kInvalid,
                       "kappa and xi must be finite, kappa_decay above 0 and at most 1: {}, {}, {}",
                       options.kappa, options.xi, options.kappa_decay);
  }
  for (const Space& space : spaces) {
    if (options.reference_engine && space.kind() == Space::Kind::kFixed) {
      return make_status(
          Code::kInvalid,
          "engine \"reference\" does not know alternatives (choice): use the default "
          "engine");
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Algorithm>> make_bayes(SearchSpace space, const BayesOptions& options) {
  DIVISI_TRY(Activity activity, Activity::of(space));
  const Status checked = check_bayes(space.spaces, options);
  if (!checked.ok()) return failure(checked);
  return std::make_unique<Bayes>(std::move(space.spaces), std::move(activity), options);
}

}  // namespace divisi::tune
