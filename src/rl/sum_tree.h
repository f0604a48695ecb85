// SumTree: numbers whose sum is known, so that one can be drawn with a probability in proportion.
#pragma once

#include <cstddef>
#include <vector>

namespace divisi::rl {

class SumTree {
 public:
  explicit SumTree(std::size_t size);

  std::size_t size() const noexcept { return size_; }
  double total() const noexcept { return nodes_[1]; }
  double operator[](std::size_t i) const noexcept { return nodes_[leaves_ + i]; }
  // `value` is 0 or more.
  void set(std::size_t i, double value) noexcept;
  // The element in which `position`, from 0 to total(), falls. Never one whose value is 0, unless
  // all are.
  std::size_t find(double position) const noexcept;

 private:
  std::size_t size_;
  std::size_t leaves_;         // a power of two
  std::vector<double> nodes_;  // 1 is the root; the children of i are 2i and 2i + 1
};

}  // namespace divisi::rl
