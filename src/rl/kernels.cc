// Compiled once for each level: DIVISI_KERNELS names the namespace, the compiler's own macros say
// how wide the vectors are. No standard library here, see kernels.h.
#include "rl/kernels.h"

namespace divisi::rl::DIVISI_KERNELS {

namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kRows = 8;  // x 2 vectors: 16 of 32 registers hold sums, enough to hide the latency
constexpr const char* kName = "x86-64-v4";
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kRows = 6;  // x 2 vectors: 12 of 16 registers
constexpr const char* kName = "x86-64-v3";
#else
constexpr int kLanes = 4;
constexpr int kRows = 4;
constexpr const char* kName = "baseline";
#endif
constexpr int kVectors = 2;
constexpr int kColumns = kVectors * kLanes;
constexpr int kDepth = 256;  // rows of a panel: it stays in the first-level cache (32 KiB)

using Vector [[gnu::vector_size(kLanes * sizeof(float))]] = float;
using Unaligned
    [[gnu::vector_size(kLanes * sizeof(float)), gnu::aligned(alignof(float)), gnu::may_alias]] =
        float;
static_assert(sizeof(Unaligned) == sizeof(Vector) && alignof(Unaligned) == alignof(float));

inline Vector load(const float* p) {
  return *reinterpret_cast<const Unaligned*>(p);
}
inline void store(float* p, Vector v) {
  *reinterpret_cast<Unaligned*>(p) = v;
}

// tanh as a quotient of two polynomials (Eigen's coefficients), right to a few units in the last
// place; beyond the bound a float's tanh is 1.
inline float tanh_of(float value) {
  constexpr float kBound = 7.90531110763549805F;
  float x = value < -kBound ? -kBound : value;
  x = x > kBound ? kBound : x;
  const float x2 = x * x;
  float p = -2.76076847742355e-16F;
  p = p * x2 + 2.00018790482477e-13F;
  p = p * x2 - 8.60467152213735e-11F;
  p = p * x2 + 5.12229709037114e-08F;
  p = p * x2 + 1.48572235717979e-05F;
  p = p * x2 + 6.37261928875436e-04F;
  p = p * x2 + 4.89352455891786e-03F;
  float q = 1.19825839466702e-06F;
  q = q * x2 + 1.18534705686654e-04F;
  q = q * x2 + 2.26843463243900e-03F;
  q = q * x2 + 4.89352518554385e-03F;
  return x * p / q;
}

// Up to kColumns columns of b, side by side and filled up with zeros.
void pack(int depth, int columns, ConstMatrix b, float* panel) {
  for (int p = 0; p < depth; ++p) {
    const float* from = b.data + p * b.row;
    float* to = panel + p * kColumns;
    if (columns == kColumns && b.column == 1) {
      for (int v = 0; v < kVectors; ++v) store(to + v * kLanes, load(from + v * kLanes));
      continue;
    }
    for (int j = 0; j < columns; ++j) to[j] = from[j * b.column];
    for (int j = columns; j < kColumns; ++j) to[j] = 0.0F;
  }
}

using Quad [[gnu::vector_size(16)]] = float;
using UnalignedQuad [[gnu::vector_size(16), gnu::aligned(alignof(float)), gnu::may_alias]] = float;
static_assert(sizeof(UnalignedQuad) == sizeof(Quad) && alignof(UnalignedQuad) == alignof(float));

// As pack(), for a matrix that lies the other way round (b.row == 1): four by four.
void pack_transposed(int depth, int columns, ConstMatrix b, float* panel) {
  int j = 0;
  for (; j + 4 <= columns; j += 4) {
    const float* from = b.data + j * b.column;
    int p = 0;
    for (; p + 4 <= depth; p += 4) {
      const Quad r0 = *reinterpret_cast<const UnalignedQuad*>(from + p);
      const Quad r1 = *reinterpret_cast<const UnalignedQuad*>(from + p + b.column);
      const Quad r2 = *reinterpret_cast<const UnalignedQuad*>(from + p + 2 * b.column);
      const Quad r3 = *reinterpret_cast<const UnalignedQuad*>(from + p + 3 * b.column);
      const Quad low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
      const Quad high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
      const Quad low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
      const Quad high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
      float* to = panel + p * kColumns + j;
      *reinterpret_cast<UnalignedQuad*>(to) = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
      *reinterpret_cast<UnalignedQuad*>(to + kColumns) =
          __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
      *reinterpret_cast<UnalignedQuad*>(to + 2 * kColumns) =
          __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
      *reinterpret_cast<UnalignedQuad*>(to + 3 * kColumns) =
          __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
    }
    for (; p < depth; ++p) {
      for (int l = 0; l < 4; ++l) panel[p * kColumns + j + l] = from[p + l * b.column];
    }
  }
  for (; j < kColumns; ++j) {
    for (int p = 0; p < depth; ++p) {
      panel[p * kColumns + j] = j < columns ? b.data[j * b.column + p] : 0.0F;
    }
  }
}

// One tile of a product: `to` (rows x kColumns) = `from` + a * panel.
struct Tile {
  int depth;
  ConstMatrix a;
  const float* panel;
  std::ptrdiff_t panel_row;
  const float* from;
  std::ptrdiff_t from_row;  // 0: the same for every row, as a bias is
  float* to;
  std::ptrdiff_t to_row;
  bool relu;
};

template <int Rows>
void compute(const Tile& tile) {
  Vector acc[Rows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[i][v] = load(tile.from + i * tile.from_row + v * kLanes);
  }
  const float* panel = tile.panel;
  const float* a = tile.a.data;
  for (int p = 0; p < tile.depth; ++p) {
    Vector b[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) b[v] = load(panel + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const float value = a[i * tile.a.row];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[i][v] += value * b[v];
    }
    panel += tile.panel_row;
    a += tile.a.column;
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const Vector sum = acc[i][v];
      store(tile.to + i * tile.to_row + v * kLanes,
            tile.relu ? (sum > Vector{} ? sum : Vector{}) : sum);
    }
  }
}

void compute_rows(int rows, const Tile& tile) {
  switch (rows) {
    case 1: return compute<1>(tile);
    case 2: return compute<2>(tile);
    case 3: return compute<3>(tile);
    case 4: return compute<4>(tile);
    case 5: return compute<5>(tile);
    case 6: return compute<6>(tile);
    case 7: return compute<7>(tile);
    default: return compute<8>(tile);
  }
}

// What gemm() computes at a time: some rows of all of a with up to kColumns columns of b.
struct Stripe {
  int m;
  int n;  // length of c's rows
  int columns;
  int depth;
  ConstMatrix a;
  const float* panel;
  std::ptrdiff_t panel_row;
  const float* bias;  // nullptr: c has what came before
  float* c;
  Activation activation;
};

// A stripe narrower than the vectors goes through a buffer that is as wide.
void multiply(const Stripe& stripe) {
  alignas(64) float narrow[8 * kColumns];
  const bool whole = stripe.columns == kColumns;
  for (int i = 0; i < stripe.m; i += kRows) {
    const int rows = stripe.m - i < kRows ? stripe.m - i : kRows;
    float* c = stripe.c + static_cast<std::ptrdiff_t>(i) * stripe.n;
    Tile tile{.depth = stripe.depth,
              .a = {stripe.a.data + i * stripe.a.row, stripe.a.row, stripe.a.column},
              .panel = stripe.panel,
              .panel_row = stripe.panel_row,
              .from = stripe.bias != nullptr ? stripe.bias : c,
              .from_row = stripe.bias != nullptr ? 0 : stripe.n,
              .to = c,
              .to_row = stripe.n,
              .relu = stripe.activation == Activation::kRelu};
    if (!whole) {
      for (int r = 0; r < rows; ++r) {
        const float* from = tile.from + r * tile.from_row;
        for (int l = 0; l < kColumns; ++l) {
          narrow[r * kColumns + l] = l < stripe.columns ? from[l] : 0.0F;
        }
      }
      tile.from = tile.to = narrow;
      tile.from_row = tile.to_row = kColumns;
    }
    compute_rows(rows, tile);
    for (int r = 0; r < rows; ++r) {
      float* to = c + static_cast<std::ptrdiff_t>(r) * stripe.n;
      if (!whole) {
        for (int l = 0; l < stripe.columns; ++l) to[l] = narrow[r * kColumns + l];
      }
      if (stripe.activation == Activation::kTanh) {
        for (int l = 0; l < stripe.columns; ++l) to[l] = tanh_of(to[l]);
      }
    }
  }
}

// A panel of b stays in the cache while all rows of a pass by. Deep products go in pieces, and
// the sums wait in c meanwhile.
void gemm(int m, int n, int k, ConstMatrix a, ConstMatrix b, const float* bias,
          Activation activation, float* c) {
  alignas(64) float panel[kDepth * kColumns];
  static constexpr float kZeros[kColumns] = {};
  for (int j = 0; j < n; j += kColumns) {
    const int columns = n - j < kColumns ? n - j : kColumns;
    for (int p = 0; p < k; p += kDepth) {
      const int depth = k - p < kDepth ? k - p : kDepth;
      const ConstMatrix piece{b.data + p * b.row + j * b.column, b.row, b.column};
      // With so few rows packing would cost as much as computing.
      const bool as_it_lies = m <= kRows && columns == kColumns && b.column == 1;
      if (!as_it_lies && b.column != 1) {
        pack_transposed(depth, columns, piece, panel);
      } else if (!as_it_lies) {
        pack(depth, columns, piece, panel);
      }
      const float* first = bias != nullptr ? bias + j : kZeros;
      multiply({.m = m,
                .n = n,
                .columns = columns,
                .depth = depth,
                .a = {a.data + p * a.column, a.row, a.column},
                .panel = as_it_lies ? piece.data : panel,
                .panel_row = as_it_lies ? b.row : kColumns,
                .bias = p == 0 ? first : nullptr,
                .c = c + j,
                .activation = p + depth == k ? activation : Activation::kNone});
    }
  }
}

void column_sums(int rows, int columns, const float* matrix, float* sums) {
  for (int j = 0; j < columns; ++j) sums[j] = 0.0F;
  for (int i = 0; i < rows; ++i) {
    const float* row = matrix + static_cast<std::ptrdiff_t>(i) * columns;
    for (int j = 0; j < columns; ++j) sums[j] += row[j];
  }
}

void activation_backward(std::size_t size, Activation activation, const float* result,
                         float* gradient) {
  if (activation == Activation::kRelu) {
    for (std::size_t i = 0; i < size; ++i) gradient[i] = result[i] > 0.0F ? gradient[i] : 0.0F;
  } else if (activation == Activation::kTanh) {
    for (std::size_t i = 0; i < size; ++i) gradient[i] *= 1.0F - result[i] * result[i];
  }
}

void adam(std::size_t size, AdamStep step, const float* gradient, float* first, float* second,
          float* parameters) {
  const float keep1 = step.beta1;
  const float keep2 = step.beta2;
  const float take1 = 1.0F - keep1;
  const float take2 = 1.0F - keep2;
  for (std::size_t i = 0; i < size; ++i) {
    const float g = gradient[i];
    const float m = keep1 * first[i] + take1 * g;
    const float v = keep2 * second[i] + take2 * g * g;
    first[i] = m;
    second[i] = v;
    parameters[i] -= step.learning_rate * m / (__builtin_sqrtf(v) + step.epsilon);
  }
}

float sum_of_squares(std::size_t size, const float* values) {
  Vector sum{};
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const Vector v = load(values + i);
    sum += v * v;
  }
  float total = 0.0F;
  for (int lane = 0; lane < kLanes; ++lane) total += sum[lane];
  for (; i < size; ++i) total += values[i] * values[i];
  return total;
}

}  // namespace

extern const Kernels kTable;
// NOLINTBEGIN(misc-use-internal-linkage): env_kernels.cc has them
void cartpole(int n, CartPoleColumns state, const int* actions, float* observations, float* rewards,
              std::uint8_t* terminated);
void pendulum(int n, PendulumColumns state, const float* actions, float* observations,
              float* rewards);
unsigned largest_action(int n, const int* actions);
void count_steps(int n, std::int32_t limit, std::int32_t* steps, std::uint8_t* truncated);
// NOLINTEND(misc-use-internal-linkage)

const Kernels kTable = {.name = kName,
                        .gemm = gemm,
                        .column_sums = column_sums,
                        .activation_backward = activation_backward,
                        .adam = adam,
                        .sum_of_squares = sum_of_squares,
                        .cartpole = cartpole,
                        .pendulum = pendulum,
                        .largest_action = largest_action,
                        .count_steps = count_steps};

}  // namespace divisi::rl::DIVISI_KERNELS
