// What the machine of reader.cc works on: values that may refer to each other, because a pickle
// names a container before it is full.
#pragma once

#include "base/status.h"
#include "pickle/reader.h"
#include "pickle/value.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::pickle {

using NodeId = std::uint32_t;

struct Node {
  enum class Form {
    kValue,   // `kind` says which
    kGlobal,  // `text` is "module.name"; only a name
    kDtype,   // numpy's: `text` is "f8", with the byte order in front once it is known
  };

  Form form = Form::kValue;
  Kind kind = Kind::kNone;
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0;
  std::string text{};
  std::vector<NodeId> items{};  // of a dict: key, value, key, value, ...
};

// All nodes of one pickle, within Limits.
class Nodes {
 public:
  explicit Nodes(const Limits& limits) : limits_(limits) {}

  // Fails when there are too many, or their texts together are longer than twice the longest
  // pickle (applying a global may copy a text).
  Result<NodeId> add(Node node);
  // Pays for `count` references that are about to be copied.
  Status charge(std::size_t count);

  Node& operator[](NodeId id) { return nodes_[id]; }
  const Node& operator[](NodeId id) const { return nodes_[id]; }

  // The tree below `root`: equal keys of a dict and equal items of a set become one. Fails for
  // globals that stand for themselves, for a structure that contains itself, and beyond Limits.
  Result<Value> tree(NodeId root) const;

 private:
  const Limits limits_;
  std::vector<Node> nodes_;
  std::size_t text_bytes_ = 0;
  std::size_t charged_ = 0;
};

Node make_text(Kind kind, std::string text);
Node make_container(Kind kind, std::vector<NodeId> items = {});

// What applying the global `function` to `arguments` (a tuple's items) means as data; refused by
// name when it is none of the list in reader.h.
Result<NodeId> apply(Nodes& nodes, NodeId function, const std::vector<NodeId>& arguments);

// The instruction BUILD: sets the state of `object`.
Status build(Nodes& nodes, NodeId object, NodeId state);

}  // namespace divisi::pickle
