// DqnLearner: (double, dueling, n-step) deep Q-learning, from batches of transitions to weights.
//
//   DqnLearner learner(DqnOptions{}, seed);
//   auto result = learner.update(batch);
//   replay.update_priorities(result.td_errors);
//   task.emit("weights", learner.network().state());
//
// One object belongs to one thread. After the first update of a size nothing is allocated.
#pragma once

#include "rl/adam.h"
#include "rl/exploration.h"
#include "rl/network.h"
#include "rl/transition.h"

#include <cstdint>
#include <span>
#include <vector>

namespace divisi::rl {

struct DqnOptions {
  NetworkShape shape;
  double discount = 0.97;        // of one step; (0, 1]
  int nstep = 1;                 // for batches without discounts of their own
  bool double_q = true;          // the online network chooses the next action, the target rates it
  double learning_rate = 0.001;  // of Adam
  int target_update_freq = 100;  // updates between two copies to the target network
};

class DqnLearner {
 public:
  struct Result {
    double loss;       // mean of weight * td_error^2
    double mean_q;     // of the actions taken
    double grad_norm;  // of all gradients together
    // q - target of each row, without its weight. Valid until the next update.
    std::span<const float> td_errors;
  };

  // Throws UsageError for options out of range.
  DqnLearner(DqnOptions options, std::uint64_t seed);

  // One step of Adam. Throws UsageError for a batch whose vectors do not fit its size, and Error
  // ("loss is nan at train_iter 123") when the loss or the gradient is no number; the weights are
  // then as before.
  Result update(const TransitionBatch& batch);

  QNetwork& network() noexcept { return online_; }
  QNetwork& target_network() noexcept { return target_; }
  const DqnOptions& options() const noexcept { return options_; }
  std::int64_t train_iter() const noexcept { return train_iter_; }  // updates so far

  // Everything that the next update depends on: "online.", "target.", "optimizer." and
  // "train_iter". load_full() throws UsageError, and changes nothing, when they do not fit.
  StateDict full_state() const;
  void load_full(const StateDict& state);

 private:
  void check(const TransitionBatch& batch) const;
  void make_room(std::size_t rows);
  void evaluate(const TransitionBatch& batch);  // q_ and targets_

  const DqnOptions options_;
  QNetwork online_;
  QNetwork target_;
  Adam adam_;
  std::int64_t train_iter_ = 0;

  std::vector<float> both_;    // observations, then the next ones
  std::vector<float> q_;       // of both_
  std::vector<float> next_q_;  // of the target network
  std::vector<float> targets_;
  std::vector<float> td_errors_;
  std::vector<float> gradient_;
};

}  // namespace divisi::rl
