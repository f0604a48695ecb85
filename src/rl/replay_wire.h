// Transitions as they travel between collector, replay and learner: one tensor a column.
//
// A row is one n-step transition: what was seen, what was done, the discounted sum of the rewards
// until `next_observation` was seen, whether the episode went on from there (1) or had ended (0),
// and the discount of the value of what follows.
#pragma once

#include "divisi/coder.h"
#include "divisi/fields.h"
#include "divisi/tensor.h"
#include "rl/transition.h"

#include <cstdint>
#include <span>
#include <string>

namespace divisi::rl {

struct Transitions {
  Tensor observation;       // float32 [rows, observation_size]
  Tensor action;            // int32 [rows]
  Tensor reward;            // float32 [rows]
  Tensor next_observation;  // float32 [rows, observation_size]
  Tensor not_done;          // float32 [rows]
  Tensor discount;          // float32 [rows]
};
DIVISI_FIELDS(Transitions, observation, action, reward, next_observation, not_done, discount)

// Rows drawn from a replay buffer.
struct Samples {
  Tensor observation;
  Tensor action;
  Tensor reward;
  Tensor next_observation;
  Tensor not_done;
  Tensor discount;
  Tensor index;   // int64 [rows]: which rows these are, for new priorities
  Tensor weight;  // float32 [rows]: importance, 1 for uniform sampling
};
DIVISI_FIELDS(Samples, observation, action, reward, next_observation, not_done, discount, index,
              weight)

// How many rows. Throws UsageError, naming the column, when they do not fit each other or the
// environment: they may come from a process of another version.
std::int64_t checked_rows(const Transitions& transitions, int observation_size, int action_count);
std::int64_t checked_rows(const Samples& samples, int observation_size, int action_count);

// Between these and what builders and learners use. A batch has `rows` of the samples, from
// `first`.
Transitions to_wire(const TransitionBatch& batch);
void to_batch(const Samples& samples, std::int64_t first, int rows, TransitionBatch& batch);

// A tensor whose elements the caller fills in.
template <class T>
Tensor empty_tensor(std::vector<std::int64_t> shape);

// The elements of a tensor that this process has just made.
template <class T>
std::span<T> fill(Tensor& tensor) {
  return {reinterpret_cast<T*>(tensor.data.mutable_data()), tensor.data.size() / sizeof(T)};
}

template <class T>
Tensor empty_tensor(std::vector<std::int64_t> shape) {
  std::size_t bytes = sizeof(T);
  for (const std::int64_t size : shape) bytes *= static_cast<std::size_t>(size);
  return {dtype_of<T>(), std::move(shape), Buffer(bytes)};
}

}  // namespace divisi::rl
