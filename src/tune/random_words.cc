#include "tune/random_words.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>

namespace divisi::tune {
namespace {

// MT19937 (Matsumoto and Nishimura) with the seeding by an array.
class MersenneTwister {
 public:
  explicit MersenneTwister(std::span<const std::uint32_t> key) {
    seed(19650218U);
    std::size_t i = 1;
    std::size_t j = 0;
    for (std::size_t k = std::max(kWords, key.size()); k > 0; --k) {
      state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30U)) * 1664525U)) + key[j] +
                  static_cast<std::uint32_t>(j);
      advance(i);
      j = (j + 1) % key.size();
    }
    for (std::size_t k = kWords - 1; k > 0; --k) {
      state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30U)) * 1566083941U)) -
                  static_cast<std::uint32_t>(i);
      advance(i);
    }
    state_[0] = 0x80000000U;
  }

  std::uint32_t next() {
    if (place_ == kWords) refill();
    std::uint32_t y = state_[place_++];
    y ^= y >> 11U;
    y ^= (y << 7U) & 0x9d2c5680U;
    y ^= (y << 15U) & 0xefc60000U;
    return y ^ (y >> 18U);
  }

 private:
  static constexpr std::size_t kWords = 624;
  static constexpr std::size_t kMiddle = 397;

  void seed(std::uint32_t value) {
    state_[0] = value;
    for (std::size_t i = 1; i < kWords; ++i) {
      state_[i] =
          1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30U)) + static_cast<std::uint32_t>(i);
    }
  }

  void advance(std::size_t& i) {
    if (++i >= kWords) {
      state_[0] = state_[kWords - 1];
      i = 1;
    }
  }

  void refill() {
    for (std::size_t i = 0; i < kWords; ++i) {
      const std::uint32_t y = (state_[i] & 0x80000000U) | (state_[(i + 1) % kWords] & 0x7fffffffU);
      state_[i] = state_[(i + kMiddle) % kWords] ^ (y >> 1U) ^ ((y & 1U) != 0 ? 0x9908b0dfU : 0U);
    }
    place_ = 0;
  }

  std::array<std::uint32_t, kWords> state_{};
  std::size_t place_ = kWords;
};

}  // namespace

RandomWords python_random(std::span<const std::uint32_t> seed_words) {
  const std::array<std::uint32_t, 1> zero{0};
  auto generator = std::make_shared<MersenneTwister>(
      seed_words.empty() ? std::span<const std::uint32_t>(zero) : seed_words);
  return [generator] { return generator->next(); };
}

RandomWords python_random(std::uint64_t seed) {
  const std::array<std::uint32_t, 2> words{static_cast<std::uint32_t>(seed),
                                           static_cast<std::uint32_t>(seed >> 32U)};
  return python_random(std::span(words).first(words[1] == 0 ? 1 : 2));
}

RandomWords trial_words(std::uint64_t seed, std::uint64_t id) {
  const std::array<std::uint32_t, 4> words = {
      static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U),
      static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32U)};
  return python_random(words);
}

double draw_unit(const RandomWords& words) {
  const double high = words() >> 5U;
  const double low = words() >> 6U;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

std::int64_t draw_below(const RandomWords& words, std::int64_t n) {
  const auto limit = static_cast<std::uint64_t>(n);
  const auto bits = static_cast<int>(std::bit_width(limit));
  while (true) {
    std::uint64_t drawn = 0;
    if (bits <= 32) {
      drawn = words() >> (32 - bits);
    } else {
      drawn = words();
      drawn |= std::uint64_t{words() >> (64 - bits)} << 32U;
    }
    if (drawn < limit) return static_cast<std::int64_t>(drawn);
  }
}

}  // namespace divisi::tune
