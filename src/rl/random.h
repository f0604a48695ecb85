// Random numbers: small, fast, and the same on every machine for the same seed.
//
//   Random random(seed);
//   random.uniform();          // [0, 1)
//   random.below(6);           // 0 to 5
//
// Not for secrets. One object belongs to one thread.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace divisi::rl {

// Splitmix64: a whole generator in eight bytes, and the way to seed larger ones.
inline std::uint64_t splitmix64(std::uint64_t& state) noexcept {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The upper 53 bits as a number in [0, 1).
inline double unit_double(std::uint64_t bits) noexcept {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// xoshiro256++; usable with the distributions of <random>, whose results differ between libraries.
class Random {
 public:
  using result_type = std::uint64_t;

  explicit Random(std::uint64_t seed) noexcept {
    for (auto& word : state_) word = splitmix64(seed);
  }

  static constexpr result_type min() noexcept { return 0; }
  static constexpr result_type max() noexcept { return ~result_type{0}; }

  result_type operator()() noexcept {
    const std::uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  double uniform() noexcept { return unit_double((*this)()); }
  double uniform(double low, double high) noexcept { return low + (high - low) * uniform(); }

  // 0 to bound - 1. Takes the upper 32 bits times the bound: the bias is below bound / 2^32.
  std::uint32_t below(std::uint32_t bound) noexcept {
    return static_cast<std::uint32_t>((((*this)() >> 32) * bound) >> 32);
  }

  // Mean 0, deviation 1 (Box and Muller's, one of the two).
  double normal() noexcept {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  std::array<std::uint64_t, 4> state_{};
};

}  // namespace divisi::rl
