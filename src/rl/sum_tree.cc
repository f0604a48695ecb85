#include "rl/sum_tree.h"

#include <bit>

namespace divisi::rl {

SumTree::SumTree(std::size_t size)
    : size_(size), leaves_(std::bit_ceil(size)), nodes_(2 * leaves_, 0.0) {}

void SumTree::set(std::size_t i, double value) noexcept {
  std::size_t node = leaves_ + i;
  nodes_[node] = value;
  // Sums are made anew from both children, so that errors of rounding do not gather.
  for (node /= 2; node >= 1; node /= 2) nodes_[node] = nodes_[2 * node] + nodes_[2 * node + 1];
}

std::size_t SumTree::find(double position) const noexcept {
  std::size_t node = 1;
  while (node < leaves_) {
    const double left = nodes_[2 * node];
    node *= 2;
    if (position >= left && nodes_[node + 1] > 0) {
      position -= left;
      ++node;
    }
  }
  return node - leaves_;
}

}  // namespace divisi::rl
