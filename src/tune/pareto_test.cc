// Fronts, crowding and hypervolume against slow obvious models.
#include "tune/pareto.h"

#include "divisi/error.h"

#include <gmock/gmock.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace divisi::tune {
namespace {

using ::testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> small_numbers(std::size_t n) {
  std::vector<double> numbers;
  for (std::size_t i = 0; i < n; ++i) numbers.push_back(*rc::gen::inRange(0, 6));
  return numbers;
}

std::vector<Judged> drawn_results(std::size_t objectives) {
  std::vector<Judged> results(static_cast<std::size_t>(*rc::gen::inRange(0, 25)));
  for (Judged& result : results) {
    result.values = small_numbers(objectives);
    result.violation = std::max(0, *rc::gen::inRange(-4, 3));
  }
  return results;
}

// The definition, word for word.
bool worse(const Judged& a, const Judged& b) {
  const bool a_holds = a.violation == 0;
  const bool b_holds = b.violation == 0;
  if (a_holds != b_holds) return b_holds;
  if (!a_holds) return a.violation > b.violation;
  bool larger = false;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    if (a.values[i] < b.values[i]) return false;
    larger = larger || a.values[i] > b.values[i];
  }
  return larger;
}

// Takes away the undominated ones, again and again.
std::vector<std::size_t> peeled(const std::vector<Judged>& results) {
  constexpr std::size_t kLeft = 1000;
  std::vector<std::size_t> numbers(results.size(), kLeft);
  for (std::size_t number = 0; number < results.size(); ++number) {
    std::vector<std::size_t> front;
    for (std::size_t i = 0; i < results.size(); ++i) {
      bool free = numbers[i] == kLeft;
      for (std::size_t j = 0; j < results.size(); ++j) {
        if (numbers[j] == kLeft && worse(results[i], results[j])) free = false;
      }
      if (free) front.push_back(i);
    }
    for (const std::size_t i : front) numbers[i] = number;
  }
  return numbers;
}

// Counts the unit cells of the lattice that some point dominates.
double counted_cells(const std::vector<std::vector<double>>& points,
                     const std::vector<double>& reference) {
  std::vector<double> cell(reference.size(), 0);
  double cells = 0;
  while (true) {
    cells += std::any_of(points.begin(), points.end(), [&](const std::vector<double>& point) {
      for (std::size_t i = 0; i < cell.size(); ++i) {
        if (cell[i] < point[i]) return false;
      }
      return true;
    });
    std::size_t i = 0;
    while (i < cell.size() && ++cell[i] >= reference[i]) cell[i++] = 0;
    if (i == cell.size()) return cells;
  }
}

TEST(ParetoTest, FrontNumbersAreThoseOfPeeling) {
  for (const std::size_t objectives : {1U, 2U, 3U, 4U}) {
    EXPECT_TRUE(rc::check([objectives] {
      const std::vector<Judged> results = drawn_results(objectives);
      RC_ASSERT(front_numbers(results) == peeled(results));
    }));
  }
}

TEST(ParetoTest, HypervolumeIsTheNumberOfCells) {
  for (const std::size_t objectives : {1U, 2U, 3U, 4U, 5U}) {
    EXPECT_TRUE(rc::check([objectives] {
      std::vector<std::vector<double>> points(static_cast<std::size_t>(*rc::gen::inRange(0, 9)));
      for (std::vector<double>& point : points) point = small_numbers(objectives);
      std::vector<double> reference = small_numbers(objectives);
      for (double& x : reference) x += 1;
      RC_ASSERT(hypervolume(points, reference) == counted_cells(points, reference));
    }));
  }
}

TEST(ParetoTest, TheFrontHoldsWhatNoResultDominates) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<Direction> directions = {Direction::kMinimize, Direction::kMaximize};
    ParetoFront front(directions);
    std::vector<Judged> results = drawn_results(2);
    for (std::size_t i = 0; i < results.size(); ++i) {
      results[i].violation = 0;
      front.insert(i, {results[i].values[0], -results[i].values[1]});
    }
    std::vector<std::size_t> expected;
    const std::vector<std::size_t> numbers = peeled(results);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (numbers[i] == 0) expected.push_back(i);
    }
    std::vector<std::size_t> members;
    for (const ParetoFront::Member& member : front.members()) members.push_back(member.id);
    RC_ASSERT(members == expected);
  }));
}

TEST(ParetoTest, InsertSaysWhetherTheResultIsAMember) {
  ParetoFront front({Direction::kMaximize, Direction::kMinimize});
  EXPECT_TRUE(front.insert(1, {5, 5}));
  EXPECT_TRUE(front.insert(2, {5, 5}));   // equal: neither dominates
  EXPECT_FALSE(front.insert(3, {4, 5}));  // dominated
  EXPECT_TRUE(front.insert(4, {9, 9}));
  EXPECT_EQ(front.members().size(), 3U);
  EXPECT_EQ(front.hypervolume({0, 10}), 5 * 5 + 4 * 1);
  EXPECT_TRUE(front.insert(5, {9, 5}));  // dominates all
  ASSERT_EQ(front.members().size(), 1U);
  EXPECT_EQ(front.members()[0].id, 5U);
  EXPECT_EQ(front.hypervolume({9, 10}), 0);
}

TEST(ParetoTest, WrongValuesAreRefused) {
  EXPECT_THROW(ParetoFront({}), UsageError);
  ParetoFront front({Direction::kMinimize, Direction::kMinimize});
  EXPECT_THROW(front.insert(1, {1}), UsageError);
  EXPECT_THROW(front.insert(1, {1, std::nan("")}), UsageError);
  EXPECT_THROW(front.insert(1, {1, kInfinity}), UsageError);
  EXPECT_THROW(front.hypervolume({1, 2, 3}), UsageError);
}

TEST(ParetoTest, CrowdingIsTheDistanceOfNeighboursInTheFront) {
  const std::vector<Judged> results = {
      {{0, 8}, 0}, {{1, 4}, 0}, {{3, 3}, 0}, {{4, 0}, 0}, {{5, 9}, 0}};
  const std::vector<std::size_t> fronts = front_numbers(results);
  EXPECT_THAT(fronts, ElementsAre(0, 0, 0, 0, 1));
  EXPECT_THAT(crowding_distances(results, fronts),
              ElementsAre(kInfinity, 3.0 / 4 + 5.0 / 8, 3.0 / 4 + 4.0 / 8, kInfinity, kInfinity));
}

}  // namespace
}  // namespace divisi::tune
