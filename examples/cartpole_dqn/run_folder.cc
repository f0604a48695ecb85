#include "run_folder.h"

#include "divisi/error.h"

#include <fmt/format.h>

#include <filesystem>

namespace cartpole {

namespace fs = std::filesystem;

namespace {

void make(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw divisi::UsageError(
        fmt::format("the run folder {} cannot be made: {}", path, error.message()));
  }
}

}  // namespace

RunFolder new_run_folder(const std::string& runs, const std::string& name) {
  make(runs);
  for (int number = 1;; ++number) {
    RunFolder folder{number == 1 ? fmt::format("{}/{}", runs, name)
                                 : fmt::format("{}/{}-{}", runs, name, number)};
    std::error_code error;
    // Only one of several processes makes it.
    if (fs::create_directory(folder.path, error)) {
      make(folder.checkpoints());
      return folder;
    }
    if (error) {
      throw divisi::UsageError(
          fmt::format("the run folder {} cannot be made: {}", folder.path, error.message()));
    }
  }
}

RunFolder open_run_folder(const std::string& path, bool resume) {
  RunFolder folder{path};
  make(folder.checkpoints());
  if (!fs::exists(folder.result())) return folder;
  if (!resume) {
    throw divisi::UsageError(fmt::format(
        "the run in {} is over (result.json): name another folder, or go on with --resume", path));
  }
  fs::remove(folder.result());
  return folder;
}

void remove_leftovers(const RunFolder& folder) {
  for (const std::string& place : {folder.path, folder.checkpoints()}) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(place, error)) {
      if (entry.path().filename().string().starts_with(".tmp.")) fs::remove(entry.path(), error);
    }
  }
}

}  // namespace cartpole
