#include "rl/kernels.h"

#include "rl/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace divisi::rl {
namespace {

std::vector<float> random_numbers(std::size_t count, Random& random) {
  std::vector<float> numbers(count);
  for (float& number : numbers) number = static_cast<float>(random.uniform(-1.0, 1.0));
  return numbers;
}

struct Product {
  int m;
  int n;
  int k;
};

// Narrower and wider than vectors, panels and tiles of every level.
const std::vector<Product> kProducts = {{1, 1, 1},      {1, 64, 4},   {8, 128, 4},
                                        {9, 33, 17},    {64, 2, 64},  {13, 3, 300},
                                        {64, 128, 128}, {7, 47, 257}, {128, 64, 64}};

TEST(KernelsTest, Products_are_right_at_every_level) {
  Random random(1);
  for (const Kernels* level : runnable_kernels()) {
    for (const auto [m, n, k] : kProducts) {
      const auto size = [](int rows, int columns) {
        return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
      };
      const auto a = random_numbers(size(m, k), random);
      const auto b = random_numbers(size(k, n), random);
      const auto bias = random_numbers(size(1, n), random);
      for (const bool a_turned : {false, true}) {
        for (const bool b_turned : {false, true}) {
          const ConstMatrix left =
              a_turned ? ConstMatrix{a.data(), 1, m} : ConstMatrix{a.data(), k, 1};
          const ConstMatrix right =
              b_turned ? ConstMatrix{b.data(), 1, k} : ConstMatrix{b.data(), n, 1};
          for (const float* added : {bias.data(), static_cast<const float*>(nullptr)}) {
            for (const Activation activation :
                 {Activation::kNone, Activation::kRelu, Activation::kTanh}) {
              std::vector<float> c(size(m, n), NAN);
              level->gemm(m, n, k, left, right, added, activation, c.data());
              for (int i = 0; i < m; ++i) {
                for (int j = 0; j < n; ++j) {
                  double sum = added != nullptr ? static_cast<double>(added[j]) : 0.0;
                  for (int p = 0; p < k; ++p) {
                    sum += static_cast<double>(left.data[i * left.row + p * left.column]) *
                           static_cast<double>(right.data[p * right.row + j * right.column]);
                  }
                  if (activation == Activation::kRelu) sum = std::max(sum, 0.0);
                  if (activation == Activation::kTanh) sum = std::tanh(sum);
                  ASSERT_NEAR(static_cast<double>(c[static_cast<std::size_t>(i * n + j)]), sum,
                              1e-4)
                      << level->name << " " << m << "x" << n << "x" << k << " at " << i << ", "
                      << j;
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(KernelsTest, Small_loops_are_right_at_every_level) {
  Random random(2);
  for (const Kernels* level : runnable_kernels()) {
    SCOPED_TRACE(level->name);
    const auto matrix = random_numbers(5 * 37, random);
    std::vector<float> sums(37);
    level->column_sums(5, 37, matrix.data(), sums.data());
    double squares = 0.0;
    for (std::size_t j = 0; j < 37; ++j) {
      float sum = 0.0F;
      for (std::size_t i = 0; i < 5; ++i) sum += matrix[i * 37 + j];
      EXPECT_NEAR(sums[j], sum, 1e-6F);
    }
    for (const float value : matrix)
      squares += static_cast<double>(value) * static_cast<double>(value);
    EXPECT_NEAR(level->sum_of_squares(matrix.size(), matrix.data()), squares, 1e-4);

    std::vector<float> gradient(matrix.size(), 2.0F);
    level->activation_backward(gradient.size(), Activation::kRelu, matrix.data(), gradient.data());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      EXPECT_EQ(gradient[i], matrix[i] > 0.0F ? 2.0F : 0.0F);
    }
  }
}

// The same bits on every machine, or a seed means nothing.
TEST(KernelsTest, Environments_move_alike_at_every_level) {
  constexpr int kEnvs = 101;
  const auto run = [](const Kernels& level) {
    Random random(3);
    std::vector<double> states(6 * kEnvs);
    for (double& state : states) state = random.uniform(-0.2, 0.2);
    std::vector<int> choices(kEnvs);
    std::vector<float> torques(kEnvs);
    std::vector<float> observations(4 * kEnvs);
    std::vector<float> rewards(kEnvs);
    std::vector<std::uint8_t> terminated(kEnvs);
    double* at = states.data();
    for (int step = 0; step < 100; ++step) {
      for (int& choice : choices) choice = static_cast<int>(random.below(2));
      for (float& torque : torques) torque = static_cast<float>(random.uniform(-3.0, 3.0));
      level.cartpole(kEnvs, {at, at + kEnvs, at + 2 * kEnvs, at + 3 * kEnvs}, choices.data(),
                     observations.data(), rewards.data(), terminated.data());
      level.pendulum(kEnvs, {at + 4 * kEnvs, at + 5 * kEnvs}, torques.data(), observations.data(),
                     rewards.data());
    }
    return states;
  };
  const auto expected = run(*runnable_kernels().front());
  for (const Kernels* level : runnable_kernels()) {
    const auto states = run(*level);
    EXPECT_EQ(std::memcmp(states.data(), expected.data(), states.size() * sizeof(double)), 0)
        << level->name;
  }
}

// After one step from speed 0 the new speed tells the sine that was used.
TEST(KernelsTest, Sines_are_right_for_small_and_large_angles) {
  for (const Kernels* level : runnable_kernels()) {
    for (const double scale : {0.3, 0.78, 4.0, 100.0, 9e4, 1e7}) {
      for (int i = -50; i <= 50; ++i) {
        double theta = scale * i / 50.0;
        double speed = 0.0;
        const double before = theta;
        const float torque = 0.0F;
        float observation[3];
        float reward;
        level->pendulum(1, {&theta, &speed}, &torque, observation, &reward);
        ASSERT_NEAR(speed, 0.75 * std::sin(before), 1e-11) << level->name << " " << before;
        ASSERT_NEAR(observation[0], std::cos(theta), 1e-7);
        ASSERT_NEAR(observation[1], std::sin(theta), 1e-7);
      }
    }
  }
}

}  // namespace
}  // namespace divisi::rl
