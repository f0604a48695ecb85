#include "rl/cartpole.h"

#include "rl/kernels.h"
#include "rl/random.h"

namespace divisi::rl {

CartPole::CartPole(int n)
    : VectorEnv({.name = "CartPole-v1",
                 .observation_size = 4,
                 .state_size = 4,
                 .action_count = 2,
                 .action_size = 1,
                 .max_episode_steps = 500,
                 .action_bound = 1.0F},
                n) {}

void CartPole::advance_discrete(std::span<const int> actions) {
  kernels().cartpole(size(), {column(0), column(1), column(2), column(3)}, actions.data(),
                     result().next_observations.data(), result().rewards.data(),
                     result().terminated.data());
}

void CartPole::draw_state(int i, std::uint64_t& random) {
  for (int v = 0; v < 4; ++v) column(v)[i] = -0.05 + 0.1 * unit_double(splitmix64(random));
}

void CartPole::observe(int i, std::span<float> observation) const {
  for (int v = 0; v < 4; ++v) {
    observation[static_cast<std::size_t>(v)] = static_cast<float>(column(v)[i]);
  }
}

}  // namespace divisi::rl
