#include "mesh/node_labels.h"

#include "base/glob.h"

#include <fmt/format.h>

namespace divisi::mesh {

bool label_names_node(std::string_view pattern, const std::set<std::string>& announced, int node) {
  return any_label_matches(pattern, announced) || glob_match(pattern, "distributed") ||
         glob_match(pattern, fmt::format("node.{}", node));
}

}  // namespace divisi::mesh
