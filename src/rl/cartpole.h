// CartPole-v1: balance a pole on a cart by pushing it left (0) or right (1); 1 for each step.
#pragma once

#include "rl/env.h"

namespace divisi::rl {

// State and observation: position, speed, angle, angular speed.
class CartPole final : public VectorEnv {
 public:
  explicit CartPole(int n);

 private:
  void advance_discrete(std::span<const int> actions) override;
  void draw_state(int i, std::uint64_t& random) override;
  void observe(int i, std::span<float> observation) const override;
};

}  // namespace divisi::rl
