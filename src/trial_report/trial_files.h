// TrialFiles: what the program of a trial leaves in the pod: lines in $HPO_METRICS_FILE, and a
// result where the tuner looks for one.
//
//   TrialFiles files(place);            // before the program starts: what is there now is old
//   for (const std::string& line : files.take_lines()) ...
//   if (auto found = files.find_result()) ...
#pragma once

#include "base/status.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace divisi::trial_report {

struct TrialPlace {
  std::string task{};          // $HPO_TASK_NAME
  std::string project{};       // $HPO_PROJECT
  std::string result_file{};   // $HPO_RESULT_FILE; its folder is the project path
  std::string metrics_file{};  // $HPO_METRICS_FILE
};

struct FoundResult {
  std::string name{};   // "result.pkl"
  std::string bytes{};  // empty beyond `most`
  std::uintmax_t size = 0;
};

class TrialFiles {
 public:
  static constexpr std::size_t kMaxLine = std::size_t{1} << 16;

  explicit TrialFiles(TrialPlace place);

  // Whole lines since the last call, as many as are read in one go; none: there are no more. Longer
  // ones than kMaxLine are left out and counted. A file that has become shorter is read anew.
  std::vector<std::string> take_lines();
  std::size_t overlong() const { return overlong_; }
  // The first that is there of: the result file, then result.json, result.msgpack, result.pkl,
  // hpo/result.pkl, hpo/result and hpo/results in the folders of the task.
  std::optional<FoundResult> find_result(std::size_t most) const;

 private:
  // Inode, size and time of change: clocks of file systems may differ from this machine's.
  using Signature = std::array<std::int64_t, 4>;

  std::vector<std::filesystem::path> candidates() const;
  void split(const std::string& added, std::vector<std::string>& lines);
  bool is_new(const std::filesystem::path& path) const;

  const TrialPlace place_;
  std::map<std::string, Signature> old_;
  std::size_t read_ = 0;  // of the metrics file
  std::string partial_;
  bool skipping_ = false;  // the rest of a line that is too long
  std::size_t overlong_ = 0;
};

}  // namespace divisi::trial_report
