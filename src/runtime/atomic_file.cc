// write_file_atomically.
#include "divisi/checkpoint.h"
#include "divisi/error.h"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace divisi {
namespace {

namespace fs = std::filesystem;

Code code_of(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS: return Code::kForbidden;
    case ENOENT:
    case ENOTDIR: return Code::kNotFound;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EIO: return Code::kUnavailable;
    default: return Code::kInternal;
  }
}

[[noreturn]] void fail(const std::string& path, int error) {
  throw Error(code_of(error),
              fmt::format("cannot write '{}': {}", path, std::generic_category().message(error)));
}

// In the same folder, so that it can be renamed. With the ending of the final name, by which some
// programs choose a format; other processes and threads have other names.
std::string temporary_name(const fs::path& path) {
  static std::atomic<unsigned> count{0};
  const std::string name =
      fmt::format(".tmp.{}.{}.{}", ::getpid(), count++, path.filename().string());
  return (path.parent_path() / name).string();
}

class File {
 public:
  File(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return fd_ >= 0; }
  // 0 or errno.
  int write_all(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno;
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return 0;
  }
  int sync() const { return ::fsync(fd_) == 0 ? 0 : errno; }

 private:
  int fd_;
};

// Goes with everything that fails between its making and keep().
class Temporary {
 public:
  explicit Temporary(std::string path) : path_(std::move(path)) {}
  ~Temporary() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  const std::string& path() const { return path_; }
  void keep() { path_.clear(); }

 private:
  std::string path_;
};

}  // namespace

void write_file_atomically(const std::string& path,
                           const std::function<void(const std::string&)>& write) {
  const fs::path folder = fs::path(path).parent_path();
  Temporary temporary(temporary_name(path));
  {
    // Made here: where it cannot be, `write` need not find out, and the words are ours.
    const File file(temporary.path(), O_WRONLY | O_CREAT | O_EXCL);
    if (!file.is_open()) fail(path, errno);
  }
  write(temporary.path());
  {
    const File file(temporary.path(), O_RDONLY);
    if (!file.is_open()) fail(path, errno);
    if (const int error = file.sync(); error != 0) fail(path, error);
  }
  if (::rename(temporary.path().c_str(), path.c_str()) != 0) fail(path, errno);
  temporary.keep();
  // The new name is on the disk when its folder is. Some file systems cannot sync a folder: then
  // they do it in their own time.
  const File opened(folder.empty() ? "." : folder.string(), O_RDONLY | O_DIRECTORY);
  if (opened.is_open()) opened.sync();
}

void write_file_atomically(const std::string& path, std::span<const std::byte> bytes) {
  write_file_atomically(path, [&](const std::string& temporary) {
    const File file(temporary, O_WRONLY | O_TRUNC);
    if (!file.is_open()) fail(path, errno);
    if (const int error = file.write_all(bytes); error != 0) fail(path, error);
  });
}

void write_file_atomically(const std::string& path, std::string_view text) {
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

}  // namespace divisi
