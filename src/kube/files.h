// Files that others write and replace while we run: bounded reading, and whether they changed.
#pragma once

#include "base/status.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace divisi::kube {

enum class FileKind {
  kRegular,  // anything else is refused: a pipe would hold up the loop, and cannot be read twice
  kAny,      // also what a shell's <(...) gives
};

// The whole file. kNotFound when there is none; kInvalid when it is longer than `max_bytes`.
// Messages read "reading WHAT PATH: why".
Result<std::string> read_file(const std::string& path, std::string_view what, std::size_t max_bytes,
                              FileKind kind = FileKind::kRegular);

// Without the blanks and line breaks around it, which editors and `echo` leave in files.
std::string trimmed(std::string_view text);

// Differs when the file was written to or replaced (also behind a symbolic link, as Kubernetes
// replaces the files of a volume).
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t size = -1;  // -1: there is none
  std::int64_t modified_seconds = 0;
  std::int64_t modified_nanoseconds = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
FileStamp stamp_of(const std::string& path);

}  // namespace divisi::kube
