// Digests of files that have not changed since they were last read.
#pragma once

#include "base/status.h"

#include <cstdint>
#include <map>
#include <string>
#include <sys/stat.h>

namespace divisi::run {

class DigestCache {
 public:
  // A cache that cannot be read is an empty one. `file` empty: nothing is kept.
  explicit DigestCache(std::string file);

  // SHA-256 in hexadecimal, from the cache or the file.
  Result<std::string> digest(const std::string& path, const struct stat& about);
  // Keeps what was asked for, for next time; what cannot be written is no failure.
  void save() const;

  std::uint64_t bytes_read() const noexcept { return bytes_read_; }

 private:
  struct Entry {
    std::string stamp{};
    std::string digest{};
  };

  std::string file_;
  std::map<std::string, Entry> before_;
  std::map<std::string, Entry> now_;
  std::int64_t written_ns_ = 0;  // when the cache was: later changes may share their time with it
  std::uint64_t bytes_read_ = 0;
};

// SHA-256 of a file's content, in hexadecimal.
Result<std::string> digest_of_file(const std::string& path);

}  // namespace divisi::run
