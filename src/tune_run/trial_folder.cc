#include "tune_run/trial_folder.h"

#include "io/process.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace divisi::tune_run {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLogSuffix = "-log";

// N of "PROJECT-N-log"; nothing for other names.
std::optional<std::uint64_t> number_of(std::string_view file, std::string_view project) {
  if (!file.starts_with(project) || !file.ends_with(kLogSuffix)) return std::nullopt;
  file.remove_prefix(project.size());
  file.remove_suffix(std::min(file.size(), kLogSuffix.size()));
  if (!file.starts_with('-')) return std::nullopt;
  std::uint64_t number = 0;
  const char* const end = file.data() + file.size();
  const auto [stop, error] = std::from_chars(file.data() + 1, end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

Status write_whole(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::write(file, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return {Code::kUnavailable, errno_text(errno)};
    bytes.remove_prefix(static_cast<std::size_t>(size));
  }
  return {};
}

}  // namespace

Result<TrialFolders> TrialFolders::open(const std::string& folder, std::string project) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return failure(Code::kUnavailable, "making the folder {}: {}", folder, error.message());
  const std::string path = fs::absolute(folder).lexically_normal().string();
  std::uint64_t next = 0;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (const auto number = number_of(entry.path().filename().string(), project)) {
      next = std::max(next, *number + 1);
    }
  }
  if (error) return failure(Code::kUnavailable, "reading the folder {}: {}", path, error.message());
  return TrialFolders(path, std::move(project), next);
}

Result<TrialFolder> TrialFolders::next() {
  while (true) {
    const std::uint64_t task = next_++;
    const std::string name = fmt::format("{}-{}", project_, task);
    const std::string path = fmt::format("{}/{}{}", path_, name, kLogSuffix);
    if (::mkdir(path.c_str(), 0755) == 0) return TrialFolder{task, name, path};
    if (errno != EEXIST) {
      return failure(Code::kUnavailable, "making the folder {}: {}", path, errno_text(errno));
    }
  }
}

Status write_file(const std::string& path, const std::string& bytes) {
  const std::string part = path + ".part";
  Status status;
  {
    const io::Descriptor file(::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    status = file ? write_whole(file.get(), bytes) : Status(Code::kUnavailable, errno_text(errno));
  }
  if (status.ok() && std::rename(part.c_str(), path.c_str()) != 0) {
    status = Status(Code::kUnavailable, errno_text(errno));
  }
  if (!status.ok()) ::unlink(part.c_str());
  return status.with_context(fmt::format("writing {}", path));
}

}  // namespace divisi::tune_run
