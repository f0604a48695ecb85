#include "kube/files.h"

#include "base/log.h"
#include "io/process.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace divisi::kube {

Result<std::string> read_file(const std::string& path, std::string_view what, std::size_t max_bytes,
                              FileKind kind) {
  const std::string reading = fmt::format("reading {} {}", what, log::printable(path));
  const auto failed = [&](int error) {
    return failure(error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kInvalid, "{}: {}",
                   reading, errno_text(error));
  };
  // A pipe without a writer must not hold up the opening of what is to be a plain file.
  const int wait = kind == FileKind::kRegular ? O_NONBLOCK : 0;
  const io::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | wait));
  if (!file) return failed(errno);
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return failed(errno);
  if (S_ISDIR(info.st_mode)) return failed(EISDIR);
  if (kind == FileKind::kRegular && !S_ISREG(info.st_mode)) {
    return failure(Code::kInvalid, "{}: it is not a regular file", reading);
  }
  std::string text;
  std::array<char, 16384> piece{};
  while (true) {
    const ssize_t got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(errno);
    if (got == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
    if (text.size() > max_bytes) {
      return failure(Code::kInvalid, "{}: it is longer than {} bytes", reading, max_bytes);
    }
  }
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kBlank) - first + 1));
}

FileStamp stamp_of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .size = info.st_size,
          .modified_seconds = info.st_mtim.tv_sec,
          .modified_nanoseconds = info.st_mtim.tv_nsec};
}

}  // namespace divisi::kube
