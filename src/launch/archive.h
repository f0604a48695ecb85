// Unpacking a zip archive that somebody else made. What an honest package never holds is refused
// before a byte is written: paths that leave the directory, links, device files, encrypted or
// repeated entries, and more entries or bytes than the limits. libzip is seen only by archive.cc.
#pragma once

#include "base/status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::launch {

struct ArchiveLimits {
  std::size_t max_entries = 10'000;
  std::uint64_t max_bytes = std::uint64_t{2} << 30;  // inflated, all entries together
};

struct ArchiveEntry {
  std::uint64_t index = 0;
  std::string path;  // relative, normal form, no trailing slash
  std::uint64_t size = 0;
  bool is_directory = false;
  bool is_executable = false;
};

// "a//./b/" -> "a/b". kInvalid for absolute paths, "..", backslashes, control characters, names
// longer than a file system takes, and paths that come to nothing.
Result<std::string> safe_entry_path(std::string_view name);

// The entries after all checks. kInvalid with one clear line otherwise.
Result<std::vector<ArchiveEntry>> list_archive(const std::string& path,
                                               const ArchiveLimits& limits = {});

// Into an existing private directory; files are readable by their owner only. Checksums are
// verified. After a failure the directory holds what was written so far.
Status extract_archive(const std::string& path, const std::string& directory,
                       const ArchiveLimits& limits = {});

// The same from memory, without a file system: reads every entry and throws the bytes away.
// For fuzzing. Returns the inflated size.
Result<std::uint64_t> check_archive(std::span<const std::byte> bytes,
                                    const ArchiveLimits& limits = {});

// True when the file begins as a zip archive does.
bool looks_like_zip(const std::string& path);

}  // namespace divisi::launch
