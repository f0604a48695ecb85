#include "tune/forest.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace divisi::tune {
namespace {

constexpr int kDeepest = 64;          // levels of a tree: bounds the recursion
constexpr double kLeastGain = 1e-12;  // of a split, relative to the squares of all values

// The part of one variable that a node is for.
struct Side {
  double lower = 0;
  double upper = 1;
  std::vector<char> in;  // by category; empty: a number

  double share() const {
    if (in.empty()) return upper - lower;
    return static_cast<double>(std::count(in.begin(), in.end(), 1)) /
           static_cast<double>(in.size());
  }
};

using Box = std::vector<Side>;

struct Leaf {
  Box box;
  double value = 0;
  double volume = 1;
};

struct TreeSplit {
  double score = 0;  // 0: no split
  std::size_t variable = 0;
  double threshold = 0;         // of a number: left is what is not above
  std::vector<char> left = {};  // of categories
};

// Grows one tree after the other over the same trials.
class TreeGrower {
 public:
  explicit TreeGrower(const TrialTable& table)
      : table_(table), size_(table.values.size()), left_(size_), moved_(size_) {
    std::vector<std::uint32_t> all(size_);
    std::iota(all.begin(), all.end(), 0U);
    for (const std::vector<double>& column : table.columns) {
      sorted_.push_back(all);
      std::sort(sorted_.back().begin(), sorted_.back().end(),
                [&](std::uint32_t a, std::uint32_t b) {
                  return std::pair(column[a], a) < std::pair(column[b], b);
                });
    }
    const double squares =
        std::inner_product(table.values.begin(), table.values.end(), table.values.begin(), 0.0);
    least_gain_ = squares * kLeastGain;
  }

  const std::vector<Leaf>& grow(const RandomWords& words) {
    draw_sample(words);
    leaves_.clear();
    Box whole(table_.columns.size());
    for (std::size_t i = 0; i < whole.size(); ++i) whole[i].in.assign(table_.categories[i], 1);
    grow_node(0, size_, std::move(whole), 0);
    return leaves_;
  }

 private:
  // As many trials as there are, each drawn from all.
  void draw_sample(const RandomWords& words) {
    std::vector<std::uint32_t> drawn(size_);
    for (std::size_t i = 0; i < size_; ++i) {
      ++drawn[static_cast<std::size_t>(draw_below(words, static_cast<std::int64_t>(size_)))];
    }
    order_.assign(sorted_.size(), {});
    for (std::size_t variable = 0; variable < sorted_.size(); ++variable) {
      order_[variable].reserve(size_);
      for (const std::uint32_t trial : sorted_[variable]) {
        order_[variable].insert(order_[variable].end(), drawn[trial], trial);
      }
    }
  }

  void grow_node(std::size_t begin, std::size_t end, Box box, int depth) {
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += table_.values[order_[0][i]];
    const auto count = static_cast<double>(end - begin);
    TreeSplit best{.score = sum * sum / count + least_gain_};
    const double least = best.score;
    if (depth < kDeepest) {
      for (std::size_t variable = 0; variable < order_.size(); ++variable) {
        if (table_.categories[variable] == 0) {
          try_number(variable, begin, end, sum, best);
        } else {
          try_categories(variable, begin, end, sum, best);
        }
      }
    }
    if (!(best.score > least)) {
      double volume = 1;
      for (const Side& side : box) volume *= side.share();
      leaves_.push_back({std::move(box), sum / count, volume});
      return;
    }
    const std::size_t middle = partition(best, begin, end);
    Box right = box;
    cut(box[best.variable], right[best.variable], best);
    grow_node(begin, middle, std::move(box), depth + 1);
    grow_node(middle, end, std::move(right), depth + 1);
  }

  static double score_of(double left, double left_count, double sum, double count) {
    const double right = sum - left;
    return left * left / left_count + right * right / (count - left_count);
  }

  void try_number(std::size_t variable, std::size_t begin, std::size_t end, double sum,
                  TreeSplit& best) const {
    const std::vector<std::uint32_t>& order = order_[variable];
    const std::vector<double>& column = table_.columns[variable];
    const auto count = static_cast<double>(end - begin);
    double left = 0;
    for (std::size_t i = begin; i + 1 < end; ++i) {
      left += table_.values[order[i]];
      const double here = column[order[i]];
      const double next = column[order[i + 1]];
      if (!(here < next)) continue;
      const double score = score_of(left, static_cast<double>(i + 1 - begin), sum, count);
      if (score <= best.score) continue;
      // The middle of neighbouring numbers may be the upper one of them.
      const double middle = here + (next - here) / 2;
      best = {score, variable, middle < next ? middle : here, {}};
    }
  }

  void try_categories(std::size_t variable, std::size_t begin, std::size_t end, double sum,
                      TreeSplit& best) const {
    struct Group {
      std::size_t category = 0;
      double sum = 0;
      double count = 0;
    };
    std::vector<Group> groups;  // the trials are sorted by category
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t trial = order_[variable][i];
      const auto category = static_cast<std::size_t>(table_.columns[variable][trial]);
      if (groups.empty() || groups.back().category != category) groups.push_back({category, 0, 0});
      groups.back().sum += table_.values[trial];
      groups.back().count += 1;
    }
    std::sort(groups.begin(), groups.end(),
              [](const Group& a, const Group& b) { return a.sum / a.count < b.sum / b.count; });
    const auto count = static_cast<double>(end - begin);
    double left = 0;
    double left_count = 0;
    for (std::size_t i = 0; i + 1 < groups.size(); ++i) {
      left += groups[i].sum;
      left_count += groups[i].count;
      const double score = score_of(left, left_count, sum, count);
      if (score <= best.score) continue;
      // Categories that no trial of the node has go with the larger part.
      const bool others_left = left_count * 2 > count;
      best = {score, variable, 0,
              std::vector<char>(table_.categories[variable], others_left ? 1 : 0)};
      for (std::size_t j = 0; j < groups.size(); ++j)
        best.left[groups[j].category] = j <= i ? 1 : 0;
    }
  }

  bool goes_left(const TreeSplit& split, std::uint32_t trial) const {
    const double place = table_.columns[split.variable][trial];
    return split.left.empty() ? place <= split.threshold
                              : split.left[static_cast<std::size_t>(place)] != 0;
  }

  // Parts the range of every variable, each of which stays sorted.
  std::size_t partition(const TreeSplit& split, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      left_[order_[0][i]] = goes_left(split, order_[0][i]) ? 1 : 0;
    }
    std::size_t middle = begin;
    for (std::vector<std::uint32_t>& order : order_) {
      middle = begin;
      std::size_t right = 0;
      for (std::size_t i = begin; i < end; ++i) {
        const std::uint32_t trial = order[i];
        if (left_[trial] != 0) {
          order[middle++] = trial;
        } else {
          moved_[right++] = trial;
        }
      }
      std::copy_n(moved_.begin(), right, order.begin() + static_cast<std::ptrdiff_t>(middle));
    }
    return middle;
  }

  static void cut(Side& left, Side& right, const TreeSplit& split) {
    if (split.left.empty()) {
      left.upper = right.lower = split.threshold;
      return;
    }
    for (std::size_t i = 0; i < split.left.size(); ++i) {
      if (split.left[i] != 0) {
        right.in[i] = 0;
      } else {
        left.in[i] = 0;
      }
    }
  }

  const TrialTable& table_;
  const std::size_t size_;
  double least_gain_ = 0;
  std::vector<std::vector<std::uint32_t>> sorted_;  // all trials by each variable
  // Of the tree that grows: the trials of its sample by each variable; a node is a range of each.
  std::vector<std::vector<std::uint32_t>> order_;
  std::vector<char> left_;  // by trial: where a split sends it
  std::vector<std::uint32_t> moved_;
  std::vector<Leaf> leaves_;
};

// The mean of a tree where one variable is given and the others are not, as steps.
struct Steps {
  std::vector<double> heights;
  std::vector<double> widths;

  double variance(double mean) const {
    double sum = 0;
    for (std::size_t i = 0; i < heights.size(); ++i) {
      sum += widths[i] * (heights[i] - mean) * (heights[i] - mean);
    }
    return sum;
  }
};

Steps steps_of_categories(const std::vector<Leaf>& leaves, std::size_t variable) {
  const std::size_t count = leaves.front().box[variable].in.size();
  Steps steps{std::vector<double>(count),
              std::vector<double>(count, 1.0 / static_cast<double>(count))};
  for (const Leaf& leaf : leaves) {
    const Side& side = leaf.box[variable];
    const double share = side.share();
    for (std::size_t i = 0; i < count && share > 0; ++i) {
      if (side.in[i] != 0) steps.heights[i] += leaf.value * leaf.volume / share;
    }
  }
  return steps;
}

Steps steps_of_numbers(const std::vector<Leaf>& leaves, std::size_t variable) {
  std::vector<double> edges;
  for (const Leaf& leaf : leaves) edges.push_back(leaf.box[variable].lower);
  edges.push_back(1);
  std::ranges::sort(edges);
  const auto repeated = std::ranges::unique(edges);
  edges.erase(repeated.begin(), repeated.end());
  const auto place = [&](double edge) {
    return static_cast<std::size_t>(std::ranges::lower_bound(edges, edge) - edges.begin());
  };
  std::vector<double> changes(edges.size());
  for (const Leaf& leaf : leaves) {
    const Side& side = leaf.box[variable];
    if (!(side.share() > 0)) continue;
    const double height = leaf.value * leaf.volume / side.share();
    changes[place(side.lower)] += height;
    changes[place(side.upper)] -= height;
  }
  Steps steps;
  double height = 0;
  for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
    height += changes[i];
    steps.heights.push_back(height);
    steps.widths.push_back(edges[i + 1] - edges[i]);
  }
  return steps;
}

// Adds the shares of one tree.
void add_shares(const std::vector<Leaf>& leaves, std::vector<double>& shares) {
  double mean = 0;
  for (const Leaf& leaf : leaves) mean += leaf.volume * leaf.value;
  double total = 0;
  for (const Leaf& leaf : leaves) {
    total += leaf.volume * (leaf.value - mean) * (leaf.value - mean);
  }
  if (!(total > 0)) return;
  for (std::size_t variable = 0; variable < shares.size(); ++variable) {
    const bool number = leaves.front().box[variable].in.empty();
    const Steps steps =
        number ? steps_of_numbers(leaves, variable) : steps_of_categories(leaves, variable);
    shares[variable] += steps.variance(mean) / total;
  }
}

}  // namespace

std::vector<double> forest_importance(const TrialTable& table, int trees,
                                      const RandomWords& words) {
  std::vector<double> shares(table.columns.size());
  if (shares.empty()) return shares;
  TreeGrower grower(table);
  for (int i = 0; i < trees; ++i) add_shares(grower.grow(words), shares);
  for (double& share : shares) share /= trees;
  return shares;
}

}  // namespace divisi::tune
