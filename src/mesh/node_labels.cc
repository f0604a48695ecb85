#include "mesh/node_labels.h"

#include "base/glob.h"

#include <fmt/format.h>

namespace divisi::mesh {

bool label_names_node(std::string_view pattern, const std::set<std::string>& announced, int node) {
  return any_label_matches(pattern, announced) || glob_match(pattern, "distributed") ||
         glob_match(pattern, fmt::format("node.{}", node));
}

Status check_labels(const std::set<std::string>& labels) {
  constexpr std::size_t kLongest = 255;
  constexpr std::size_t kAll = 32 * 1024;
  constexpr std::size_t kMost = 1024;
  std::size_t bytes = 0;
  for (const std::string& label : labels) {
    if (label.empty() || label.size() > kLongest) {
      return make_status(Code::kInvalid, "a label has 1 to {} bytes, not {}", kLongest,
                         label.size());
    }
    bytes += label.size();
  }
  if (labels.size() > kMost || bytes > kAll) {
    return make_status(Code::kInvalid, "{} labels of {} bytes: a node has at most {} of {}",
                       labels.size(), bytes, kMost, kAll);
  }
  return {};
}

}  // namespace divisi::mesh
