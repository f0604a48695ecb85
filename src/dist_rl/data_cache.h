// DataCache: data files that a learner has read, the newest within a number of rows. One thread.
#pragma once

#include "base/status.h"
#include "rl/replay_wire.h"

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

namespace divisi::dist_rl {

class DataCache {
 public:
  DataCache(std::int64_t most_rows, int observation_size, int action_count)
      : most_rows_(most_rows), observation_size_(observation_size), action_count_(action_count) {}

  // The transitions of a file, from memory or from the disk; null when the file is gone (it left
  // the buffer meanwhile). Fails for a damaged file.
  Result<std::shared_ptr<const rl::Transitions>> get(const std::string& path);

 private:
  struct Entry {
    std::string path;
    std::shared_ptr<const rl::Transitions> data;
    std::int64_t rows;
  };

  const std::int64_t most_rows_;
  const int observation_size_;
  const int action_count_;
  std::list<Entry> entries_;  // the last used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_path_;
  std::int64_t rows_ = 0;
};

}  // namespace divisi::dist_rl
