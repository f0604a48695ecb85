// A private directory (mode 0700) that is removed with everything in it when the owner goes.
#pragma once

#include "base/status.h"

#include <string>
#include <sys/types.h>

namespace divisi::launch {

class TempDir {
 public:
  static Result<TempDir> make(const std::string& prefix);

  TempDir() = default;
  TempDir(TempDir&& other) noexcept;
  TempDir& operator=(TempDir&& other) noexcept;
  ~TempDir();

  const std::string& path() const noexcept { return path_; }
  bool empty() const noexcept { return path_.empty(); }

 private:
  TempDir(std::string path, pid_t owner) : path_(std::move(path)), owner_(owner) {}

  std::string path_;
  pid_t owner_ = 0;  // a forked child must not remove what its parent still uses
};

}  // namespace divisi::launch
