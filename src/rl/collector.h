// Collector: plays n environments with an epsilon-greedy network and keeps what happened.
#pragma once

#include "rl/env.h"
#include "rl/exploration.h"
#include "rl/network.h"
#include "rl/replay_server.h"
#include "rl/transition.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace divisi::rl {

struct CollectorOptions {
  int nstep = 1;
  double discount = 0.97;
  std::uint64_t seed = 0;
};

// One thread at a time.
class Collector {
 public:
  Collector(std::unique_ptr<VectorEnv> env, CollectorOptions options);

  // Steps all environments until there are at least `rows` transitions. The result is valid until
  // the next call.
  const TransitionBatch& collect(QNetwork& network, double eps, int rows);
  // What the last collect() took.
  const Collected& collected() const noexcept { return collected_; }

 private:
  void count(const EnvStep& step);

  std::unique_ptr<VectorEnv> env_;
  NStepBuilder builder_;
  Random random_;
  TransitionBatch batch_;
  Collected collected_;
  std::vector<int> actions_;
  std::vector<float> observations_;  // where the actions were taken: the environment moves on
  std::vector<double> returns_;      // of the episodes under way
};

// The returns of `episodes` episodes without exploration, as many at a time as there are
// environments. `stop` ends it early, with fewer.
std::vector<double> evaluate(VectorEnv& env, QNetwork& network, int episodes, std::uint64_t seed,
                             const std::function<bool()>& stop = {});

}  // namespace divisi::rl
