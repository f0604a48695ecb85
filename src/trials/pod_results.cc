#include "trials/pod_results.h"

#include <charconv>

namespace divisi::trials {
namespace {

// Each file that is found is a line "R SIZE PATH" (or "S", of the side file; "M", of the rest of
// the metrics file) and its bytes. A file that is older than the stamp is of an earlier run on the
// same path.
constexpr const char* kScript = R"(
task=$1 project=$2 remote=$3 stamp=$4 most=$5 known=$6 chunk=$7
shift 7
fresh() { [ -f "$1" ] && { [ ! -e "$stamp" ] || ! [ "$stamp" -nt "$1" ]; }; }
show() {
  fresh "$2" || return 1
  size=$(wc -c <"$2") || return 1
  size=$((size))
  [ "$size" -le "$most" ] || { echo "$2: larger than $most bytes" >&2; exit 3; }
  echo "$1 $size $2"
  head -c "$size" "$2"
}
reports="$remote/$task-metrics.jsonl"
if fresh "$reports" && size=$(wc -c <"$reports"); then
  size=$((size - known))
  [ "$size" -le "$chunk" ] || size=$chunk
  [ "$size" -le 0 ] || { echo "M $size $reports"; tail -c +$((known + 1)) "$reports" | head -c "$size"; }
fi
found=
case " $* " in *" result.json "*) show R "$remote/$task-result.json" && found=1 ;; esac
for folder in "$remote/$project/$task" "$remote/$task" "$remote/$project/$task"_* "$remote/$task"_*; do
  for name in "$@"; do
    [ -z "$found" ] && show R "$folder/$name" && found=1
  done
  [ -z "$found" ] && continue
  for name in result.txt results.txt; do show S "$folder/$name" && exit 0; done
done
exit 0
)";

}  // namespace

std::string metrics_file(std::string_view remote, std::string_view task) {
  return fmt::format("{}/{}-metrics.jsonl", remote, task);
}

std::string result_file(std::string_view remote, std::string_view task) {
  return fmt::format("{}/{}-result.json", remote, task);
}

std::vector<std::string> search_command(const ResultPlace& place) {
  std::vector<std::string> command{"sh",
                                   "-c",
                                   kScript,
                                   "sh",
                                   place.task,
                                   place.project,
                                   place.remote,
                                   place.stamp,
                                   std::to_string(kMaxResult),
                                   std::to_string(place.reports_from),
                                   std::to_string(kMaxReports)};
  command.insert(command.end(), place.names.begin(), place.names.end());
  return command;
}

Result<PodResults> parse_search(std::string_view output) {
  PodResults found;
  while (!output.empty()) {
    const std::size_t line_end = output.find('\n');
    if (line_end == std::string_view::npos || line_end < 4) {
      return failure(Code::kInternal, "the search for results printed '{}'", output.substr(0, 80));
    }
    const char kind = output.front();
    const std::string_view head = output.substr(2, line_end - 2);
    const std::size_t space = head.find(' ');
    std::size_t size = 0;
    const auto [end, error] = std::from_chars(head.data(), head.data() + head.size(), size);
    if (std::string_view("RSM").find(kind) == std::string_view::npos || error != std::errc() ||
        space == std::string_view::npos || end != head.data() + space) {
      return failure(Code::kInternal, "the search for results printed '{}'", head.substr(0, 80));
    }
    output.remove_prefix(line_end + 1);
    if (output.size() < size) {
      return failure(Code::kInternal, "{}: {} of {} bytes came", head.substr(space + 1),
                     output.size(), size);
    }
    PodFile file{std::string(head.substr(space + 1)), std::string(output.substr(0, size))};
    output.remove_prefix(size);
    (kind == 'R' ? found.result : kind == 'S' ? found.side : found.reports) = std::move(file);
  }
  return found;
}

}  // namespace divisi::trials
