#include "study/file_system.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <sys/vfs.h>

namespace divisi::tune {

std::string_view network_file_system(long magic) noexcept {
  struct Known {
    unsigned long magic;
    std::string_view name;
  };
  constexpr std::array kKnown{
      Known{0x6969, "NFS"},        Known{0x517B, "SMB"},          Known{0xFF534D42, "CIFS"},
      Known{0xFE534D42, "SMB"},    Known{0x01021997, "9p"},       Known{0x65735546, "FUSE"},
      Known{0x0BD00BD0, "Lustre"}, Known{0x47504653, "GPFS"},     Known{0x00C36400, "Ceph"},
      Known{0x5346414F, "AFS"},    Known{0x6B414653, "AFS"},      Known{0x73757245, "Coda"},
      Known{0x786F4256, "vboxsf"}, Known{0x7461636F, "OCFS2"},    Known{0x01161970, "GFS2"},
      Known{0x19830326, "BeeGFS"}, Known{0x20030528, "OrangeFS"}, Known{0x18031977, "WekaFS"},
  };
  const auto low = static_cast<unsigned long>(magic) & 0xFFFFFFFFUL;
  const auto* const found = std::find_if(kKnown.begin(), kKnown.end(),
                                         [&](const Known& one) { return one.magic == low; });
  return found == kKnown.end() ? std::string_view() : found->name;
}

Status check_file_system(const std::string& path) {
  struct statfs about{};
  std::string place = path;
  if (::statfs(place.c_str(), &about) != 0) {
    place = std::filesystem::path(path).parent_path().string();
    if (place.empty()) place = ".";
    if (::statfs(place.c_str(), &about) != 0) {
      return make_status(Code::kNotFound, "the folder of the study {} cannot be used: {}", path,
                         errno_text(errno));
    }
  }
  const std::string_view name = network_file_system(static_cast<long>(about.f_type));
  if (name.empty()) return {};
  return make_status(
      Code::kForbidden,
      "the study {} would be on a network file system ({}), where locks do not hold and a study "
      "can "
      "be damaged: keep it on a local disk, for example in /tmp or under your home on this machine",
      path, name);
}

}  // namespace divisi::tune
