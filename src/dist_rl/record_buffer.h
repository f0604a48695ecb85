// RecordBuffer: the replay buffer of a coordinator. It holds records of data files, the newest up
// to a number of rows, and draws from them, uniformly or in proportion to their priority.
//
// One thread.
#pragma once

#include "json/value.h"
#include "rl/random.h"

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace divisi::dist_rl {

struct RecordBufferOptions {
  std::int64_t capacity = 20'000;  // rows
  bool prioritised = false;
  std::uint64_t seed = 0;
};

class RecordBuffer {
 public:
  explicit RecordBuffer(RecordBufferOptions options) : options_(options), random_(options.seed) {}

  // The data_ids of the records that had to leave.
  std::vector<std::string> push(json::Value record, std::int64_t rows);
  // `count` of them, with replacement; the buffer must not be empty.
  json::Array sample(std::int64_t count);
  // New priorities; those of records that have left are skipped.
  void set_priority(std::string_view data_id, double priority);

  std::size_t size() const noexcept { return entries_.size(); }
  std::int64_t rows() const noexcept { return rows_; }

 private:
  struct Entry {
    json::Value record;
    std::string data_id;
    std::int64_t rows;
    double weight;  // priority to the power of alpha
  };

  std::size_t draw();

  const RecordBufferOptions options_;
  rl::Random random_;
  std::deque<Entry> entries_;                             // the oldest first
  std::unordered_map<std::string, std::uint64_t> by_id_;  // number since the beginning
  std::uint64_t first_ = 0;                               // number of entries_.front()
  std::int64_t rows_ = 0;
  double weight_sum_ = 0;
  double largest_ = 1;
};

}  // namespace divisi::dist_rl
