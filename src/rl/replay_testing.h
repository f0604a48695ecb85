// Rows for tests of the replay: each tells its number in every column.
#pragma once

#include "rl/replay_wire.h"

#include <cstdint>
#include <vector>

namespace divisi::rl {

// Rows `first` to `first + count - 1`, with observations of `width` numbers and actions 0 or 1.
inline Transitions numbered_rows(std::int64_t first, int count, int width = 2) {
  TransitionBatch batch;
  batch.size = count;
  for (std::int64_t row = first; row < first + count; ++row) {
    const auto number = static_cast<float>(row);
    for (int i = 0; i < width; ++i) {
      batch.observations.push_back(number + 0.25F * static_cast<float>(i));
      batch.next_observations.push_back(number + 0.5F + 0.25F * static_cast<float>(i));
    }
    batch.actions.push_back(static_cast<std::int32_t>(row % 2));
    batch.rewards.push_back(2 * number);
    batch.not_done.push_back(row % 3 == 0 ? 0.0F : 1.0F);
    batch.discounts.push_back(0.5F + static_cast<float>(row % 5) / 10);
  }
  return to_wire(batch);
}

// True if row i of the samples is row `number` of numbered_rows, whole.
inline bool is_row(const Samples& samples, std::size_t i, std::int64_t number, int width = 2) {
  const Transitions expected = numbered_rows(number, 1, width);
  const auto same = [i](const Tensor& sample, const Tensor& one, auto type) {
    using T = decltype(type);
    const auto wanted = one.view<T>();
    const auto all = sample.view<T>();
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      if (all[i * wanted.size() + k] != wanted[k]) return false;
    }
    return true;
  };
  return same(samples.observation, expected.observation, float{}) &&
         same(samples.next_observation, expected.next_observation, float{}) &&
         same(samples.action, expected.action, std::int32_t{}) &&
         same(samples.reward, expected.reward, float{}) &&
         same(samples.not_done, expected.not_done, float{}) &&
         same(samples.discount, expected.discount, float{});
}

}  // namespace divisi::rl
