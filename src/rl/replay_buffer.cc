#include "rl/replay_buffer.h"

#include "divisi/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace divisi::rl {

namespace {

constexpr std::size_t kScalars = 4;         // action, reward, not_done, discount
constexpr float kSmallestPriority = 1e-3F;  // so that every row is drawn again some time
constexpr std::uint64_t kFormat = 0x3130'5950'4552'5644;  // "DVREPY01"

struct Header {
  std::uint64_t format = kFormat;
  std::int64_t capacity = 0;
  std::int64_t observation_size = 0;
  std::int64_t inserted = 0;
  std::int64_t size = 0;
  std::int64_t prioritised = 0;
  double largest_priority = 1;
};

template <class T>
void append(std::vector<std::byte>& bytes, const T* values, std::size_t count) {
  const auto* const begin = reinterpret_cast<const std::byte*>(values);
  bytes.insert(bytes.end(), begin, begin + count * sizeof(T));
}

}  // namespace

ReplayBuffer::ReplayBuffer(ReplayOptions options, std::uint64_t seed)
    : options_(options),
      width_(2 * static_cast<std::size_t>(options.observation_size) + kScalars),
      tree_(options.prioritised ? static_cast<std::size_t>(options.capacity) : 1),
      random_(seed) {
  if (options.capacity < 1) {
    throw UsageError(fmt::format("a replay buffer of {} rows: at least 1", options.capacity));
  }
  rows_.resize(static_cast<std::size_t>(options.capacity) * width_);
  if (options.prioritised) priorities_.resize(static_cast<std::size_t>(options.capacity));
}

std::int64_t ReplayBuffer::size() const noexcept {
  return std::min(inserted_, options_.capacity);
}

std::size_t ReplayBuffer::slot_of(std::int64_t index) const noexcept {
  return static_cast<std::size_t>(index % options_.capacity);
}

void ReplayBuffer::insert(const Transitions& transitions) {
  const std::int64_t count =
      checked_rows(transitions, options_.observation_size, options_.action_count);
  const auto observations = transitions.observation.view<float>();
  const auto next_observations = transitions.next_observation.view<float>();
  const auto actions = transitions.action.view<std::int32_t>();
  const auto rewards = transitions.reward.view<float>();
  const auto not_done = transitions.not_done.view<float>();
  const auto discounts = transitions.discount.view<float>();
  const auto n = static_cast<std::size_t>(options_.observation_size);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    float* row = rows_.data() + slot_of(inserted_) * width_;
    row = std::copy_n(observations.data() + i * n, n, row);
    row = std::copy_n(next_observations.data() + i * n, n, row);
    row[0] = std::bit_cast<float>(actions[i]);
    row[1] = rewards[i];
    row[2] = not_done[i];
    row[3] = discounts[i];
    if (options_.prioritised) set_priority(inserted_, largest_priority_);
    ++inserted_;
  }
}

std::int64_t ReplayBuffer::draw(std::int64_t row, std::int64_t rows) {
  const std::int64_t oldest = inserted_ - size();
  if (!options_.prioritised) {
    return std::uniform_int_distribution<std::int64_t>(oldest, inserted_ - 1)(random_);
  }
  // One from each of `rows` equal parts of the sum: the same expectation, less variance.
  const double part = tree_.total() / static_cast<double>(rows);
  const double inside = std::uniform_real_distribution<double>(0, 1)(random_);
  const auto slot =
      static_cast<std::int64_t>(tree_.find((static_cast<double>(row) + inside) * part));
  // The one index in [oldest, inserted_) that lives in this slot.
  const std::int64_t ahead = (slot - oldest % options_.capacity + options_.capacity);
  return oldest + ahead % options_.capacity;
}

float ReplayBuffer::weight_of(std::int64_t index) const {
  if (!options_.prioritised) return 1.0F;
  const double probability = tree_[slot_of(index)] / tree_.total();
  return static_cast<float>(std::pow(static_cast<double>(size()) * probability, -options_.beta));
}

Samples ReplayBuffer::sample(int rows) {
  if (size() == 0) throw UsageError("sampling from an empty replay buffer");
  const auto n = static_cast<std::size_t>(options_.observation_size);
  Samples samples{.observation = empty_tensor<float>({rows, options_.observation_size}),
                  .action = empty_tensor<std::int32_t>({rows}),
                  .reward = empty_tensor<float>({rows}),
                  .next_observation = empty_tensor<float>({rows, options_.observation_size}),
                  .not_done = empty_tensor<float>({rows}),
                  .discount = empty_tensor<float>({rows}),
                  .index = empty_tensor<std::int64_t>({rows}),
                  .weight = empty_tensor<float>({rows})};
  float* observation = fill<float>(samples.observation).data();
  float* next_observation = fill<float>(samples.next_observation).data();
  const auto actions = fill<std::int32_t>(samples.action);
  const auto rewards = fill<float>(samples.reward);
  const auto not_done = fill<float>(samples.not_done);
  const auto discounts = fill<float>(samples.discount);
  const auto indexes = fill<std::int64_t>(samples.index);
  const auto weights = fill<float>(samples.weight);
  float largest_weight = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i) {
    indexes[i] = draw(static_cast<std::int64_t>(i), rows);
    const float* row = rows_.data() + slot_of(indexes[i]) * width_;
    observation = std::copy_n(row, n, observation);
    next_observation = std::copy_n(row + n, n, next_observation);
    row += 2 * n;
    actions[i] = std::bit_cast<std::int32_t>(row[0]);
    rewards[i] = row[1];
    not_done[i] = row[2];
    discounts[i] = row[3];
    weights[i] = weight_of(indexes[i]);
    largest_weight = std::max(largest_weight, weights[i]);
  }
  for (float& weight : weights) weight /= largest_weight;
  return samples;
}

void ReplayBuffer::set_priority(std::int64_t index, float priority) {
  priorities_[slot_of(index)] = priority;
  tree_.set(slot_of(index), std::pow(static_cast<double>(priority), options_.alpha));
}

void ReplayBuffer::update_priorities(std::span<const std::int64_t> index,
                                     std::span<const float> errors) {
  if (!options_.prioritised) return;
  for (std::size_t i = 0; i < std::min(index.size(), errors.size()); ++i) {
    if (index[i] < inserted_ - size() || index[i] >= inserted_) continue;
    const float priority = std::abs(errors[i]);
    if (!std::isfinite(priority)) continue;
    largest_priority_ = std::max(largest_priority_, priority);
    set_priority(index[i], std::max(priority, kSmallestPriority));
  }
}

std::vector<std::byte> ReplayBuffer::save() const {
  const Header header{.capacity = options_.capacity,
                      .observation_size = options_.observation_size,
                      .inserted = inserted_,
                      .size = size(),
                      .prioritised = options_.prioritised ? 1 : 0,
                      .largest_priority = largest_priority_};
  std::vector<std::byte> bytes;
  const auto filled = static_cast<std::size_t>(size());
  bytes.reserve(sizeof(header) + filled * (width_ + 1) * sizeof(float));
  append(bytes, &header, 1);
  // Slots fill up in order, so the first ones are those in use.
  append(bytes, rows_.data(), filled * width_);
  if (options_.prioritised) append(bytes, priorities_.data(), filled);
  return bytes;
}

void ReplayBuffer::restore(std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof(header)) throw UsageError("the saved replay buffer is truncated");
  std::memcpy(&header, bytes.data(), sizeof(header));
  bytes = bytes.subspan(sizeof(header));
  if (header.format != kFormat) throw UsageError("this is not a saved replay buffer");
  if (header.capacity != options_.capacity ||
      header.observation_size != options_.observation_size ||
      (header.prioritised != 0) != options_.prioritised) {
    throw UsageError(
        fmt::format("the saved replay buffer has {} rows of {} observations{}, this run {} of {}{}",
                    header.capacity, header.observation_size,
                    header.prioritised != 0 ? " with priorities" : "", options_.capacity,
                    options_.observation_size, options_.prioritised ? " with priorities" : ""));
  }
  const bool sizes_fit =
      header.inserted >= 0 && header.size == std::min(header.inserted, header.capacity);
  const auto filled = sizes_fit ? static_cast<std::size_t>(header.size) : 0;
  const std::size_t floats = filled * (width_ + (options_.prioritised ? 1 : 0));
  if (!sizes_fit || bytes.size() != floats * sizeof(float)) {
    throw UsageError("the saved replay buffer is damaged: its size does not fit its contents");
  }
  std::memcpy(rows_.data(), bytes.data(), filled * width_ * sizeof(float));
  inserted_ = header.inserted;
  largest_priority_ = static_cast<float>(header.largest_priority);
  if (!options_.prioritised) return;
  bytes = bytes.subspan(filled * width_ * sizeof(float));
  std::memcpy(priorities_.data(), bytes.data(), filled * sizeof(float));
  for (std::size_t slot = 0; slot < filled; ++slot) {
    const float priority = priorities_[slot];
    set_priority(static_cast<std::int64_t>(slot), std::isfinite(priority) ? priority : 1.0F);
  }
}

}  // namespace divisi::rl
