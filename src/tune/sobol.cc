#include "tune/sobol.h"

#include "tune/random_words.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>

namespace divisi::tune {
namespace {

// There are 336 primitive polynomials up to this degree, enough for Sobol::kDimensions.
constexpr std::size_t kMaxDegree = 11;

// Primitive polynomials and first direction numbers of Joe and Kuo (2008), from dimension 2 on.
struct Polynomial {
  std::uint32_t degree;
  std::uint32_t coefficients;  // without the first and the last, which are 1
  std::array<std::uint32_t, kMaxDegree> numbers;
};
constexpr std::size_t kTable = 20;
constexpr std::array<Polynomial, kTable> kPolynomials{{
    {1, 0, {1}},
    {2, 1, {1, 3}},
    {3, 1, {1, 3, 1}},
    {3, 2, {1, 1, 1}},
    {4, 1, {1, 1, 3, 3}},
    {4, 4, {1, 3, 5, 13}},
    {5, 2, {1, 1, 5, 5, 17}},
    {5, 4, {1, 1, 5, 5, 5}},
    {5, 7, {1, 1, 7, 11, 19}},
    {5, 11, {1, 1, 5, 1, 1}},
    {5, 13, {1, 1, 1, 3, 11}},
    {5, 14, {1, 3, 5, 5, 31}},
    {6, 1, {1, 3, 3, 9, 7, 49}},
    {6, 13, {1, 1, 1, 15, 21, 21}},
    {6, 16, {1, 3, 1, 13, 27, 49}},
    {6, 19, {1, 1, 1, 15, 7, 5}},
    {6, 22, {1, 3, 1, 15, 13, 25}},
    {6, 25, {1, 1, 5, 5, 19, 61}},
    {7, 1, {1, 3, 7, 11, 23, 15, 103}},
    {7, 4, {1, 3, 7, 13, 13, 15, 69}},
}};

constexpr std::size_t kBits = 32;
using Directions = std::array<std::uint32_t, kBits>;

Directions directions_by(const Polynomial& polynomial) {
  Directions v{};
  const std::size_t s = polynomial.degree;
  for (std::size_t i = 0; i < s; ++i) v[i] = polynomial.numbers[i] << (kBits - 1 - i);
  for (std::size_t i = s; i < kBits; ++i) {
    v[i] = v[i - s] ^ (v[i - s] >> s);
    for (std::size_t k = 1; k < s; ++k) {
      if (((polynomial.coefficients >> (s - 1 - k)) & 1U) != 0) v[i] ^= v[i - k];
    }
  }
  return v;
}

// --- dimensions behind the table ---

// Whether x generates all nonzero remainders: its order is 2^degree - 1.
bool is_primitive(std::uint32_t degree, std::uint32_t coefficients) {
  const std::uint32_t top = std::uint32_t{1} << degree;
  const std::uint32_t polynomial = top | coefficients << 1U | 1U;
  std::uint32_t power = 1;
  for (std::uint32_t k = 1; k < top; ++k) {
    power <<= 1U;
    if ((power & top) != 0) power ^= polynomial;
    if (power == 1) return k == top - 1;
  }
  return false;
}

// The next primitive polynomial after this one.
Polynomial next_polynomial(const Polynomial& last) {
  Polynomial next{.degree = last.degree, .coefficients = last.coefficients + 1, .numbers = {}};
  while (true) {
    const std::uint32_t end = std::uint32_t{1} << (next.degree - 1);
    for (; next.coefficients < end; ++next.coefficients) {
      if (is_primitive(next.degree, next.coefficients)) return next;
    }
    ++next.degree;
    next.coefficients = 0;
  }
}

// Which bit i of the index moves bit `row` of the coordinate, from the highest: a row of the
// generating matrix with `columns` columns.
std::uint32_t matrix_row(const Directions& directions, std::size_t row, std::size_t columns) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < columns; ++i) {
    bits |= (directions[i] >> (kBits - 1 - row) & 1U) << i;
  }
  return bits;
}

std::size_t rows_rank(std::vector<std::uint32_t> rows) {
  std::size_t rank = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::uint32_t pivot = rows[i];
    if (pivot == 0) continue;
    ++rank;
    const std::uint32_t lowest = pivot & (~pivot + 1);
    for (std::size_t k = i + 1; k < rows.size(); ++k) {
      if ((rows[k] & lowest) != 0) rows[k] ^= pivot;
    }
  }
  return rank;
}

// How unevenly the first 2^m points lie in the plane of two dimensions: over the ways to cut it
// into 2^m equal boxes, by how many halvings boxes stay empty.
std::size_t unevenness(const Directions& a, const Directions& b, std::size_t m) {
  std::size_t missing = 0;
  std::vector<std::uint32_t> rows;
  for (std::size_t of_a = 1; of_a < m; ++of_a) {
    rows.clear();
    for (std::size_t row = 0; row < of_a; ++row) rows.push_back(matrix_row(a, row, m));
    for (std::size_t row = 0; row < m - of_a; ++row) rows.push_back(matrix_row(b, row, m));
    missing += m - rows_rank(rows);
  }
  return missing;
}

// The directions of the dimensions behind the table, in their order. Any odd numbers make a
// dimension that is even by itself; of some tries the one is taken that fits best to the
// dimensions before it.
class FurtherDimensions {
 public:
  Directions at(std::size_t index) {
    const std::lock_guard lock(mutex_);
    while (made_.size() <= index) made_.push_back(make());
    return made_[index];
  }

 private:
  static constexpr int kTries = 24;
  static constexpr std::size_t kCompared = 24;  // dimensions before it
  static constexpr std::array<std::size_t, 3> kSizes{4, 6, 8};

  // A number of a fixed sequence (Marsaglia's xorshift).
  std::uint32_t draw() {
    random_ ^= random_ << 13U;
    random_ ^= random_ >> 17U;
    return random_ ^= random_ << 5U;
  }

  Directions before(std::size_t steps) const {
    if (steps <= made_.size()) return made_[made_.size() - steps];
    return directions_by(kPolynomials[kTable - (steps - made_.size())]);
  }

  Directions make() {
    last_ = next_polynomial(last_);
    Directions best{};
    std::size_t least = std::numeric_limits<std::size_t>::max();
    for (int i = 0; i < kTries; ++i) {
      for (std::uint32_t k = 0; k < last_.degree; ++k) {
        last_.numbers[k] = (draw() >> 8U) % (std::uint32_t{1} << k) * 2 + 1;
      }
      const Directions one = directions_by(last_);
      std::size_t uneven = 0;
      for (std::size_t steps = 1; steps <= std::min(kCompared, kTable + made_.size()); ++steps) {
        for (const std::size_t m : kSizes) uneven += unevenness(before(steps), one, m);
      }
      if (uneven >= least) continue;
      least = uneven;
      best = one;
    }
    return best;
  }

  std::mutex mutex_;
  std::vector<Directions> made_;
  Polynomial last_ = kPolynomials.back();
  std::uint32_t random_ = 2463534242U;
};

}  // namespace

Sobol::Directions Sobol::directions_of(std::size_t dimension) {
  if (dimension > kTable) {
    static FurtherDimensions further;
    return further.at(dimension - 1 - kTable);
  }
  if (dimension > 0) return directions_by(kPolynomials[dimension - 1]);
  Directions v{};
  for (std::size_t i = 0; i < kBits; ++i) v[i] = std::uint32_t{1} << (kBits - 1 - i);
  return v;
}

// Bit i of the result, from the highest, is the sum of bit i and of random ones of the bits above.
void Sobol::scramble(Directions& directions) {
  Directions rows{};
  for (std::size_t i = 0; i < kBits; ++i) {
    const auto own = std::uint32_t{1} << (kBits - 1 - i);
    const std::uint32_t above = i == 0 ? 0U : ~std::uint32_t{0} << (kBits - i);
    rows[i] = own | (words_() & above);
  }
  for (std::uint32_t& direction : directions) {
    std::uint32_t mixed = 0;
    for (std::size_t i = 0; i < kBits; ++i) {
      const auto parity = static_cast<std::uint32_t>(std::popcount(rows[i] & direction)) & 1U;
      mixed |= parity << (kBits - 1 - i);
    }
    direction = mixed;
  }
}

Sobol::Sobol(std::size_t dimensions, RandomWords words, Scramble kind)
    : dimensions_(dimensions), words_(std::move(words)) {
  const std::size_t tabled = std::min(dimensions, kDimensions);
  for (std::size_t i = 0; i < tabled; ++i) {
    directions_.push_back(directions_of(i));
    if (kind == Scramble::kMatrix) scramble(directions_.back());
    state_.push_back(words_());  // the shift
  }
}

std::vector<double> Sobol::next() {
  std::vector<double> point(dimensions_);
  for (std::size_t i = 0; i < dimensions_; ++i) {
    point[i] =
        i < state_.size() ? static_cast<double>(state_[i]) / 4294967296.0 : draw_unit(words_);
  }
  // Gray code: one bit changes from point to point. After 2^32 points it starts over.
  const auto bit = static_cast<std::size_t>(std::countr_one(drawn_++));
  for (std::size_t i = 0; i < state_.size() && bit < kBits; ++i) state_[i] ^= directions_[i][bit];
  return point;
}

}  // namespace divisi::tune
