// Sobol points in the unit cube, scrambled.
#pragma once

#include "divisi/sampler.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace divisi::tune {

// Points that cover the cube evenly, whatever their number. Dimensions above kDimensions get
// independent random numbers.
class Sobol {
 public:
  static constexpr std::size_t kDimensions = 256;

  enum class Scramble {
    kShift,   // by a random number: exclusive or
    kMatrix,  // by a random lower triangular matrix over the bits as well
  };

  Sobol(std::size_t dimensions, RandomWords words, Scramble kind = Scramble::kShift);

  // The next point; each coordinate is in [0, 1).
  std::vector<double> next();

 private:
  static constexpr std::size_t kBits = 32;
  using Directions = std::array<std::uint32_t, kBits>;
  static Directions directions_of(std::size_t dimension);
  void scramble(Directions& directions);

  std::size_t dimensions_;
  RandomWords words_;
  std::vector<Directions> directions_;
  std::vector<std::uint32_t> state_;
  std::uint32_t drawn_ = 0;
};

}  // namespace divisi::tune
