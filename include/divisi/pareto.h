// Results with several objectives: which are not dominated, and how much a set of them covers.
//
//   using namespace divisi::tune;
//   ParetoFront front({Direction::kMaximize, Direction::kMinimize});
//   front.insert(trial.id, {reward, seconds});
//   for (const ParetoFront::Member& member : front.members()) ...
//
// One result dominates another if it is nowhere worse and somewhere better.
#pragma once

#include "divisi/export.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace divisi::tune {

// Which values of an objective are better.
enum class Direction {
  kMinimize,  // smaller ones
  kMaximize,  // larger ones
};

// The results that no other one dominates. A plain value; not thread-safe.
class DIVISI_API ParetoFront {
 public:
  // A result of the front.
  struct Member {
    std::uint64_t id = 0;        // as inserted
    std::vector<double> values;  // as inserted
  };

  // At least one direction; otherwise UsageError.
  explicit ParetoFront(std::vector<Direction> directions);

  // Whether no member dominates the result. It is a member then, and those that it dominates are
  // not any more. Equal results are members side by side. Costs a comparison with every member.
  // Throws UsageError: another number of values than directions, a value that is not finite.
  bool insert(std::uint64_t id, std::vector<double> values);
  // In the order of insertion.
  const std::vector<Member>& members() const noexcept { return members_; }
  // The volume between the members and `reference`, a point that is worse; members that are not
  // better than it in every objective add nothing. Exact; n log n for two objectives, n^2 log n
  // for three, more for each further one. Throws UsageError: another number of values than
  // directions, a value that is not finite.
  double hypervolume(const std::vector<double>& reference) const;

 private:
  void check(const std::vector<double>& values) const;

  std::vector<Direction> directions_;
  std::vector<Member> members_;
};

}  // namespace divisi::tune
