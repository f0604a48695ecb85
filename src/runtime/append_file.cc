#include "runtime/append_file.h"

#include "divisi/error.h"

#include <fmt/format.h>

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace divisi::runtime {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, int error) {
  throw Error(error == EEXIST ? Code::kAlreadyExists : Code::kUnavailable,
              fmt::format("cannot write '{}': {}", path, std::generic_category().message(error)));
}

}  // namespace

AppendFile::AppendFile(std::string path, Open how) : path_(std::move(path)), fd_(-1) {
  if (const fs::path folder = fs::path(path_).parent_path(); !folder.empty()) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error && !fs::is_directory(folder)) fail(path_, error.value());
  }
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (how == Open::kNew ? O_EXCL : 0);
  fd_ = ::open(path_.c_str(), flags, 0666);
  if (fd_ < 0) fail(path_, errno);
}

AppendFile::~AppendFile() {
  ::close(fd_);
}

void AppendFile::append(std::string_view record) const {
  const std::string_view whole = record;
  while (!record.empty()) {
    const ssize_t n = ::write(fd_, record.data(), record.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      struct stat info{};
      const auto written = static_cast<off_t>(whole.size() - record.size());
      if (written > 0 && ::fstat(fd_, &info) == 0) {
        // Where even that fails there is nothing left to do: the error is told anyway.
        [[maybe_unused]] const int cut = ::ftruncate(fd_, info.st_size - written);
      }
      fail(path_, error);
    }
    record.remove_prefix(static_cast<std::size_t>(n));
  }
}

void AppendFile::sync() const {
  if (::fdatasync(fd_) != 0 && errno != EINVAL) fail(path_, errno);
}

}  // namespace divisi::runtime
