// Which algorithm for which search.
#include "base/status.h"
#include "divisi/sampler.h"
#include "tune/activity.h"

namespace divisi::tune {
namespace {

constexpr std::int64_t kModelSteps = 250;  // beyond, a Gaussian process costs more than it gains
constexpr std::size_t kModelSpaces = 20;
constexpr std::int64_t kModelAlternatives = 12;  // equal or not says little about one of many

// The trials that a grid over a finite search takes; nothing when that is more than `limit`.
std::optional<std::int64_t> grid_size(const SearchSpace& space, std::int64_t limit) {
  const Result<Activity> activity = Activity::of(space);
  if (!activity) return std::nullopt;
  const auto branches = activity->branches();
  if (!branches) return std::nullopt;
  std::int64_t total = 0;
  for (const Activity::Branch& branch : *branches) {
    std::int64_t points = 1;
    for (std::size_t d = 0; d < branch.size(); ++d) {
      if (branch[d] != Activity::kFree) continue;
      const std::optional<std::int64_t> count = space.spaces[d].count();
      if (!count || *count > limit / points) return std::nullopt;
      points *= *count;
    }
    total += points;
    if (total > limit) return std::nullopt;
  }
  return total;
}

}  // namespace

AlgorithmChoice choose_algorithm(const SearchSpace& space, std::optional<std::int64_t> max_steps) {
  if (max_steps) {
    if (const auto size = grid_size(space, *max_steps)) {
      return {"grid", fmt::format("all {} points fit into {} steps", *size, *max_steps)};
    }
  }
  const std::size_t spaces = space.spaces.size();
  if (!max_steps)
    return {"tpe", "there is no limit of steps, and its cost does not grow with them"};
  if (*max_steps > kModelSteps) {
    return {"tpe", fmt::format("{} steps are more than the {} that a Gaussian process is good for",
                               *max_steps, kModelSteps)};
  }
  if (spaces > kModelSpaces) {
    return {"tpe", fmt::format("{} variables are more than the {} that a Gaussian process is good "
                               "for",
                               spaces, kModelSpaces)};
  }
  for (const Space& one : space.spaces) {
    if (one.kind() == Space::Kind::kFixed && *one.count() > kModelAlternatives) {
      return {"tpe", fmt::format("a variable has {} alternatives", *one.count())};
    }
  }
  return {"bayes", fmt::format("{} steps and {} {}: a Gaussian process makes the most of each",
                               *max_steps, spaces, spaces == 1 ? "variable" : "variables")};
}

}  // namespace divisi::tune
