#include "pickle/nodes.h"

#include <cmath>
#include <unordered_map>

namespace divisi::pickle {

namespace {

// One text for each set of equal keys, as Python compares them: 1, 1.0 and True are one key.
// NOLINTNEXTLINE(misc-no-recursion): bounded by Limits::max_depth, checked by the caller
Result<std::string> key_text(const Value& key) {
  switch (key.kind) {
    case Kind::kNone: return "N";
    case Kind::kBool: return fmt::format("n{}", key.boolean ? 1 : 0);
    case Kind::kInt: return fmt::format("n{}", key.integer);
    case Kind::kBigInt: return "n" + key.text;
    case Kind::kFloat: {
      const bool whole = std::nearbyint(key.number) == key.number && std::abs(key.number) < 0x1p63;
      if (whole) return fmt::format("n{}", static_cast<std::int64_t>(key.number));
      return fmt::format("f{}", key.number);
    }
    case Kind::kStr: return "s" + key.text;
    case Kind::kBytes: return "b" + key.text;
    case Kind::kTuple: {
      std::string text = "(";
      for (const Value& item : key.items) {
        DIVISI_TRY(const std::string inner, key_text(item));
        text += fmt::format("{}:{}", inner.size(), inner);
      }
      return text;
    }
    case Kind::kList:
    case Kind::kSet:
    case Kind::kDict: break;
  }
  return failure(Code::kInvalid, "a {} cannot be a key of a dict or an item of a set",
                 kind_name(key.kind));
}

class TreeBuilder {
 public:
  TreeBuilder(const Nodes& nodes, const Limits& limits) : nodes_(nodes), limits_(limits) {}

  // NOLINTNEXTLINE(misc-no-recursion): bounded by Limits::max_depth
  Result<Value> value(NodeId id, std::size_t depth) {
    const Node& node = nodes_[id];
    if (Status status = check(node, depth); !status.ok()) return failure(std::move(status));
    Value made{.kind = node.kind,
               .boolean = node.boolean,
               .integer = node.integer,
               .number = node.number,
               .text = node.text};
    if (node.kind == Kind::kDict) return dict(node, depth, std::move(made));
    if (node.kind == Kind::kSet) return set(node, depth, std::move(made));
    for (const NodeId item : node.items) {
      DIVISI_TRY(Value inner, value(item, depth + 1));
      made.items.push_back(std::move(inner));
    }
    return made;
  }

 private:
  Status check(const Node& node, std::size_t depth) {
    if (node.form == Node::Form::kGlobal) {
      return make_status(Code::kForbidden, "it holds {}, a class or function; only data is read",
                         node.text);
    }
    if (node.form == Node::Form::kDtype) {
      return make_status(Code::kForbidden, "it holds numpy.dtype; only numpy scalars are read");
    }
    if (depth > limits_.max_depth) {
      return make_status(Code::kInvalid, "it is deeper than {} or contains itself",
                         limits_.max_depth);
    }
    text_ += node.text.size();
    if (++count_ > limits_.max_values || text_ > 2 * limits_.max_bytes) {
      return make_status(Code::kInvalid, "it unfolds to more than {} values or {} bytes of text",
                         limits_.max_values, 2 * limits_.max_bytes);
    }
    return {};
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by Limits::max_depth
  Result<Value> dict(const Node& node, std::size_t depth, Value made) {
    std::unordered_map<std::string, std::size_t> known;
    for (std::size_t i = 0; i + 1 < node.items.size(); i += 2) {
      DIVISI_TRY(Value key, value(node.items[i], depth + 1));
      DIVISI_TRY(Value member, value(node.items[i + 1], depth + 1));
      DIVISI_TRY(std::string text, key_text(key));
      const auto [entry, is_new] = known.emplace(std::move(text), made.members.size());
      if (is_new) {
        made.members.emplace_back(std::move(key), std::move(member));
      } else {
        made.members[entry->second].second = std::move(member);
      }
    }
    return made;
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by Limits::max_depth
  Result<Value> set(const Node& node, std::size_t depth, Value made) {
    std::unordered_map<std::string, bool> known;
    for (const NodeId item : node.items) {
      DIVISI_TRY(Value inner, value(item, depth + 1));
      DIVISI_TRY(std::string text, key_text(inner));
      if (known.emplace(std::move(text), true).second) made.items.push_back(std::move(inner));
    }
    return made;
  }

  const Nodes& nodes_;
  const Limits& limits_;
  std::size_t count_ = 0;
  std::size_t text_ = 0;
};

}  // namespace

Result<NodeId> Nodes::add(Node node) {
  text_bytes_ += node.text.size();
  if (nodes_.size() >= limits_.max_values || text_bytes_ > 2 * limits_.max_bytes) {
    return failure(Code::kInvalid, "it makes more than {} values or {} bytes of text",
                   limits_.max_values, 2 * limits_.max_bytes);
  }
  nodes_.push_back(std::move(node));
  return static_cast<NodeId>(nodes_.size() - 1);
}

Status Nodes::charge(std::size_t count) {
  charged_ += count;
  if (charged_ <= limits_.max_values) return {};
  return make_status(Code::kInvalid, "it copies more than {} values", limits_.max_values);
}

Result<Value> Nodes::tree(NodeId root) const {
  return TreeBuilder(*this, limits_).value(root, 1);
}

Node make_text(Kind kind, std::string text) {
  Node node;
  node.kind = kind;
  node.text = std::move(text);
  return node;
}

Node make_container(Kind kind, std::vector<NodeId> items) {
  Node node;
  node.kind = kind;
  node.items = std::move(items);
  return node;
}

}  // namespace divisi::pickle
