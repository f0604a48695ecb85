// The Parzen estimator: kernels round good trials propose, kernels round bad ones object.
#include "tune/activity.h"
#include "tune/algorithm.h"
#include "tune/random_words.h"
#include "tune/tpe_kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <set>

namespace divisi::tune {
namespace {

constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN();
// More bad kernels than this are thinned: of the older ones every second goes, and what it weighed
// goes to its neighbour.
constexpr std::size_t kMaxKernels = 2048;
constexpr std::size_t kNewestKernels = 1024;
constexpr std::size_t kFullWeight = 25;  // the newest trials weigh 1, older ones less
constexpr int kFreshDraws = 100;         // tries for a point that was not given

std::vector<TpeAxis> axes_of(const std::vector<Space>& spaces, const Activity& activity) {
  std::vector<TpeAxis> axes;
  for (std::size_t d = 0; d < spaces.size(); ++d) {
    TpeAxis& axis = axes.emplace_back();
    axis.conditional = activity.is_conditional(d);
    axis.count = static_cast<std::size_t>(spaces[d].count().value_or(0));
    if (spaces[d].kind() == Space::Kind::kFixed) {
      axis.kind = TpeAxis::Kind::kCategory;
    } else if (axis.count > 0 && axis.count <= kMaxTableSteps) {
      axis.kind = TpeAxis::Kind::kSteps;
    }
  }
  return axes;
}

// The order of ended trials: what holds its constraints, then what was pruned, then by violation,
// then what failed.
struct Rank {
  enum class Class { kFeasible, kPruned, kInfeasible, kFailed };
  Class class_of = Class::kFeasible;
  double key = 0;  // smaller is better
  std::size_t trial = 0;
  auto operator<=>(const Rank&) const = default;
};

class Tpe final : public Algorithm {
 public:
  Tpe(std::vector<Space> spaces, Activity activity, const TpeOptions& options)
      : options_(options),
        spaces_(std::move(spaces)),
        activity_(std::move(activity)),
        axes_(axes_of(spaces_, activity_)),
        is_finite_(std::all_of(spaces_.begin(), spaces_.end(),
                               [](const Space& space) { return space.count().has_value(); })),
        good_(axes_, options.prior_weight),
        bad_(axes_, options.prior_weight) {}

  std::optional<std::vector<double>> next(std::uint64_t id) override {
    if (options_.max_steps && emitted_ >= *options_.max_steps) return std::nullopt;
    ++emitted_;
    begin_suggestion(id);
    const bool is_start = static_cast<std::int64_t>(ranked_.size()) < options_.n_startup;
    Coordinates point = is_start || ranked_.empty() ? fresh_point() : suggest();
    std::vector<double> values = values_of(point);
    note(id, std::move(point));
    return values;
  }

  void adopt(std::uint64_t id, const std::vector<double>& values, Origin) override {
    ++emitted_;
    note(id, point_of(values));
  }

  void finish(std::uint64_t id, const Outcome& outcome) override {
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    const Coordinates point = std::move(found->second);
    pending_.erase(found);
    const std::optional<Rank> rank = rank_of(outcome);
    if (!rank) return;
    ranked_.insert(std::ranges::upper_bound(ranked_, *rank), *rank);
    bad_.push(point);
    kept_.push_back({points_.size(), 1});
    points_.push_back(point);
    if (kept_.size() > kMaxKernels) thin();
  }

 private:
  // Of each space: a number of [0, 1], an index as axes_ says, or NaN: inactive.
  using Coordinates = std::vector<double>;

  struct Kept {
    std::size_t trial;
    float stands_for;  // so many trials
  };

  // --- spaces ---

  double coordinate(std::size_t d, double value) const {
    if (std::isnan(value)) return kAbsent;
    const Space& space = spaces_[d];
    if (space.kind() == Space::Kind::kContinuous) {
      return std::clamp((value - space.lower()) / space.length(), 0.0, 1.0);
    }
    const auto count = static_cast<double>(*space.count());
    const double index =
        std::clamp(std::round((value - space.lower()) / space.step()), 0.0, count - 1);
    return axes_[d].kind == TpeAxis::Kind::kInterval ? (index + 0.5) / count : index;
  }

  Coordinates point_of(const std::vector<double>& values) const {
    Coordinates point = values;
    activity_.mask(point);
    for (std::size_t d = 0; d < point.size(); ++d) point[d] = coordinate(d, point[d]);
    return point;
  }

  std::vector<double> values_of(const Coordinates& point) const {
    std::vector<double> values(point.size(), kAbsent);
    for (std::size_t d = 0; d < point.size(); ++d) {
      const Space& space = spaces_[d];
      if (std::isnan(point[d])) continue;
      if (space.kind() == Space::Kind::kContinuous) {
        values[d] =
            std::clamp(space.lower() + point[d] * space.length(), space.lower(), space.upper());
        continue;
      }
      const auto count = static_cast<double>(*space.count());
      const bool is_interval = axes_[d].kind == TpeAxis::Kind::kInterval;
      const double index =
          is_interval ? std::min(std::floor(point[d] * count), count - 1) : point[d];
      values[d] = space.at(static_cast<std::int64_t>(index));
    }
    return values;
  }

  // --- drawing ---

  // What is random in a suggestion depends on the seed and on its number only.
  void begin_suggestion(std::uint64_t id) {
    const std::array<std::uint32_t, 4> words = {
        static_cast<std::uint32_t>(options_.seed), static_cast<std::uint32_t>(options_.seed >> 32U),
        static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32U)};
    words_ = python_random(words);
    spare_normal_.reset();
  }

  double normal() {
    if (spare_normal_) {
      const double drawn = *spare_normal_;
      spare_normal_.reset();
      return drawn;
    }
    const double radius = std::sqrt(-2 * std::log(1 - draw_unit(words_)));
    const double angle = 2 * std::numbers::pi * draw_unit(words_);
    spare_normal_ = radius * std::sin(angle);
    return radius * std::cos(angle);
  }

  // Of a normal distribution, within [0, 1]; the mean is there as well.
  double truncated_normal(double mean, double width) {
    while (true) {
      const double drawn = mean + width * normal();
      if (drawn >= 0 && drawn <= 1) return drawn;
    }
  }

  double step_of(std::size_t d, double unit) const {
    if (axes_[d].kind == TpeAxis::Kind::kInterval) return unit;
    const auto count = static_cast<double>(axes_[d].count);
    return std::min(std::floor(unit * count), count - 1);
  }

  // `draw` gives the coordinate of an active space; spaces that others depend on come first.
  template <class Draw>
  Coordinates draw_point(const Draw& draw) {
    Coordinates point(spaces_.size(), kAbsent);
    for (const std::size_t d : activity_.order()) {
      if (activity_.is_active(d, point)) point[d] = draw(d);
    }
    return point;
  }

  Coordinates uniform_point() {
    return draw_point([this](std::size_t d) { return step_of(d, draw_unit(words_)); });
  }

  // From the kernel of a good trial, or from the prior.
  Coordinates candidate() {
    const auto kernels = static_cast<double>(good_trials_.size());
    const auto chosen =
        static_cast<std::size_t>(draw_unit(words_) * (kernels + options_.prior_weight));
    const Coordinates* const kernel =
        chosen < good_trials_.size() ? &points_[good_trials_[chosen]] : nullptr;
    return draw_point([&](std::size_t d) {
      const double mean = kernel != nullptr ? (*kernel)[d] : kAbsent;
      return axes_[d].kind == TpeAxis::Kind::kCategory ? draw_category(d, mean)
                                                       : draw_number(d, mean, kernel == nullptr);
    });
  }

  double draw_category(std::size_t d, double own) {
    const auto count = static_cast<double>(axes_[d].count);
    if (std::isnan(own)) return step_of(d, draw_unit(words_));
    const double floor = good_.category_floor();
    const double drawn = draw_unit(words_) * (1 + count * floor);
    return drawn < 1 ? own : step_of(d, (drawn - 1) / (count * floor));
  }

  double draw_number(std::size_t d, double mean, bool from_prior) {
    if (from_prior) return step_of(d, truncated_normal(0.5, 1));
    if (std::isnan(mean)) return step_of(d, draw_unit(words_));
    const bool is_interval = axes_[d].kind == TpeAxis::Kind::kInterval;
    const double center = is_interval ? mean : (mean + 0.5) / static_cast<double>(axes_[d].count);
    return step_of(d, truncated_normal(center, good_.width()));
  }

  // --- points given ---

  // NaN has no place in an order.
  static Coordinates comparable(Coordinates point) {
    for (double& x : point) {
      if (std::isnan(x)) x = -1;
    }
    return point;
  }

  bool is_given(const Coordinates& point) const {
    return is_finite_ && given_.contains(comparable(point));
  }

  void note(std::uint64_t id, Coordinates point) {
    if (is_finite_) given_.insert(comparable(point));
    pending_.insert_or_assign(id, std::move(point));
  }

  Coordinates fresh_point() {
    Coordinates point = uniform_point();
    for (int i = 0; i < kFreshDraws && is_given(point); ++i) point = uniform_point();
    return point;
  }

  // --- the model ---

  std::optional<Rank> rank_of(const Outcome& outcome) const {
    Rank rank{.trial = points_.size()};
    const bool has_value = !outcome.values.empty();
    if (has_value) rank.key = options_.maximize ? -outcome.values.front() : outcome.values.front();
    switch (outcome.state) {
      case TrialState::kOk: rank.class_of = Rank::Class::kFeasible; break;
      case TrialState::kPruned:
        rank.class_of = Rank::Class::kPruned;
        if (!has_value) rank.key = std::numeric_limits<double>::infinity();
        break;
      case TrialState::kFail:
        if (!options_.impute_failures) return std::nullopt;
        rank.class_of = Rank::Class::kFailed;
        return rank;
      case TrialState::kSkip: return std::nullopt;
    }
    if (outcome.violation > 0) {
      rank.class_of = Rank::Class::kInfeasible;
      rank.key = outcome.violation;
    }
    return rank;
  }

  // Which trials are good, and the widths of both mixtures.
  void split() {
    const auto ended = static_cast<double>(ranked_.size());
    const auto wanted = static_cast<std::size_t>(std::ceil(options_.gamma * ended));
    const std::size_t good = std::min(wanted, static_cast<std::size_t>(options_.max_good));
    good_trials_.clear();
    for (std::size_t i = 0; i < good; ++i) good_trials_.push_back(ranked_[i].trial);
    good_.shrink(0);
    good_.set_trials(good);
    for (const std::size_t trial : good_trials_) good_.push(points_[trial]);
    good_weights_.assign(good, 1.0F);

    for (const auto& [id, point] : pending_) {
      if (options_.constant_liar) bad_.push(point);
    }
    bad_.set_trials(points_.size() - good + bad_.size() - kept_.size());
    weigh_bad();
  }

  // Older trials weigh less; good ones nothing; running ones as new ones.
  void weigh_bad() {
    const auto all = static_cast<float>(points_.size());
    const auto newest = static_cast<float>(kFullWeight);
    const float rise = all > newest + 1 ? (1 - 1 / all) / (all - newest - 1) : 0.0F;
    bad_weights_.assign(bad_.size(), 1.0F);
    for (std::size_t k = 0; k < kept_.size(); ++k) {
      const auto age = static_cast<float>(points_.size() - kept_[k].trial);
      const float weight =
          age <= newest ? 1.0F : 1 / all + static_cast<float>(kept_[k].trial) * rise;
      bad_weights_[k] = weight * kept_[k].stands_for;
    }
    for (const std::size_t trial : good_trials_) {
      const auto found = std::lower_bound(
          kept_.begin(), kept_.end(), trial,
          [](const Kept& kept, std::size_t wanted) { return kept.trial < wanted; });
      if (found != kept_.end() && found->trial == trial) {
        bad_weights_[static_cast<std::size_t>(found - kept_.begin())] = 0;
      }
    }
  }

  Coordinates suggest() {
    split();
    Coordinates best;
    double best_score = -std::numeric_limits<double>::infinity();
    for (std::int64_t i = 0; i < options_.n_candidates; ++i) {
      Coordinates point = candidate();
      if (is_given(point)) continue;
      const double score =
          good_.log_density(point, good_weights_) - bad_.log_density(point, bad_weights_);
      if (!best.empty() && !(score > best_score)) continue;
      best = std::move(point);
      best_score = score;
    }
    bad_.shrink(kept_.size());  // without those of running trials
    return best.empty() ? fresh_point() : best;
  }

  void thin() {
    split();
    bad_.shrink(0);
    std::vector<Kept> rest;
    const std::size_t older = kept_.size() - kNewestKernels;
    bool drop = false;
    for (std::size_t k = 0; k < kept_.size(); ++k) {
      const bool is_good = bad_weights_[k] == 0;
      drop = k < older && !is_good && !drop;
      if (drop && !rest.empty()) {
        rest.back().stands_for += kept_[k].stands_for;
        continue;
      }
      rest.push_back(kept_[k]);
      bad_.push(points_[kept_[k].trial]);
    }
    kept_ = std::move(rest);
  }

  const TpeOptions options_;
  const std::vector<Space> spaces_;
  const Activity activity_;
  const std::vector<TpeAxis> axes_;
  const bool is_finite_;
  RandomWords words_;
  std::optional<double> spare_normal_ = std::nullopt;
  std::int64_t emitted_ = 0;
  std::map<std::uint64_t, Coordinates> pending_;  // in the order of ids
  std::set<Coordinates> given_;                   // of a finite search
  std::vector<Coordinates> points_;               // of the trials in the model, as they ended
  std::vector<Rank> ranked_;                      // the same, the best first
  std::vector<std::size_t> good_trials_;
  TpeKernels good_;
  std::vector<float> good_weights_;
  TpeKernels bad_;  // of kept_, and good ones with weight 0; running ones at the end
  std::vector<float> bad_weights_;
  std::vector<Kept> kept_;
};

Status check_tpe(const TpeOptions& options) {
  if (options.n_startup < 0) {
    return make_status(Code::kInvalid, "n_startup must not be negative: {}", options.n_startup);
  }
  if (options.n_candidates < 1 || options.n_candidates > 1'000'000) {
    return make_status(Code::kInvalid, "n_candidates must be 1 to 1000000: {}",
                       options.n_candidates);
  }
  if (!(options.gamma > 0 && options.gamma < 1)) {
    return make_status(Code::kInvalid, "gamma must be above 0 and below 1: {}", options.gamma);
  }
  if (options.max_good < 1) {
    return make_status(Code::kInvalid, "max_good must be 1 or more: {}", options.max_good);
  }
  if (!(options.prior_weight > 0) || !std::isfinite(options.prior_weight)) {
    return make_status(Code::kInvalid, "prior_weight must be positive and finite: {}",
                       options.prior_weight);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Algorithm>> make_tpe(SearchSpace space, const TpeOptions& options) {
  DIVISI_TRY(Activity activity, Activity::of(space));
  const Status checked = check_tpe(options);
  if (!checked.ok()) return failure(checked);
  return std::make_unique<Tpe>(std::move(space.spaces), std::move(activity), options);
}

}  // namespace divisi::tune
