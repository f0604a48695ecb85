#include "launch/temp_dir.h"

#include "runtime/topology.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <unistd.h>
#include <utility>

namespace divisi::launch {

Result<TempDir> TempDir::make(const std::string& prefix) {
  std::string path = fmt::format("{}/{}_XXXXXX", runtime::temp_directory(), prefix);
  if (::mkdtemp(path.data()) == nullptr) {
    return failure(Code::kUnavailable, "cannot make a directory {}: {}", path, errno_text(errno));
  }
  return TempDir(std::move(path), ::getpid());
}

TempDir::TempDir(TempDir&& other) noexcept
    : path_(std::exchange(other.path_, {})), owner_(other.owner_) {}

TempDir& TempDir::operator=(TempDir&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(owner_, other.owner_);
  return *this;
}

TempDir::~TempDir() {
  if (path_.empty() || owner_ != ::getpid()) return;
  std::error_code ignored;  // nothing sensible can be done about a leftover at exit
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace divisi::launch
