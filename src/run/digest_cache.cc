#include "run/digest_cache.h"

#include "io/crypto.h"
#include "io/process.h"

#include <fmt/format.h>

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace divisi::run {
namespace {

constexpr std::int64_t kNanoseconds = 1'000'000'000;

std::int64_t nanoseconds(const timespec& time) {
  return time.tv_sec * kNanoseconds + time.tv_nsec;
}

std::string stamp_of(const struct stat& about) {
  return fmt::format("{}:{}:{}:{}", about.st_size, about.st_ino, nanoseconds(about.st_mtim),
                     nanoseconds(about.st_ctim));
}

}  // namespace

Result<std::string> digest_of_file(const std::string& path) {
  const io::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return failure(Code::kUnavailable, "reading {}: {}", path, errno_text(errno));
  io::Sha256 hash;
  std::string piece(std::size_t{256} << 10, '\0');
  while (true) {
    const ssize_t got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failure(Code::kUnavailable, "reading {}: {}", path, errno_text(errno));
    if (got == 0) return io::hexadecimal(hash.finish());
    hash.update({piece.data(), static_cast<std::size_t>(got)});
  }
}

DigestCache::DigestCache(std::string file) : file_(std::move(file)) {
  struct stat about{};
  if (file_.empty() || ::stat(file_.c_str(), &about) != 0) return;
  written_ns_ = nanoseconds(about.st_mtim);
  std::ifstream in(file_);
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(' ');
    const std::size_t second = line.find(' ', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    before_[line.substr(second + 1)] = {line.substr(0, first),
                                        line.substr(first + 1, second - first - 1)};
  }
}

Result<std::string> DigestCache::digest(const std::string& path, const struct stat& about) {
  // A file that was changed again while the clock of its file system stood still has the times of
  // its first change. Two seconds are more than any such clock stands.
  const bool settled = nanoseconds(about.st_ctim) < written_ns_ - 2 * kNanoseconds;
  const std::string stamp = stamp_of(about);
  if (const auto known = before_.find(path);
      settled && known != before_.end() && known->second.stamp == stamp) {
    now_[path] = known->second;
    return known->second.digest;
  }
  DIVISI_TRY(std::string digest, digest_of_file(path));
  bytes_read_ += static_cast<std::uint64_t>(about.st_size);
  now_[path] = {stamp, digest};
  return digest;
}

void DigestCache::save() const {
  if (file_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(file_).parent_path(), error);
  const std::string fresh = fmt::format("{}.{}", file_, ::getpid());
  {
    std::ofstream out(fresh, std::ios::trunc);
    for (const auto& [path, entry] : now_) {
      if (path.find('\n') == std::string::npos) {
        out << entry.stamp << ' ' << entry.digest << ' ' << path << '\n';
      }
    }
  }
  std::filesystem::rename(fresh, file_, error);
  if (error) std::filesystem::remove(fresh, error);
}

}  // namespace divisi::run
