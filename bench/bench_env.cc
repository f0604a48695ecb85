// bench_env ENVS [SECONDS]
//
// Steps of CartPole-v1 in one thread, so many environments together, by actions that were drawn
// beforehand. Prints one JSON line: steps of single environments a second, and how long episodes
// were, which for random actions is 22 steps or so in every implementation.
#include "rl/env.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kRounds = 256;  // of actions, taken again and again
constexpr int kBetweenLooks = 64;     // steps between two looks at the clock

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<int> random_actions(std::size_t count) {
  std::mt19937 random(1);
  std::vector<int> actions(count);
  for (int& action : actions) action = static_cast<int>(random() & 1);
  return actions;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: bench_env ENVS [SECONDS]\n", stderr);
    return 2;
  }
  const int envs = std::atoi(argv[1]);
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1;
  const auto env = divisi::rl::make_env("CartPole-v1", envs, 1);
  const auto n = static_cast<std::size_t>(envs);
  const std::vector<int> actions = random_actions(kRounds * n);

  std::uint64_t rounds = 0;
  std::uint64_t episodes = 0;
  const auto run_for = [&](double limit) {
    rounds = episodes = 0;
    const auto begin = Clock::now();
    do {
      for (int i = 0; i < kBetweenLooks; ++i, ++rounds) {
        const auto& step = env->step(std::span(actions).subspan(rounds % kRounds * n, n));
        for (const auto ended : step.terminated) episodes += ended;
      }
    } while (seconds_since(begin) < limit);
    return seconds_since(begin);
  };
  run_for(seconds / 10);
  const double passed = run_for(seconds);

  const double steps = static_cast<double>(rounds) * envs;
  std::printf(
      "{\"steps_per_s\": %.0f, \"episode_steps\": %.2f, \"sent\": %.0f, \"received\": %.0f, "
      "\"disordered\": 0}\n",
      steps / passed, steps / static_cast<double>(episodes > 0 ? episodes : 1), steps, steps);
}
