#include "dist_rl/record_buffer.h"

#include <algorithm>
#include <cmath>

namespace divisi::dist_rl {

namespace {

constexpr double kAlpha = 0.6;           // as the replay buffer of rl
constexpr double kLeastPriority = 1e-3;  // nothing is never drawn
constexpr double kMostPriority = 1e6;

}  // namespace

std::vector<std::string> RecordBuffer::push(json::Value record, std::int64_t rows) {
  std::string data_id(record.string_at({"data_id"}));
  by_id_[data_id] = first_ + entries_.size();
  entries_.push_back({std::move(record), std::move(data_id), rows, largest_});
  rows_ += rows;
  weight_sum_ += largest_;
  std::vector<std::string> left;
  while (rows_ > options_.capacity && entries_.size() > 1) {
    Entry& oldest = entries_.front();
    rows_ -= oldest.rows;
    weight_sum_ -= oldest.weight;
    by_id_.erase(oldest.data_id);
    left.push_back(std::move(oldest.data_id));
    entries_.pop_front();
    ++first_;
  }
  return left;
}

std::size_t RecordBuffer::draw() {
  if (!options_.prioritised) return random_.below(static_cast<std::uint32_t>(entries_.size()));
  double at = random_.uniform() * weight_sum_;
  for (std::size_t i = 0; i + 1 < entries_.size(); ++i) {
    at -= entries_[i].weight;
    if (at < 0) return i;
  }
  return entries_.size() - 1;
}

json::Array RecordBuffer::sample(std::int64_t count) {
  json::Array records;
  for (std::int64_t i = 0; i < count; ++i) records.push_back(entries_[draw()].record);
  return records;
}

void RecordBuffer::set_priority(std::string_view data_id, double priority) {
  const auto known = by_id_.find(std::string(data_id));
  if (known == by_id_.end() || !std::isfinite(priority)) return;
  Entry& entry = entries_[static_cast<std::size_t>(known->second - first_)];
  const double weight = std::pow(std::clamp(priority, kLeastPriority, kMostPriority), kAlpha);
  weight_sum_ += weight - entry.weight;
  entry.weight = weight;
  largest_ = std::max(largest_, weight);
}

}  // namespace divisi::dist_rl
