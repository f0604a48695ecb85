#include "tune/activity.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace divisi::tune {
namespace {

Status check_condition(const SearchSpace& space, const Condition& condition) {
  const std::size_t size = space.spaces.size();
  for (const std::size_t place : {condition.dimension, condition.parent}) {
    if (place >= size) {
      return make_status(Code::kInvalid, "a condition names space {}, and there are {}: 0 to {}",
                         place, size, size - 1);
    }
  }
  const Space& parent = space.spaces[condition.parent];
  if (parent.kind() != Space::Kind::kFixed) {
    return make_status(Code::kInvalid,
                       "space {} depends on space {}, which is not one of alternatives (choice)",
                       condition.dimension, condition.parent);
  }
  if (condition.indices.empty()) {
    return make_status(Code::kInvalid,
                       "space {} depends on space {} and no alternative makes it active",
                       condition.dimension, condition.parent);
  }
  for (const std::int64_t index : condition.indices) {
    if (index >= 0 && index < *parent.count()) continue;
    return make_status(Code::kInvalid,
                       "space {} depends on alternative {} of space {}, which has 0 to {}",
                       condition.dimension, index, condition.parent, *parent.count() - 1);
  }
  return {};
}

}  // namespace

Result<Activity> Activity::of(const SearchSpace& space) {
  Activity made;
  made.rules_.resize(space.spaces.size());
  made.counts_.resize(space.spaces.size(), 0);
  for (const Condition& condition : space.conditions) {
    const Status checked = check_condition(space, condition);
    if (!checked.ok()) return failure(checked);
    const std::int64_t count = *space.spaces[condition.parent].count();
    made.counts_[condition.parent] = count;
    Rule rule{condition.parent, std::vector<bool>(static_cast<std::size_t>(count), false)};
    for (const std::int64_t index : condition.indices) {
      rule.allowed[static_cast<std::size_t>(index)] = true;
    }
    made.rules_[condition.dimension].push_back(std::move(rule));
  }
  const Status sorted = made.sort();
  if (!sorted.ok()) return failure(sorted);
  return made;
}

// Takes the first space whose parents are taken, again and again.
Status Activity::sort() {
  std::vector<bool> placed(rules_.size(), false);
  const auto is_ready = [&](std::size_t d) {
    return !placed[d] && std::all_of(rules_[d].begin(), rules_[d].end(),
                                     [&](const Rule& rule) { return placed[rule.parent]; });
  };
  std::size_t first = 0;  // everything before is placed
  while (order_.size() < rules_.size()) {
    while (placed[first]) ++first;
    std::size_t d = first;
    while (d < rules_.size() && !is_ready(d)) ++d;
    if (d == rules_.size()) {
      return make_status(Code::kInvalid, "space {} depends on itself, through its conditions",
                         first);
    }
    placed[d] = true;
    order_.push_back(d);
    if (counts_[d] > 0) parents_.push_back(d);
  }
  return {};
}

bool Activity::is_active(std::size_t d, const std::vector<double>& values) const {
  return std::all_of(rules_[d].begin(), rules_[d].end(), [&](const Rule& rule) {
    const double index = values[rule.parent];
    return index >= 0 && index < static_cast<double>(rule.allowed.size()) &&
           rule.allowed[static_cast<std::size_t>(index)];
  });
}

void Activity::mask(std::vector<double>& values) const {
  if (!has_conditions()) return;
  for (const std::size_t d : order_) {
    if (!is_active(d, values)) values[d] = std::numeric_limits<double>::quiet_NaN();
  }
}

std::optional<std::vector<Activity::Branch>> Activity::branches() const {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::vector<double>> partial(1, std::vector<double>(rules_.size(), kUnknown));
  for (const std::size_t parent : parents_) {
    std::vector<std::vector<double>> grown;
    for (std::vector<double>& values : partial) {
      if (!is_active(parent, values)) {
        grown.push_back(std::move(values));
        continue;
      }
      if (grown.size() + static_cast<std::size_t>(counts_[parent]) > kMaxBranches) {
        return std::nullopt;
      }
      for (std::int64_t index = 0; index < counts_[parent]; ++index) {
        grown.push_back(values);
        grown.back()[parent] = static_cast<double>(index);
      }
    }
    partial = std::move(grown);
  }
  std::vector<Branch> branches;
  branches.reserve(partial.size());
  for (const std::vector<double>& values : partial) {
    Branch& branch = branches.emplace_back(rules_.size(), kFree);
    for (std::size_t d = 0; d < rules_.size(); ++d) {
      if (counts_[d] > 0 && !std::isnan(values[d])) {
        branch[d] = static_cast<std::int64_t>(values[d]);
      } else if (!is_active(d, values)) {
        branch[d] = kInactive;
      }
    }
  }
  return branches;
}

}  // namespace divisi::tune
