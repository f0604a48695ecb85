// The labels by which a directed event finds a node.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace divisi::mesh {

// Does the glob match a label that the node has announced, or one that every node has by being one:
// `distributed` and `node.<id>`? These need not travel.
bool label_names_node(std::string_view pattern, const std::set<std::string>& announced, int node);

}  // namespace divisi::mesh
