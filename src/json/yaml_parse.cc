// YAML text into values, from the events of libyaml.
#include "json/yaml.h"
#include "json/yaml_events.h"
#include "json/yaml_scalar.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_set>
namespace divisi::json {
namespace {

// A value, and what it costs to have it once more.
struct Node {
  Value value;
  std::size_t bytes = sizeof(Value);
  std::size_t depth = 0;  // levels of arrays and objects

  void include(const Node& part) {
    bytes += part.bytes;
    depth = std::max(depth, part.depth + 1);
  }
};

// A map that is being read.
struct Mapping {
  Object members;
  std::unordered_set<std::string> keys;
  std::optional<Value> merged;  // what << names: a map, or maps of which the first counts most

  void add_missing(Object others) {
    for (Member& member : others) {
      if (keys.insert(member.first).second) members.push_back(std::move(member));
    }
  }

  // Last, because what is written in the map itself counts more, wherever the << stands.
  void finish() {
    if (!merged) return;
    if (Object* object = merged->as_object()) return add_missing(std::move(*object));
    for (Value& each : *merged->as_array()) add_missing(std::move(*each.as_object()));
  }
};

bool can_be_merged(const Value& value) {
  const auto is_map = [](const Value& each) { return each.as_object() != nullptr; };
  const Array* list = value.as_array();
  return is_map(value) || (list != nullptr && std::ranges::all_of(*list, is_map));
}

class Composer {
 public:
  Composer(std::string_view text, const ParseLimits& limits) : events_(text), limits_(limits) {}

  Result<std::vector<Value>> documents() {
    std::vector<Value> out;
    for (;;) {
      DIVISI_TRY(const YamlEvent event, events_.next());
      if (event.type() == YAML_STREAM_END_EVENT) return out;
      if (event.type() != YAML_DOCUMENT_START_EVENT) continue;
      anchors_.clear();
      DIVISI_TRY(const YamlEvent root, events_.next());
      const bool empty = root.type() == YAML_SCALAR_EVENT && root.is_plain() && root.text().empty();
      DIVISI_TRY(Node node, compose(root, 0));
      if (!empty) out.push_back(std::move(node.value));
    }
  }

 private:
  Result<Node> compose(const YamlEvent& event, std::size_t depth) {
    if (event.type() == YAML_ALIAS_EVENT) return expand(event, depth);
    const std::string anchor(event.anchor());
    if (!anchor.empty()) anchors_[anchor] = std::nullopt;
    DIVISI_TRY(Node node, compose_content(event, depth));
    if (!anchor.empty()) {
      if (!count_copy(node)) return too_large(event.where());
      anchors_[anchor] = node;
    }
    return node;
  }

  Result<Node> compose_content(const YamlEvent& event, std::size_t depth) {
    if (event.type() == YAML_SCALAR_EVENT) return scalar(event);
    if (depth >= limits_.max_depth) return too_deep(event.where());
    return event.type() == YAML_SEQUENCE_START_EVENT ? sequence(depth) : mapping(depth);
  }

  Result<Node> expand(const YamlEvent& event, std::size_t depth) {
    const auto found = anchors_.find(event.anchor());
    if (found == anchors_.end()) {
      return bad_yaml(event.where(), fmt::format("there is no anchor &{}", event.anchor()));
    }
    const std::optional<Node>& kept = found->second;
    if (!kept) {
      return bad_yaml(event.where(), fmt::format("&{} contains itself", event.anchor()));
    }
    if (depth + kept->depth > limits_.max_depth) return too_deep(event.where());
    if (!count_copy(*kept)) return too_large(event.where());
    return *kept;
  }

  // Both the copy that an anchor keeps and those that its aliases become.
  bool count_copy(const Node& node) {
    copied_bytes_ += node.bytes;
    return copied_bytes_ <= limits_.max_bytes;
  }

  static Result<Node> scalar(const YamlEvent& event) {
    auto value = event.is_plain()       ? resolve_plain(event.text())
                 : !event.tag().empty() ? resolve_tagged(event.tag(), event.text())
                                        : Result<Value>(Value(event.text()));
    if (!value) return bad_yaml(event.where(), value.error().message());
    return Node{*std::move(value), sizeof(Value) + event.text().size(), 0};
  }

  Result<Node> sequence(std::size_t depth) {
    Node out{Value(), sizeof(Value), 1};
    Array items;
    for (;;) {
      DIVISI_TRY(const YamlEvent event, events_.next());
      if (event.type() == YAML_SEQUENCE_END_EVENT) break;
      DIVISI_TRY(Node item, compose(event, depth + 1));
      out.include(item);
      items.push_back(std::move(item.value));
    }
    out.value = std::move(items);
    return out;
  }

  Result<Node> mapping(std::size_t depth) {
    Node out{Value(), sizeof(Value), 1};
    Mapping map;
    for (;;) {
      DIVISI_TRY(const YamlEvent key, events_.next());
      if (key.type() == YAML_MAPPING_END_EVENT) break;
      DIVISI_TRY(const std::optional<std::string> name, read_key(key, depth, map));
      DIVISI_TRY(const YamlEvent event, events_.next());
      DIVISI_TRY(Node value, compose(event, depth + 1));
      out.include(value);
      if (name) {
        out.bytes += name->size();
        map.members.emplace_back(*name, std::move(value.value));
      } else if (can_be_merged(value.value)) {
        map.merged = std::move(value.value);
      } else {
        return bad_yaml(event.where(), "<< takes a map, or a list of maps");
      }
    }
    map.finish();
    out.value = std::move(map.members);
    return out;
  }

  // Nothing for the merge key.
  Result<std::optional<std::string>> read_key(const YamlEvent& event, std::size_t depth,
                                              Mapping& map) {
    const bool scalar = event.type() == YAML_SCALAR_EVENT;
    const bool merges = scalar && event.is_plain() && is_merge_key(event.text());
    if (!scalar && event.type() != YAML_ALIAS_EVENT) {
      return bad_yaml(event.where(), "the key of a map must be a scalar");
    }
    DIVISI_TRY(const Node node, compose(event, depth + 1));
    if (node.depth > 0) return bad_yaml(event.where(), "the key of a map must be a scalar");
    auto name = key_text(node.value);
    if (!name) return bad_yaml(event.where(), name.error().message());
    const bool fresh = merges ? !map.merged.has_value() : map.keys.insert(*name).second;
    if (!fresh) {
      return bad_yaml(event.where(), fmt::format("the key \"{}\" appears twice in its map", *name));
    }
    return merges ? std::nullopt : std::optional(*std::move(name));
  }

  tl::unexpected<Status> too_large(const yaml_mark_t& where) const {
    return bad_yaml(where,
                    fmt::format("anchors and aliases add more than {} bytes", limits_.max_bytes));
  }

  static tl::unexpected<Status> too_deep(const yaml_mark_t& where) {
    return bad_yaml(where, "nested too deeply");
  }

  YamlEvents events_;
  const ParseLimits& limits_;
  // Without a value while the node of the anchor is still being read.
  std::map<std::string, std::optional<Node>, std::less<>> anchors_;
  std::size_t copied_bytes_ = 0;
};

}  // namespace

Result<std::vector<Value>> parse_yaml(std::string_view text, const ParseLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return failure(Code::kInvalid, "YAML text of {} bytes is longer than the limit of {}",
                   text.size(), limits.max_bytes);
  }
  return Composer(text, limits).documents();
}

Result<Value> parse_yaml_one(std::string_view text, const ParseLimits& limits) {
  DIVISI_TRY(std::vector<Value> documents, parse_yaml(text, limits));
  if (documents.size() != 1) {
    return failure(Code::kInvalid, "{} YAML documents where one is expected", documents.size());
  }
  return std::move(documents.front());
}

}  // namespace divisi::json
