// The grid: how many points each space gets, and their combinations in order.
#include "tune/activity.h"
#include "tune/algorithm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

namespace divisi::tune {
namespace {

using Counts = std::vector<std::int64_t>;

// More combinations than anybody can run; also keeps the product within 64 bits.
constexpr double kMaxCombinations = 1e15;
// Of one space, because they are kept: 8 bytes each.
constexpr std::int64_t kMaxPointsOfSpace = 10'000'000;

// Spaces in the order of allocation: alternatives, then points, those with few first, then
// intervals.
std::vector<std::size_t> allocation_order(const std::vector<Space>& spaces) {
  std::vector<std::size_t> order(spaces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    const Space& space = spaces[i];
    const std::int64_t count =
        space.kind() == Space::Kind::kSeparate ? space.count().value_or(0) : 0;
    return std::tuple(static_cast<int>(space.kind()), count, i);
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  return order;
}

// What a space's share is measured by. A single point has no length and takes no share.
double share_of(const Space& space, Allocation allocation) {
  if (space.kind() == Space::Kind::kFixed) return space.length();
  if (allocation == Allocation::kBalanced || space.length() == 0) return 1;
  return space.length();
}

double product(const Counts& counts) {
  double total = 1;
  for (const std::int64_t count : counts) total *= static_cast<double>(count);
  return total;
}

// Lowers the largest counts, of alternatives none, until the product is within the budget.
Status keep_budget(const std::vector<Space>& spaces, std::int64_t budget, Counts& counts) {
  double fixed = 1;
  for (const Space& space : spaces) {
    if (space.kind() == Space::Kind::kFixed) fixed *= space.length();
  }
  if (fixed > static_cast<double>(budget)) {
    return make_status(
        Code::kInvalid,
        "the alternatives alone make {:.0f} combinations and strict_budget allows {}: "
        "raise max_steps or drop alternatives",
        fixed, budget);
  }
  while (product(counts) > static_cast<double>(budget)) {
    std::size_t largest = spaces.size();
    for (std::size_t i = 0; i < spaces.size(); ++i) {
      if (spaces[i].kind() == Space::Kind::kFixed || counts[i] <= 1) continue;
      if (largest == spaces.size() || counts[i] > counts[largest]) largest = i;
    }
    --counts[largest];
  }
  return {};
}

// The points of each space, of which all combinations are taken.
using Block = std::vector<std::vector<double>>;

class Grid final : public Algorithm {
 public:
  explicit Grid(std::vector<Block> blocks) : blocks_(std::move(blocks)) { begin_block(); }

  std::optional<std::vector<double>> next(std::uint64_t) override {
    while (block_ < blocks_.size()) {
      const Block& block = blocks_[block_];
      std::vector<double> values(block.size());
      for (std::size_t i = 0; i < block.size(); ++i) values[i] = block[i][place_[i]];
      advance();
      if (adopted_.erase(comparable(values)) == 0) return values;
    }
    return std::nullopt;
  }

  void adopt(std::uint64_t, const std::vector<double>& values, Origin) override {
    adopted_.insert(comparable(values));
  }
  void finish(std::uint64_t, const Outcome&) override {}
  std::optional<std::size_t> objectives() const override { return std::nullopt; }

 private:
  // NaN, of inactive spaces, has no place in an order.
  static std::vector<double> comparable(std::vector<double> values) {
    for (double& value : values) {
      if (std::isnan(value)) value = -std::numeric_limits<double>::infinity();
    }
    return values;
  }

  // The first block from block_ on that has combinations.
  void begin_block() {
    const auto is_empty = [](const Block& block) {
      return std::any_of(block.begin(), block.end(),
                         [](const std::vector<double>& points) { return points.empty(); });
    };
    while (block_ < blocks_.size() && is_empty(blocks_[block_])) ++block_;
    if (block_ < blocks_.size()) place_.assign(blocks_[block_].size(), 0);
  }

  void advance() {
    const Block& block = blocks_[block_];
    for (std::size_t i = block.size(); i-- > 0;) {
      if (++place_[i] < block[i].size()) return;
      place_[i] = 0;
    }
    ++block_;
    begin_block();
  }

  std::vector<Block> blocks_;
  std::size_t block_ = 0;                  // of the next combination
  std::vector<std::size_t> place_;         // in it
  std::set<std::vector<double>> adopted_;  // which next() leaves out
};

// The grid of one branch: parents have their index, inactive spaces one value, that is none.
Result<Block> block_of(const std::vector<Space>& spaces, const Activity::Branch& branch,
                       const GridOptions& options) {
  std::vector<Space> free;
  for (std::size_t i = 0; i < spaces.size(); ++i) {
    if (branch[i] == Activity::kFree) free.push_back(spaces[i]);
  }
  DIVISI_TRY(const Counts counts, allocate_grid(free, options));
  Block block;
  std::size_t next = 0;
  for (std::size_t i = 0; i < spaces.size(); ++i) {
    if (branch[i] == Activity::kFree) {
      block.push_back(spaces[i].spread(counts[next++]));
    } else if (branch[i] == Activity::kInactive) {
      block.push_back({std::numeric_limits<double>::quiet_NaN()});
    } else {
      block.push_back({static_cast<double>(branch[i])});
    }
  }
  return block;
}

// The options of each of so many branches.
Result<GridOptions> shared(GridOptions options, std::size_t branches) {
  if (!options.max_steps || branches == 1) return options;
  const auto count = static_cast<std::int64_t>(branches);
  if (options.strict_budget && *options.max_steps < count) {
    return failure(Code::kInvalid,
                   "the alternatives that others depend on make {} combinations and strict_budget "
                   "allows {}: raise max_steps or drop alternatives",
                   count, *options.max_steps);
  }
  options.max_steps = std::max<std::int64_t>(*options.max_steps / count, 1);
  return options;
}

}  // namespace

Result<Counts> allocate_grid(const std::vector<Space>& spaces, const GridOptions& options) {
  const std::vector<std::size_t> order = allocation_order(spaces);
  if (!options.max_steps && !order.empty() &&
      spaces[order.back()].kind() == Space::Kind::kContinuous) {
    return failure(Code::kInvalid,
                   "a grid over a continuous space needs a number of steps: set max_steps");
  }
  double rest = options.max_steps ? static_cast<double>(*options.max_steps)
                                  : std::numeric_limits<double>::infinity();
  double left = 0;  // spaces that still want a share
  for (const Space& space : spaces) {
    rest /= share_of(space, options.allocation);
    if (space.kind() != Space::Kind::kFixed) left += 1;
  }
  Counts counts(spaces.size(), 0);
  for (const std::size_t i : order) {
    const Space& space = spaces[i];
    if (space.kind() == Space::Kind::kFixed) {
      counts[i] = *space.count();
      continue;
    }
    const double share = share_of(space, options.allocation);
    double wanted = std::max(share * std::pow(rest, 1 / left), 1.0);
    if (space.count()) wanted = std::min(wanted, static_cast<double>(*space.count()));
    wanted = std::nearbyint(std::min(wanted, kMaxCombinations));
    counts[i] = static_cast<std::int64_t>(wanted);
    left -= 1;
    rest /= wanted / share;
  }
  if (options.strict_budget && options.max_steps) {
    const Status kept = keep_budget(spaces, *options.max_steps, counts);
    if (!kept.ok()) return failure(kept);
  }
  if (product(counts) > kMaxCombinations) {
    return failure(Code::kInvalid, "this grid has {:.3g} combinations: set or lower max_steps",
                   product(counts));
  }
  const auto most = std::max_element(counts.begin(), counts.end());
  if (most != counts.end() && *most > kMaxPointsOfSpace) {
    return failure(Code::kInvalid,
                   "this grid has {} points of one space, more than {}: lower max_steps, or use "
                   "random or qmc",
                   *most, kMaxPointsOfSpace);
  }
  return counts;
}

Result<std::unique_ptr<Algorithm>> make_grid(const SearchSpace& space, const GridOptions& options) {
  DIVISI_TRY(const Activity activity, Activity::of(space));
  std::vector<Block> blocks;
  if (options.max_steps && *options.max_steps == 0) return std::make_unique<Grid>(blocks);
  const std::optional<std::vector<Activity::Branch>> branches = activity.branches();
  if (!branches) {
    return failure(Code::kInvalid,
                   "the alternatives that others depend on make more than {} combinations: a grid "
                   "is not for this search",
                   Activity::kMaxBranches);
  }
  DIVISI_TRY(const GridOptions of_branch, shared(options, branches->size()));
  for (const Activity::Branch& branch : *branches) {
    DIVISI_TRY(Block block, block_of(space.spaces, branch, of_branch));
    blocks.push_back(std::move(block));
  }
  return std::make_unique<Grid>(std::move(blocks));
}

}  // namespace divisi::tune
