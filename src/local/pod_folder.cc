#include "local/pod_folder.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sys/stat.h>
#include <system_error>

namespace divisi::local {
namespace {

namespace fs = std::filesystem;

bool is_there(const std::string& path) {
  std::error_code unreadable;
  return fs::exists(path, unreadable);
}

// In memory where there is such a place; the name follows from the folder, which is the job's own.
std::string memory_folder(const std::string& folder, const std::string& volume) {
  return fmt::format("/dev/shm/divisi-{:016x}/{}", std::hash<std::string>()(folder), volume);
}

std::string place_of(const std::string& folder, const std::string& name, const Volume& volume) {
  if (volume.kind == Volume::Kind::kHost) return volume.host_path;
  if (volume.kind == Volume::Kind::kMemory && is_there("/dev/shm")) {
    return memory_folder(folder, name);
  }
  return folder + "/volumes/" + name;
}

Status make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return {};
  return make_status(Code::kUnavailable, "cannot make the folder {}: {}", path, error.message());
}

Status write_files(const std::string& folder, const VolumeFiles& content) {
  for (const auto& [path, text] : content.files) {
    const std::string file = folder + "/" + path;
    DIVISI_TRY_STATUS(make_folder(fs::path(file).parent_path().string()));
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out.write(text.data(), static_cast<std::streamsize>(text.size())).flush();
    if (!out) {
      return make_status(Code::kUnavailable, "cannot write {}: {}", file, std::strerror(errno));
    }
    ::chmod(file.c_str(), static_cast<mode_t>(content.mode));
  }
  return {};
}

Status fill_volume(const std::string& place, const std::string& name, const Volume& volume) {
  if (volume.kind == Volume::Kind::kHost) {
    if (is_there(place)) return {};
    if (volume.make_folder) return make_folder(place);
    return make_status(Code::kNotFound, "volume \"{}\": hostPath {} is not on this machine", name,
                       place);
  }
  DIVISI_TRY_STATUS(make_folder(place));
  if (volume.kind == Volume::Kind::kMemory) {  // others may look into /dev/shm
    ::chmod(fs::path(place).parent_path().c_str(), 0700);
  }
  return write_files(place, volume.content);
}

}  // namespace

Status fill_pod_folder(const std::string& folder, const PodPlan& plan) {
  DIVISI_TRY_STATUS(make_folder(folder + "/home"));
  DIVISI_TRY_STATUS(make_folder(folder + "/tmp"));
  for (const auto& [name, volume] : plan.volumes) {
    DIVISI_TRY_STATUS(fill_volume(place_of(folder, name, volume), name, volume));
  }
  return {};
}

void remove_pod_folder(const std::string& folder, const PodPlan& plan) {
  std::error_code ignored;  // what is left of a pod that is gone hurts nobody
  for (const auto& [name, volume] : plan.volumes) {
    if (volume.kind != Volume::Kind::kMemory) continue;
    fs::remove_all(fs::path(memory_folder(folder, name)).parent_path(), ignored);
  }
  fs::remove_all(folder, ignored);
}

std::vector<Bind> binds_of(const std::string& folder, const PodPlan& plan,
                           const ContainerPlan& container, const std::string& hosts) {
  std::vector<Bind> binds{{.from = folder + "/tmp", .to = "/tmp"},
                          {.from = folder + "/home", .to = kHome},
                          {.from = hosts, .to = "/etc/hosts", .read_only = true}};
  for (const Mount& mount : container.mounts) {
    const Volume& volume = plan.volumes.at(mount.volume);
    std::string from = place_of(folder, mount.volume, volume);
    if (!mount.sub_path.empty()) {
      from += "/" + mount.sub_path;
      static_cast<void>(is_there(from) ? Status() : make_folder(from));
    }
    const bool files = volume.kind == Volume::Kind::kFiles;
    binds.push_back(
        {.from = std::move(from), .to = mount.path, .read_only = mount.read_only || files});
  }
  return binds;
}

}  // namespace divisi::local
