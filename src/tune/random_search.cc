// Uniform draws; in a finite search every point at most once.
#include "tune/activity.h"
#include "tune/algorithm.h"
#include "tune/random_words.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <unordered_set>

namespace divisi::tune {
namespace {

constexpr double kInactiveValue = std::numeric_limits<double>::quiet_NaN();

// How many ranks the points of a finite search have; nothing if a space is continuous, or if there
// are so many that drawing one twice is not a concern.
std::optional<std::uint64_t> number_of_ranks(const std::vector<Space>& spaces) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 62U;
  std::uint64_t total = 1;
  for (const Space& space : spaces) {
    if (!space.count()) return std::nullopt;
    const auto count = static_cast<std::uint64_t>(*space.count());
    if (total > kLimit / count) return std::nullopt;
    total *= count;
  }
  return total;
}

// The number of different points: of inactive spaces the rank has one value.
std::optional<std::uint64_t> number_of_points(
    const std::vector<Space>& spaces,
    const std::optional<std::vector<Activity::Branch>>& branches) {
  if (!number_of_ranks(spaces) || !branches) return std::nullopt;
  std::uint64_t total = 0;
  for (const Activity::Branch& branch : *branches) {
    std::uint64_t points = 1;
    for (std::size_t i = 0; i < spaces.size(); ++i) {
      if (branch[i] == Activity::kFree) points *= static_cast<std::uint64_t>(*spaces[i].count());
    }
    total += points;
  }
  return total;
}

class RandomSearch final : public Algorithm {
 public:
  RandomSearch(std::vector<Space> spaces, Activity activity, RandomOptions options)
      : spaces_(std::move(spaces)),
        activity_(std::move(activity)),
        options_(std::move(options)),
        branches_(activity_.branches()),
        total_(number_of_points(spaces_, branches_)) {
    if (!options_.words) {
      std::random_device device;
      options_.words = python_random((std::uint64_t{device()} << 32U) | device());
    }
  }

  std::optional<std::vector<double>> next(std::uint64_t) override {
    if (options_.max_steps && emitted_ >= *options_.max_steps) return std::nullopt;
    if (!total_) {
      ++emitted_;
      return draw();
    }
    // Near the end almost every draw would be one that was given: take from a list of the rest.
    if (!listed_ && *total_ - given_.size() <= *total_ / 10) list_rest();
    if (listed_ ? rest_.empty() : given_.size() == *total_) return std::nullopt;
    ++emitted_;
    if (listed_) {
      const std::uint64_t rank = rest_.back();
      rest_.pop_back();
      return point(rank);
    }
    while (true) {
      std::vector<double> values = draw();
      if (given_.insert(rank_).second) return values;
    }
  }

  void adopt(std::uint64_t id, const std::vector<double>& values, Origin origin) override {
    if (origin == Origin::kUser) {
      ++emitted_;
      if (total_) take(rank_of(values));
      return;
    }
    // Draws, so that the generator is where it was after this point was drawn.
    const std::optional<std::vector<double>> drawn = next(id);
    if (!total_ || !drawn || rank_of(*drawn) == rank_of(values)) return;
    give_back(rank_of(*drawn));  // another generator: what is taken is the point itself
    take(rank_of(values));
  }

  void finish(std::uint64_t, const Outcome&) override {}
  std::optional<std::size_t> objectives() const override { return std::nullopt; }

 private:
  // Leaves the number of the point, if the search is finite, in rank_.
  std::vector<double> draw() {
    std::vector<double> values(spaces_.size(), kInactiveValue);
    for (const std::size_t i : activity_.order()) {
      if (!activity_.is_active(i, values)) continue;
      const Space& space = spaces_[i];
      values[i] = space.kind() == Space::Kind::kContinuous
                      ? draw_unit(options_.words) * space.length() + space.lower()
                      : space.at(draw_below(options_.words, *space.count()));
    }
    if (total_) rank_ = rank_of(values);
    return values;
  }

  std::uint64_t rank_of(const std::vector<double>& values) const {
    std::uint64_t rank = 0;
    for (std::size_t i = 0; i < spaces_.size(); ++i) {
      const auto last = static_cast<double>(*spaces_[i].count() - 1);
      const bool has_index = spaces_[i].step() > 0 && !std::isnan(values[i]);
      const double index =
          has_index ? std::round((values[i] - spaces_[i].lower()) / spaces_[i].step()) : 0;
      rank = rank * static_cast<std::uint64_t>(*spaces_[i].count()) +
             static_cast<std::uint64_t>(std::clamp(index, 0.0, last));
    }
    return rank;
  }

  void take(std::uint64_t rank) {
    if (listed_) {
      std::erase(rest_, rank);
    } else {
      given_.insert(rank);
    }
  }

  void give_back(std::uint64_t rank) {
    if (listed_) {
      rest_.push_back(rank);
    } else {
      given_.erase(rank);
    }
  }

  std::vector<double> point(std::uint64_t rank) const {
    std::vector<double> values(spaces_.size());
    for (std::size_t i = spaces_.size(); i-- > 0;) {
      const auto count = static_cast<std::uint64_t>(*spaces_[i].count());
      values[i] = spaces_[i].at(static_cast<std::int64_t>(rank % count));
      rank /= count;
    }
    activity_.mask(values);
    return values;
  }

  // The ranks of a branch that were not given, in their order; `rank` is that of the first `d`
  // spaces.
  void list_rest_of(const Activity::Branch& branch, std::size_t d, std::uint64_t rank) {
    if (d == spaces_.size()) {
      if (!given_.contains(rank)) rest_.push_back(rank);
      return;
    }
    const auto count = static_cast<std::uint64_t>(*spaces_[d].count());
    if (branch[d] != Activity::kFree) {
      const std::int64_t index = std::max(branch[d], std::int64_t{0});
      list_rest_of(branch, d + 1, rank * count + static_cast<std::uint64_t>(index));
      return;
    }
    for (std::uint64_t i = 0; i < count; ++i) list_rest_of(branch, d + 1, rank * count + i);
  }

  void list_rest() {
    for (const Activity::Branch& branch : *branches_) list_rest_of(branch, 0, 0);
    for (std::size_t i = rest_.size(); i > 1; --i) {
      const std::int64_t other = draw_below(options_.words, static_cast<std::int64_t>(i));
      std::swap(rest_[i - 1], rest_[static_cast<std::size_t>(other)]);
    }
    given_.clear();
    listed_ = true;
  }

  std::vector<Space> spaces_;
  Activity activity_;
  RandomOptions options_;
  std::optional<std::vector<Activity::Branch>> branches_;
  std::optional<std::uint64_t> total_;
  std::int64_t emitted_ = 0;
  std::uint64_t rank_ = 0;
  std::unordered_set<std::uint64_t> given_;
  bool listed_ = false;              // from then on rest_ counts, before that given_
  std::vector<std::uint64_t> rest_;  // what was not given
};

}  // namespace

Result<std::unique_ptr<Algorithm>> make_random(SearchSpace space, RandomOptions options) {
  DIVISI_TRY(Activity activity, Activity::of(space));
  return std::make_unique<RandomSearch>(std::move(space.spaces), std::move(activity),
                                        std::move(options));
}

}  // namespace divisi::tune
