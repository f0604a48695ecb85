#include "dist_rl/data_cache.h"

#include "dist_rl/shared_files.h"

namespace divisi::dist_rl {

Result<std::shared_ptr<const rl::Transitions>> DataCache::get(const std::string& path) {
  if (const auto known = by_path_.find(path); known != by_path_.end()) {
    entries_.splice(entries_.begin(), entries_, known->second);
    return known->second->data;
  }
  DIVISI_TRY(auto read, read_data(path, observation_size_, action_count_));
  if (!read) return std::shared_ptr<const rl::Transitions>();
  auto data = std::make_shared<const rl::Transitions>(*std::move(read));
  const std::int64_t rows = data->reward.shape.front();
  entries_.push_front({path, data, rows});
  by_path_[path] = entries_.begin();
  rows_ += rows;
  while (rows_ > most_rows_ && entries_.size() > 1) {
    rows_ -= entries_.back().rows;
    by_path_.erase(entries_.back().path);
    entries_.pop_back();
  }
  return data;
}

}  // namespace divisi::dist_rl
