// Where a trial's result lies in its pod, and the command that fetches it.
#pragma once

#include "base/status.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::trials {

struct ResultPlace {
  std::string task{};  // the folder that exp_name names
  std::string project{};
  std::string remote{};  // the project path
  std::string stamp{};   // a file of the pod that is older than any result; empty: there is none
  std::vector<std::string> names{};  // of results, the preferred one first; without blanks
  std::size_t reports_from = 0;      // so many bytes of its metrics file are known
};

// A file as it was read in the pod.
struct PodFile {
  std::string path{};
  std::string bytes{};
};

struct PodResults {
  std::optional<PodFile> result{};
  std::optional<PodFile> side{};     // result.txt or results.txt
  std::optional<PodFile> reports{};  // what the metrics file has beyond reports_from
};

inline constexpr std::size_t kMaxResult = std::size_t{64} << 20;
// Of the metrics file, in one search.
inline constexpr std::size_t kMaxReports = std::size_t{1} << 20;

// Where the programs of a trial report ($HPO_METRICS_FILE) and leave their result
// ($HPO_RESULT_FILE).
std::string metrics_file(std::string_view remote, std::string_view task);
std::string result_file(std::string_view remote, std::string_view task);

// Needs nothing in the pod but a POSIX shell with wc, head, tail and -nt.
std::vector<std::string> search_command(const ResultPlace& place);

// What that command printed.
Result<PodResults> parse_search(std::string_view output);

}  // namespace divisi::trials
