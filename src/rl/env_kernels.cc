// The steps of the environments, once for each level like kernels.cc. Built without contraction
// to fused multiply-add, so that a trajectory is the same on every machine.
#include "rl/kernels.h"

#include <numbers>

namespace divisi::rl::DIVISI_KERNELS {

// NOLINTBEGIN(misc-use-internal-linkage): kernels.cc calls them
void cartpole(int n, CartPoleColumns state, const int* actions, float* observations, float* rewards,
              std::uint8_t* terminated);
void pendulum(int n, PendulumColumns state, const float* actions, float* observations,
              float* rewards);
unsigned largest_action(int n, const int* actions);
void count_steps(int n, std::int32_t limit, std::int32_t* steps, std::uint8_t* truncated);
// NOLINTEND(misc-use-internal-linkage)

namespace {

constexpr double kPi = std::numbers::pi;

struct SinCos {
  double sin;
  double cos;
};

// For |x| <= pi/4, with fdlibm's coefficients: right to 1e-16.
inline SinCos small_sin_cos(double x) {
  const double z = x * x;
  double s = 1.58969099521155010221e-10;
  s = s * z - 2.50507602534068634195e-08;
  s = s * z + 2.75573137070700676789e-06;
  s = s * z - 1.98412698298579493134e-04;
  s = s * z + 8.33333333332248946124e-03;
  s = s * z - 1.66666666666666324348e-01;
  double c = -1.13596475577881948265e-11;
  c = c * z + 2.08757232129817482790e-09;
  c = c * z - 2.75573143513906633035e-07;
  c = c * z + 2.48015872894767294178e-05;
  c = c * z - 1.38888888888741095749e-03;
  c = c * z + 4.16666666666666019037e-02;
  return {x + x * z * s, 1.0 - 0.5 * z + z * z * c};
}

// Adding and subtracting 1.5 * 2^52 rounds to an integer, whose low bits are then those of the
// sum: no level needs an instruction for it.
constexpr double kRound = 6755399441055744.0;

// The quarter turns are taken off in two parts, the first with few enough bits to be exact: right
// to 1e-13 for |x| <= kLarge.
constexpr double kLarge = 1e5;

inline SinCos sin_cos(double x) {
  const double shifted = x * (2.0 / kPi) + kRound;
  const double turns = shifted - kRound;
  const auto bits = static_cast<unsigned>(__builtin_bit_cast(std::uint64_t, shifted));
  const double rest = (x - turns * 1.57079632673412561417e+00) - turns * 6.07710050650619224932e-11;
  const SinCos part = small_sin_cos(rest);
  const double s = (bits & 1U) != 0 ? part.cos : part.sin;
  const double c = (bits & 1U) != 0 ? part.sin : part.cos;
  return {(bits & 2U) != 0 ? -s : s, ((bits + 1U) & 2U) != 0 ? -c : c};
}

inline double largest(int n, const double* values) {
  double most = 0.0;
  for (int i = 0; i < n; ++i) {
    const double value = __builtin_fabs(values[i]);
    most = value > most ? value : most;
  }
  return most;
}

constexpr double kQuarter = 0.78;  // below pi/4
constexpr double kGravity = 9.8;
constexpr double kMassPole = 0.1;
constexpr double kPerMass = 1.0 / (1.0 + kMassPole);  // times, not through: divisions are slow
constexpr double kLength = 0.5;                       // half the pole's
constexpr double kPoleMassLength = kMassPole * kLength;
constexpr double kForce = 10.0;
constexpr double kTau = 0.02;
constexpr double kXLimit = 2.4;
constexpr double kThetaLimit = 12.0 * 2.0 * kPi / 360.0;

template <bool AnyAngle>
inline void cartpole_step(int n, CartPoleColumns state, const int* __restrict actions,
                          float* __restrict observations, float* __restrict rewards,
                          std::uint8_t* __restrict terminated) {
  double* __restrict xs = state.x;
  double* __restrict x_dots = state.x_dot;
  double* __restrict thetas = state.theta;
  double* __restrict theta_dots = state.theta_dot;
  for (int i = 0; i < n; ++i) {
    double x = xs[i];
    double x_dot = x_dots[i];
    double theta = thetas[i];
    double theta_dot = theta_dots[i];
    SinCos angle = small_sin_cos(theta);
    if constexpr (AnyAngle) {
      if (__builtin_fabs(theta) > kQuarter) angle = {__builtin_sin(theta), __builtin_cos(theta)};
    }
    const double force = actions[i] != 0 ? kForce : -kForce;
    const double temp = (force + kPoleMassLength * (theta_dot * theta_dot) * angle.sin) * kPerMass;
    const double theta_acc =
        (kGravity * angle.sin - angle.cos * temp) /
        (kLength * (4.0 / 3.0 - (kMassPole * kPerMass) * (angle.cos * angle.cos)));
    const double x_acc = temp - (kPoleMassLength * kPerMass) * theta_acc * angle.cos;
    x += kTau * x_dot;
    x_dot += kTau * x_acc;
    theta += kTau * theta_dot;
    theta_dot += kTau * theta_acc;
    xs[i] = x;
    x_dots[i] = x_dot;
    thetas[i] = theta;
    theta_dots[i] = theta_dot;
    observations[4 * i] = static_cast<float>(x);
    observations[4 * i + 1] = static_cast<float>(x_dot);
    observations[4 * i + 2] = static_cast<float>(theta);
    observations[4 * i + 3] = static_cast<float>(theta_dot);
    rewards[i] = 1.0F;
    const bool out = (__builtin_fabs(x) > kXLimit) | (__builtin_fabs(theta) > kThetaLimit);
    terminated[i] = out ? 1 : 0;
  }
}

constexpr double kMaxSpeed = 8.0;
constexpr double kMaxTorque = 2.0;
constexpr double kStep = 0.05;

inline double clip(double value, double bound) {
  const double low = value < -bound ? -bound : value;
  return low > bound ? bound : low;
}

template <bool AnyAngle>
inline void pendulum_step(int n, PendulumColumns state, const float* __restrict actions,
                          float* __restrict observations, float* __restrict rewards) {
  double* __restrict thetas = state.theta;
  double* __restrict theta_dots = state.theta_dot;
  for (int i = 0; i < n; ++i) {
    const double theta = thetas[i];
    const double theta_dot = theta_dots[i];
    const double torque = clip(static_cast<double>(actions[i]), kMaxTorque);
    double from_top = 0;
    double sin_theta = 0;
    if constexpr (AnyAngle) {
      from_top = __builtin_remainder(theta, 2.0 * kPi);
      sin_theta = __builtin_sin(theta);
    } else {
      from_top = theta - ((theta * (0.5 / kPi) + kRound) - kRound) * (2.0 * kPi);
      sin_theta = sin_cos(theta).sin;
    }
    const double cost =
        from_top * from_top + 0.1 * (theta_dot * theta_dot) + 0.001 * (torque * torque);
    // 3g/2l and 3/ml^2 with g 10, m 1, l 1.
    const double speed = clip(theta_dot + (15.0 * sin_theta + 3.0 * torque) * kStep, kMaxSpeed);
    const double angle = theta + speed * kStep;
    thetas[i] = angle;
    theta_dots[i] = speed;
    SinCos seen{};
    if constexpr (AnyAngle) {
      seen = {__builtin_sin(angle), __builtin_cos(angle)};
    } else {
      seen = sin_cos(angle);
    }
    observations[3 * i] = static_cast<float>(seen.cos);
    observations[3 * i + 1] = static_cast<float>(seen.sin);
    observations[3 * i + 2] = static_cast<float>(speed);
    rewards[i] = static_cast<float>(-cost);
  }
}

}  // namespace

// An angle beyond the limits ends the episode, so only set_state() leads to the slow loop.
void cartpole(int n, CartPoleColumns state, const int* actions, float* observations, float* rewards,
              std::uint8_t* terminated) {
  if (largest(n, state.theta) <= kQuarter) {
    cartpole_step<false>(n, state, actions, observations, rewards, terminated);
  } else {
    cartpole_step<true>(n, state, actions, observations, rewards, terminated);
  }
}

void pendulum(int n, PendulumColumns state, const float* actions, float* observations,
              float* rewards) {
  if (largest(n, state.theta) <= kLarge) {
    pendulum_step<false>(n, state, actions, observations, rewards);
  } else {
    pendulum_step<true>(n, state, actions, observations, rewards);
  }
}

unsigned largest_action(int n, const int* actions) {
  unsigned most = 0;
  for (int i = 0; i < n; ++i) {
    const auto action = static_cast<unsigned>(actions[i]);
    most = action > most ? action : most;
  }
  return most;
}

void count_steps(int n, std::int32_t limit, std::int32_t* __restrict steps,
                 std::uint8_t* __restrict truncated) {
  for (int i = 0; i < n; ++i) {
    const std::int32_t taken = steps[i] + 1;
    steps[i] = taken;
    truncated[i] = taken >= limit ? 1 : 0;
  }
}

}  // namespace divisi::rl::DIVISI_KERNELS
