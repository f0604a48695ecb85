// For tests: a folder that goes with its owner, and a configuration of small numbers.
#pragma once

#include "dist_rl/train_config.h"

#include <filesystem>
#include <stdexcept>
#include <string>
#include <unistd.h>

namespace divisi::dist_rl::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "dist_rl_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline TrainConfig small_config(const TemporaryFolder& folder) {
  TrainConfig config;
  config.path_data = folder.path() + "/data";
  config.path_policy = folder.path() + "/policy";
  config.dqn.hidden = {8};
  config.dqn.batch_size = 16;
  config.dqn.n_sample_remote = 32;
  config.dqn.collector_env_num = 4;
  config.dqn.checkpoint_seconds = 0;
  return config;
}

}  // namespace divisi::dist_rl::testing
