// ReplayBuffer: the newest transitions, drawn at random for training.
//
// Uniform, or in proportion to a priority (the size of the last TD error, to the power of alpha;
// new rows get the largest so far), with importance weights that undo the bias.
//
// One thread at a time.
#pragma once

#include "rl/replay_wire.h"
#include "rl/sum_tree.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace divisi::rl {

struct ReplayOptions {
  std::int64_t capacity = 20'000;
  int observation_size = 4;
  int action_count = 2;
  bool prioritised = false;
  double alpha = 0.6;
  double beta = 0.4;
};

class ReplayBuffer {
 public:
  explicit ReplayBuffer(ReplayOptions options, std::uint64_t seed = 0);

  // Throws UsageError for columns that do not fit; then nothing was inserted.
  void insert(const Transitions& transitions);
  // Throws UsageError while the buffer is empty.
  Samples sample(int rows);
  // `errors` of the rows with these indexes; those that were overwritten meanwhile are skipped.
  void update_priorities(std::span<const std::int64_t> index, std::span<const float> errors);

  std::int64_t size() const noexcept;
  std::int64_t inserted() const noexcept { return inserted_; }  // since the beginning
  const ReplayOptions& options() const noexcept { return options_; }

  // Everything but the state of the random numbers. restore() throws UsageError for bytes of a
  // buffer with other options, or that are damaged.
  std::vector<std::byte> save() const;
  void restore(std::span<const std::byte> bytes);

 private:
  std::size_t slot_of(std::int64_t index) const noexcept;
  std::int64_t draw(std::int64_t row, std::int64_t rows);
  void set_priority(std::int64_t index, float priority);
  float weight_of(std::int64_t index) const;

  const ReplayOptions options_;
  const std::size_t width_;  // floats of a row
  // Row by row, so that drawing one costs one miss of the cache and not six.
  std::vector<float> rows_;
  std::vector<float> priorities_;  // by slot; empty unless prioritised
  SumTree tree_;
  float largest_priority_ = 1.0F;
  std::int64_t inserted_ = 0;
  std::mt19937_64 random_;
};

}  // namespace divisi::rl
