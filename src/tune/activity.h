// Which spaces of a search are active: the conditions, checked and in an order to follow.
#pragma once

#include "base/status.h"
#include "divisi/sampler.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace divisi::tune {

class Activity {
 public:
  // Fails for a place or an index that does not exist, a parent without alternatives, a circle.
  static Result<Activity> of(const SearchSpace& space);

  bool has_conditions() const { return !parents_.empty(); }
  // All places, parents before what depends on them; without conditions 0, 1, 2, ...
  const std::vector<std::size_t>& order() const { return order_; }
  // Whether the space depends on others.
  bool is_conditional(std::size_t d) const { return !rules_[d].empty(); }
  // Whether it is active beside these values, whose parents are drawn; those that are inactive have
  // NaN.
  bool is_active(std::size_t d, const std::vector<double>& values) const;
  // Puts NaN in the place of every inactive value.
  void mask(std::vector<double>& values) const;

  // A combination of the parents' alternatives. Of each space: the index of a parent, or one of
  // these.
  static constexpr std::int64_t kFree = -1;      // active, and no parent
  static constexpr std::int64_t kInactive = -2;  // has no value
  using Branch = std::vector<std::int64_t>;
  // All of them, in the order of their indices; one without conditions. Nothing if there are more
  // than kMaxBranches.
  static constexpr std::size_t kMaxBranches = 1'000'000;
  std::optional<std::vector<Branch>> branches() const;

 private:
  struct Rule {
    std::size_t parent;
    std::vector<bool> allowed;  // by index
  };

  Status sort();

  std::vector<std::vector<Rule>> rules_;  // of each space
  std::vector<std::size_t> order_;
  std::vector<std::size_t> parents_;  // each once, those that depend on others after them
  std::vector<std::int64_t> counts_;  // of alternatives, of each parent; 0 of other spaces
};

}  // namespace divisi::tune
