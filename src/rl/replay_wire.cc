#include "rl/replay_wire.h"

#include "divisi/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace divisi::rl {

namespace {

void check(std::string_view name, const Tensor& column, DType dtype,
           const std::vector<std::int64_t>& shape) {
  if (column.dtype == dtype && column.shape == shape && column.is_consistent()) return;
  throw UsageError(
      fmt::format("transitions: '{}' is {} [{}], expected {} [{}]: does the sender "
                  "have the same environment and version?",
                  name, dtype_name(column.dtype), fmt::join(column.shape, ", "), dtype_name(dtype),
                  fmt::join(shape, ", ")));
}

template <class Columns>
std::int64_t check_columns(const Columns& columns, int observation_size, int action_count) {
  const std::int64_t rows = columns.reward.shape.empty() ? 0 : columns.reward.shape.front();
  check("reward", columns.reward, DType::kFloat32, {rows});
  check("observation", columns.observation, DType::kFloat32, {rows, observation_size});
  check("next_observation", columns.next_observation, DType::kFloat32, {rows, observation_size});
  check("action", columns.action, DType::kInt32, {rows});
  check("not_done", columns.not_done, DType::kFloat32, {rows});
  check("discount", columns.discount, DType::kFloat32, {rows});
  for (const std::int32_t action : columns.action.template view<std::int32_t>()) {
    if (action >= 0 && action < action_count) continue;
    throw UsageError(
        fmt::format("transitions: action {} is not one of 0 to {}: does the sender "
                    "have the same environment?",
                    action, action_count - 1));
  }
  return rows;
}

}  // namespace

std::int64_t checked_rows(const Transitions& transitions, int observation_size, int action_count) {
  return check_columns(transitions, observation_size, action_count);
}

std::int64_t checked_rows(const Samples& samples, int observation_size, int action_count) {
  const std::int64_t rows = check_columns(samples, observation_size, action_count);
  check("index", samples.index, DType::kInt64, {rows});
  check("weight", samples.weight, DType::kFloat32, {rows});
  return rows;
}

Transitions to_wire(const TransitionBatch& batch) {
  const std::int64_t rows = batch.size;
  const auto width = rows == 0 ? 0 : static_cast<std::int64_t>(batch.observations.size()) / rows;
  const auto floats = [](std::vector<std::int64_t> shape, const std::vector<float>& values) {
    return Tensor::copy_of<float>(std::move(shape), values);
  };
  return {.observation = floats({rows, width}, batch.observations),
          .action = Tensor::copy_of<std::int32_t>({rows}, batch.actions),
          .reward = floats({rows}, batch.rewards),
          .next_observation = floats({rows, width}, batch.next_observations),
          .not_done = floats({rows}, batch.not_done),
          .discount = floats({rows}, batch.discounts)};
}

void to_batch(const Samples& samples, std::int64_t first, int rows, TransitionBatch& batch) {
  const auto copy = [&]<class T>(const Tensor& from, std::vector<T>& to) {
    const std::int64_t width = from.shape.size() > 1 ? from.shape[1] : 1;
    const auto part = from.view<T>().subspan(static_cast<std::size_t>(first * width),
                                             static_cast<std::size_t>(rows * width));
    to.assign(part.begin(), part.end());
  };
  batch.size = rows;
  copy(samples.observation, batch.observations);
  copy(samples.action, batch.actions);
  copy(samples.reward, batch.rewards);
  copy(samples.next_observation, batch.next_observations);
  copy(samples.not_done, batch.not_done);
  copy(samples.discount, batch.discounts);
  copy(samples.weight, batch.weights);
}

}  // namespace divisi::rl
