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

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));
typedef float Unaligned
    __attribute__((vector_size(kLanes * sizeof(float)), aligned(alignof(float)), may_alias));

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

// As pack(), for a matrix that lies the other way round: reads along its rows.
void pack_transposed(int depth, int columns, ConstMatrix b, float* panel) {
  for (int j = 0; j < columns; ++j) {
    const float* from = b.data + j * b.column;
    for (int p = 0; p < depth; ++p) panel[p * kColumns + j] = from[p];
  }
  for (int j = columns; j < kColumns; ++j) {
    for (int p = 0; p < depth; ++p) panel[p * kColumns + j] = 0.0F;
  }
}

// sums (Rows x kColumns) = what is there + a * panel.
template <int Rows>
inline void tile(int depth, ConstMatrix a, const float* panel, float* sums) {
  Vector acc[Rows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[i][v] = load(sums + i * kColumns + v * kLanes);
  }
  for (int p = 0; p < depth; ++p) {
    Vector b[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) b[v] = load(panel + p * kColumns + v * kLanes);
    const float* from = a.data + p * a.column;
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const float value = from[i * a.row];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[i][v] += value * b[v];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) store(sums + i * kColumns + v * kLanes, acc[i][v]);
  }
}

void tile_of(int rows, int depth, ConstMatrix a, const float* panel, float* sums) {
  switch (rows) {
    case 1: return tile<1>(depth, a, panel, sums);
    case 2: return tile<2>(depth, a, panel, sums);
    case 3: return tile<3>(depth, a, panel, sums);
    case 4: return tile<4>(depth, a, panel, sums);
    case 5: return tile<5>(depth, a, panel, sums);
    case 6: return tile<6>(depth, a, panel, sums);
    case 7: return tile<7>(depth, a, panel, sums);
    default: return tile<8>(depth, a, panel, sums);
  }
}

inline float activated(Activation activation, float value) {
  if (activation == Activation::kRelu) return value > 0.0F ? value : 0.0F;
  if (activation == Activation::kTanh) return tanh_of(value);
  return value;
}

void finish(int columns, Activation activation, const float* sums, float* to) {
  // A loop for each, so that each becomes vector code.
  if (activation == Activation::kRelu) {
    for (int j = 0; j < columns; ++j) to[j] = activated(Activation::kRelu, sums[j]);
  } else if (activation == Activation::kTanh) {
    for (int j = 0; j < columns; ++j) to[j] = activated(Activation::kTanh, sums[j]);
  } else {
    for (int j = 0; j < columns; ++j) to[j] = sums[j];
  }
}

// A panel of b stays in the cache while all rows of a pass by. Deep products go in pieces, and
// the sums wait in c meanwhile.
void gemm(int m, int n, int k, ConstMatrix a, ConstMatrix b, const float* bias,
          Activation activation, float* c) {
  alignas(64) float panel[kDepth * kColumns];
  alignas(64) float sums[8 * kColumns];
  for (int j = 0; j < n; j += kColumns) {
    const int columns = n - j < kColumns ? n - j : kColumns;
    for (int p = 0; p < k; p += kDepth) {
      const int depth = k - p < kDepth ? k - p : kDepth;
      const ConstMatrix piece{b.data + p * b.row + j * b.column, b.row, b.column};
      if (b.row == 1 && b.column != 1) {
        pack_transposed(depth, columns, piece, panel);
      } else {
        pack(depth, columns, piece, panel);
      }
      for (int i = 0; i < m; i += kRows) {
        const int rows = m - i < kRows ? m - i : kRows;
        float* to = c + static_cast<std::ptrdiff_t>(i) * n + j;
        for (int r = 0; r < rows; ++r) {
          float* sum = sums + r * kColumns;
          for (int l = 0; l < columns; ++l) {
            sum[l] = p > 0 ? to[static_cast<std::ptrdiff_t>(r) * n + l]
                           : (bias != nullptr ? bias[j + l] : 0.0F);
          }
          for (int l = columns; l < kColumns; ++l) sum[l] = 0.0F;
        }
        const ConstMatrix part{a.data + i * a.row + p * a.column, a.row, a.column};
        tile_of(rows, depth, part, panel, sums);
        const Activation last = p + depth == k ? activation : Activation::kNone;
        for (int r = 0; r < rows; ++r) {
          finish(columns, last, sums + r * kColumns, to + static_cast<std::ptrdiff_t>(r) * n);
        }
      }
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

extern const Kernels table;
void cartpole(int n, CartPoleColumns state, const int* actions, float* observations, float* rewards,
              std::uint8_t* terminated);
void pendulum(int n, PendulumColumns state, const float* actions, float* observations,
              float* rewards);

const Kernels table = {kName, gemm,           column_sums, activation_backward,
                       adam,  sum_of_squares, cartpole,    pendulum};

}  // namespace divisi::rl::DIVISI_KERNELS
