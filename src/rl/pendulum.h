// Pendulum-v1: swing a pendulum up and hold it there with a torque in [-2, 2].
#pragma once

#include "rl/env.h"

namespace divisi::rl {

// State: angle (0 is up) and angular speed. Observation: cosine, sine, angular speed.
class Pendulum final : public VectorEnv {
 public:
  explicit Pendulum(int n);

 private:
  void advance_continuous(std::span<const float> actions) override;
  void draw_state(int i, std::uint64_t& random) override;
  void observe(int i, std::span<float> observation) const override;
};

}  // namespace divisi::rl
