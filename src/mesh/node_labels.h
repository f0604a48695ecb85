// The labels by which a directed event finds a node.
#pragma once

#include "base/status.h"

#include <set>
#include <string>
#include <string_view>

namespace divisi::mesh {

// Does the glob match a label that the node has announced, or one that every node has by being one:
// `distributed` and `node.<id>`? These need not travel.
bool label_names_node(std::string_view pattern, const std::set<std::string>& announced, int node);

// Labels travel in the greeting and in one frame: 1,024 of 1 to 255 bytes, together 32 KiB.
Status check_labels(const std::set<std::string>& labels);

}  // namespace divisi::mesh
