// The lines that are appended to a file, as they come.
#pragma once

#include "io/process.h"

#include <string>
#include <vector>

namespace divisi::local_trials {

class LineTail {
 public:
  LineTail() = default;
  explicit LineTail(std::string path) : path_(std::move(path)) {}

  // Complete lines since the last call. A line longer than kMaxLine is dropped.
  std::vector<std::string> take();

  static constexpr std::size_t kMaxLine = std::size_t{1} << 16;

 private:
  std::string path_;
  io::Descriptor file_;
  std::string partial_;
};

}  // namespace divisi::local_trials
