// Where a try keeps its files: FOLDER/PROJECT-N-log/, N counting every try that was ever made
// there.
#pragma once

#include "base/status.h"

#include <cstdint>
#include <string>

namespace divisi::tune_run {

struct TrialFolder {
  std::uint64_t task = 0;  // N
  std::string name;        // PROJECT-N
  std::string path;        // absolute
};

// Makes folders with rising numbers, from the one after the highest that is there. Several
// processes may do so at the same time; none takes another's.
class TrialFolders {
 public:
  // Makes `folder` where it is missing.
  static Result<TrialFolders> open(const std::string& folder, std::string project);
  Result<TrialFolder> next();
  const std::string& path() const noexcept { return path_; }  // absolute

 private:
  TrialFolders(std::string path, std::string project, std::uint64_t next)
      : path_(std::move(path)), project_(std::move(project)), next_(next) {}

  std::string path_;
  std::string project_;
  std::uint64_t next_;
};

// Replaces the file, whole or not at all. Fails with the path and the reason.
Status write_file(const std::string& path, const std::string& bytes);

}  // namespace divisi::tune_run
