// A node of the cluster as the allocator sees it: what it has, and whom it takes.
#pragma once

#include "dijob/amounts.h"
#include "json/value.h"

#include <string>

namespace divisi::dijob {

struct Node {
  std::string name{};
  Amounts free{};        // of what can be given to pods
  json::Value object{};  // labels and taints
  bool open = true;      // takes new pods: ready, and not cordoned
  bool alive = true;     // what runs there goes on
};

Node read_node(const json::Value& object);

// Whether nobody hears of it: what runs there may go on, or not. Whether somebody has said that
// nothing of it runs any more.
bool is_unreachable(const json::Value& node);
bool is_out_of_service(const json::Value& node);

// Whether a pod of this spec may run there, by node selector, required node affinity, taints and
// tolerations; not by amounts.
bool admits(const Node& node, const json::Value& pod_spec);

}  // namespace divisi::dijob
