// The loops that take the time, compiled once for each level of x86-64 (SSE2, AVX2, AVX-512).
//
//   kernels().gemm(...);   // of the best level this machine has
//
// Binaries travel between machines, so nothing else is built for a particular one. kernels.cc is
// compiled three times and defines nothing that the linker could take from one build for
// another: names of its own namespace only, no standard library, plain pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace divisi::rl {

enum class Activation : int { kNone, kRelu, kTanh };

// A matrix in memory: element (i, j) is data[i * row + j * column].
struct ConstMatrix {
  const float* data;
  std::ptrdiff_t row;
  std::ptrdiff_t column;
};

struct AdamStep {
  float learning_rate;  // with both bias corrections in it
  float beta1;
  float beta2;
  float epsilon;  // likewise
};

struct CartPoleColumns {
  double* x;
  double* x_dot;
  double* theta;
  double* theta_dot;
};

struct PendulumColumns {
  double* theta;
  double* theta_dot;
};

struct Kernels {
  const char* name;  // "x86-64-v3", ...

  // c (m x n, rows of length n) = activation(a (m x k) * b (k x n) + bias). No bias: nullptr.
  // Either the rows or the columns of b lie together.
  void (*gemm)(int m, int n, int k, ConstMatrix a, ConstMatrix b, const float* bias,
               Activation activation, float* c);
  // sums[j] = sum over the rows of matrix (rows x columns).
  void (*column_sums)(int rows, int columns, const float* matrix, float* sums);
  // gradient *= derivative of the activation, which is a function of its result.
  void (*activation_backward)(std::size_t size, Activation activation, const float* result,
                              float* gradient);
  void (*adam)(std::size_t size, AdamStep step, const float* gradient, float* first, float* second,
               float* parameters);
  float (*sum_of_squares)(std::size_t size, const float* values);

  // One step of n environments. Bit for bit the same at every level. `observations` has rows
  // of 4 and 3.
  void (*cartpole)(int n, CartPoleColumns state, const int* actions, float* observations,
                   float* rewards, std::uint8_t* terminated);
  void (*pendulum)(int n, PendulumColumns state, const float* actions, float* observations,
                   float* rewards);
  // The largest action; a negative one is larger than all others.
  unsigned (*largest_action)(int n, const int* actions);
  // Counts a step of each environment; truncated[i] = it was the last one.
  void (*count_steps)(int n, std::int32_t limit, std::int32_t* steps, std::uint8_t* truncated);
};

// Of the best level; chosen at the first call.
const Kernels& kernels() noexcept;

// Every level that this machine can run, the plain one first. For tests.
std::span<const Kernels* const> runnable_kernels() noexcept;

}  // namespace divisi::rl
