#include "run/package_watch.h"

#include <array>
#include <cerrno>
#include <filesystem>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

namespace divisi::run {

Result<std::unique_ptr<PackageWatch>> PackageWatch::make(const PackageCut& cut) {
  io::Descriptor notify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!notify) {
    return failure(Code::kUnavailable,
                   "--watch cannot see changes of files: {} (inotify; see "
                   "/proc/sys/fs/inotify/max_user_instances)",
                   errno_text(errno));
  }
  std::unique_ptr<PackageWatch> made(new PackageWatch(std::move(notify)));
  if (const Status status = made->add(cut); !status.ok()) return failure(status);
  return made;
}

Status PackageWatch::watch(const std::string& folder) {
  constexpr std::uint32_t kChanges =
      IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_CREATE;
  if (folders_.contains(folder)) return {};
  if (::inotify_add_watch(notify_.get(), folder.c_str(), kChanges) >= 0) {
    folders_.insert(folder);
    return {};
  }
  if (errno == ENOENT || errno == ENOTDIR) return {};  // removed meanwhile: the one above tells
  return make_status(Code::kUnavailable,
                     "--watch cannot see changes of {}: {} (inotify; see "
                     "/proc/sys/fs/inotify/max_user_watches)",
                     folder, errno_text(errno));
}

Status PackageWatch::add(const PackageCut& cut) {
  // A zip is replaced in its folder.
  DIVISI_TRY_STATUS(
      watch(cut.is_archive ? std::filesystem::path(cut.path).parent_path().string() : cut.path));
  for (const PackageFile& file : cut.files) {
    DIVISI_TRY_STATUS(watch(std::filesystem::path(file.source).parent_path().string()));
  }
  return {};
}

void PackageWatch::settle() {
  constexpr int kQuiet = 100;  // milliseconds
  constexpr int kMostRounds = 10;
  std::array<char, 65536> events{};
  pollfd watched{notify_.get(), POLLIN, 0};
  for (int i = 0; i < kMostRounds && ::poll(&watched, 1, kQuiet) > 0; ++i) {
    while (::read(notify_.get(), events.data(), events.size()) > 0) {
    }
  }
}

}  // namespace divisi::run
