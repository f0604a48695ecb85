#include "rl/sum_tree.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

namespace divisi::rl {
namespace {

// Whole numbers: their sums are exact in doubles, so the slow model is exact as well.
struct Model {
  std::vector<double> values;

  double total() const { return std::accumulate(values.begin(), values.end(), 0.0); }
  std::size_t find(double position) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (position < values[i]) return i;
      position -= values[i];
    }
    return values.size();
  }
};

RC_GTEST_PROP(SumTreeTest, Finds_what_a_walk_over_all_numbers_finds, ()) {
  const auto size = *rc::gen::inRange<std::size_t>(1, 70);
  SumTree tree(size);
  Model model{std::vector<double>(size)};
  const auto changes = *rc::gen::container<std::vector<std::pair<std::size_t, int>>>(
      rc::gen::pair(rc::gen::inRange<std::size_t>(0, size), rc::gen::inRange(0, 20)));
  for (const auto& [i, value] : changes) {
    tree.set(i, value);
    model.values[i] = value;
    RC_ASSERT(tree[i] == value);
  }
  RC_ASSERT(tree.size() == size);
  RC_ASSERT(tree.total() == model.total());
  for (double position = 0; position < model.total(); position += 0.5) {
    RC_ASSERT(tree.find(position) == model.find(position));
  }
}

RC_GTEST_PROP(SumTreeTest, Never_finds_a_number_that_is_0_even_at_the_end, ()) {
  const auto values = *rc::gen::nonEmpty(rc::gen::container<std::vector<double>>(
      rc::gen::map(rc::gen::inRange(-40, 1000), [](int n) { return n < 0 ? 0.0 : n * 1e-3; })));
  SumTree tree(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) tree.set(i, values[i]);
  RC_PRE(tree.total() > 0);
  for (const double part : {0.0, 0.25, 0.5, 0.999999, 1.0, 1.0000001}) {
    const std::size_t found = tree.find(part * tree.total());
    RC_ASSERT(found < values.size());
    RC_ASSERT(values[found] > 0);
  }
}

TEST(SumTreeTest, One_number_is_enough) {
  SumTree tree(1);
  EXPECT_EQ(tree.total(), 0);
  EXPECT_EQ(tree.find(0), 0U);
  tree.set(0, 2.5);
  EXPECT_EQ(tree.total(), 2.5);
  EXPECT_EQ(tree.find(2.4), 0U);
}

TEST(SumTreeTest, Rounding_does_not_gather) {
  SumTree tree(3);
  for (int i = 0; i < 100'000; ++i) tree.set(static_cast<std::size_t>(i % 3), 0.1 * (i % 7));
  for (std::size_t i = 0; i < 3; ++i) tree.set(i, 0.0);
  EXPECT_EQ(tree.total(), 0.0);
}

}  // namespace
}  // namespace divisi::rl
