// A random forest over trials, and how much of its variance each variable explains alone.
//
// Trees are grown to their leaves on bootstrap samples; a split of numbers is at the middle between
// two of them, a split of categories parts them by their mean. The variance of a tree is that over
// the whole space, where every point is equally likely, not that over the trials.
#pragma once

#include "tune/random_words.h"

#include <cstddef>
#include <vector>

namespace divisi::tune {

// Trials by column.
struct TrialTable {
  // One per variable: places in the unit interval, or numbers of categories.
  std::vector<std::vector<double>> columns;
  std::vector<std::size_t> categories;  // how many each variable has; 0: it is a number
  std::vector<double> values;           // one per trial
};

// The share of each variable, a mean over the trees; all 0 if no tree has a split.
std::vector<double> forest_importance(const TrialTable& table, int trees, const RandomWords& words);

}  // namespace divisi::tune
