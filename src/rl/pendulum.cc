#include "rl/pendulum.h"

#include "rl/kernels.h"
#include "rl/random.h"

#include <cmath>
#include <numbers>

namespace divisi::rl {

Pendulum::Pendulum(int n)
    : VectorEnv({.name = "Pendulum-v1",
                 .observation_size = 3,
                 .state_size = 2,
                 .action_count = 0,
                 .action_size = 1,
                 .max_episode_steps = 200,
                 .action_bound = 2.0F},
                n) {}

// Never terminates: those flags stay as they were made.
void Pendulum::advance_continuous(std::span<const float> actions) {
  kernels().pendulum(size(), {column(0), column(1)}, actions.data(),
                     result().next_observations.data(), result().rewards.data());
}

void Pendulum::draw_state(int i, std::uint64_t& random) {
  column(0)[i] = (2.0 * unit_double(splitmix64(random)) - 1.0) * std::numbers::pi;
  column(1)[i] = 2.0 * unit_double(splitmix64(random)) - 1.0;
}

void Pendulum::observe(int i, std::span<float> observation) const {
  observation[0] = static_cast<float>(std::cos(column(0)[i]));
  observation[1] = static_cast<float>(std::sin(column(0)[i]));
  observation[2] = static_cast<float>(column(1)[i]);
}

}  // namespace divisi::rl
