// Transitions as a learner takes them, and the builder that makes them of an environment's steps.
#pragma once

#include "rl/env.h"

#include <cstdint>
#include <span>
#include <vector>

namespace divisi::rl {

// `size` rows; every vector has them all, or is empty where that is allowed. Reused: clear()
// keeps the memory.
struct TransitionBatch {
  int size = 0;
  std::vector<float> observations;       // size x observation_size
  std::vector<std::int32_t> actions;     //
  std::vector<float> rewards;            // of n steps, discounted and summed
  std::vector<float> next_observations;  // n steps later
  std::vector<float> not_done;           // 0: the episode ended in a final state, nothing follows
  std::vector<float> discounts;          // for what follows, discount^n; empty: as the learner's
  std::vector<float> weights;            // importance; empty: 1

  void clear() noexcept;
};

// Turns the steps of n environments into n-step transitions.
//
//   builder.add(observations, actions, env.step(actions), batch);   // appends to the batch
//
// A transition is complete after nstep steps or at the end of its episode, whichever comes
// first, and then covers fewer. After a termination nothing is left to expect (not_done 0); a
// truncation only stopped watching (not_done 1), so the value of the last observation counts.
class NStepBuilder {
 public:
  NStepBuilder(int envs, int observation_size, int nstep, double discount);

  // `observations` are those the actions were taken at. Rows of `out` come in the order of the
  // environments, the oldest first.
  void add(std::span<const float> observations, std::span<const int> actions, const EnvStep& step,
           TransitionBatch& out);

  // Forgets unfinished transitions: after a reset().
  void clear() noexcept;

 private:
  // The last nstep steps of one environment, oldest at `first`.
  struct Pending {
    int first = 0;
    int count = 0;
  };

  std::size_t slot(int env, int position) const noexcept;
  void emit_oldest(int env, std::span<const float> next, bool terminated, TransitionBatch& out);

  const int envs_;
  const std::size_t observation_size_;
  const int nstep_;
  const double discount_;
  std::vector<Pending> pending_;
  std::vector<float> observations_;  // envs x nstep rows
  std::vector<std::int32_t> actions_;
  std::vector<float> rewards_;
};

}  // namespace divisi::rl
