// What the globals of the closed list mean as data. Nothing here calls anything: each function
// makes a value of the arguments that a pickle gives it.
#include "pickle/nodes.h"

#include <array>
#include <bit>
#include <cstring>

namespace divisi::pickle {

namespace {

using Arguments = std::vector<NodeId>;

tl::unexpected<Status> bad_arguments(const std::string& name) {
  return failure(Code::kInvalid, "{} is applied to arguments that it does not take", name);
}

bool is_value(const Node& node, Kind kind) {
  return node.form == Node::Form::kValue && node.kind == kind;
}

bool is_sequence(const Node& node) {
  return is_value(node, Kind::kList) || is_value(node, Kind::kTuple) || is_value(node, Kind::kSet);
}

// list(x), tuple(x), set(x), frozenset(x).
Result<NodeId> make_sequence(Nodes& nodes, Kind kind, const std::string& name,
                             const Arguments& arguments) {
  if (arguments.empty()) return nodes.add(make_container(kind));
  if (arguments.size() != 1 || !is_sequence(nodes[arguments[0]])) return bad_arguments(name);
  std::vector<NodeId> items = nodes[arguments[0]].items;
  if (Status status = nodes.charge(items.size()); !status.ok()) return failure(std::move(status));
  return nodes.add(make_container(kind, std::move(items)));
}

// dict(x) of another dict, or of pairs.
Result<NodeId> make_dict(Nodes& nodes, const std::string& name, const Arguments& arguments) {
  if (arguments.empty()) return nodes.add(make_container(Kind::kDict));
  if (arguments.size() != 1) return bad_arguments(name);
  const Node& source = nodes[arguments[0]];
  if (Status status = nodes.charge(2 * source.items.size()); !status.ok()) {
    return failure(std::move(status));
  }
  if (is_value(source, Kind::kDict)) return nodes.add(make_container(Kind::kDict, source.items));
  if (!is_sequence(source)) return bad_arguments(name);
  std::vector<NodeId> items;
  for (const NodeId pair : source.items) {
    if (!is_sequence(nodes[pair]) || nodes[pair].items.size() != 2) return bad_arguments(name);
    items.push_back(nodes[pair].items[0]);
    items.push_back(nodes[pair].items[1]);
  }
  return nodes.add(make_container(Kind::kDict, std::move(items)));
}

// Text whose characters are all below U+0100 as one byte each: how protocols 0 to 2 carry bytes.
Result<std::string> latin1(const std::string& text, const std::string& name) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      bytes.push_back(text[i]);
    } else if ((byte == 0xc2 || byte == 0xc3) && i + 1 < text.size()) {
      const auto next = static_cast<unsigned char>(text[++i]);
      bytes.push_back(static_cast<char>(((byte & 3U) << 6U) | (next & 0x3fU)));
    } else {
      return bad_arguments(name);
    }
  }
  return bytes;
}

// bytes(), bytearray(b"..."), _codecs.encode("...", "latin1").
Result<NodeId> make_bytes(Nodes& nodes, const std::string& name, const Arguments& arguments) {
  if (arguments.empty()) return nodes.add(make_text(Kind::kBytes, ""));
  const Node& source = nodes[arguments[0]];
  if (arguments.size() == 1 && is_value(source, Kind::kBytes)) {
    return nodes.add(make_text(Kind::kBytes, source.text));
  }
  if (arguments.size() != 2 || !is_value(source, Kind::kStr)) return bad_arguments(name);
  const Node& encoding = nodes[arguments[1]];
  if (!is_value(encoding, Kind::kStr) ||
      (encoding.text != "latin1" && encoding.text != "latin-1")) {
    return bad_arguments(name);
  }
  DIVISI_TRY(std::string bytes, latin1(source.text, name));
  return nodes.add(make_text(Kind::kBytes, std::move(bytes)));
}

bool is_dict_class(const std::string& name) {
  return name == "builtins.dict" || name == "collections.OrderedDict" ||
         name == "easydict.EasyDict";
}

// copyreg._reconstructor(cls, base, state): how protocols 0 and 1 make an EasyDict.
Result<NodeId> reconstruct(Nodes& nodes, const std::string& name, const Arguments& arguments) {
  if (arguments.size() != 3) return bad_arguments(name);
  const Node& made = nodes[arguments[0]];
  const Node& base = nodes[arguments[1]];
  if (made.form != Node::Form::kGlobal || base.form != Node::Form::kGlobal) {
    return bad_arguments(name);
  }
  if (!is_dict_class(made.text)) {
    return failure(Code::kForbidden, "it makes an object of {}; only data is read", made.text);
  }
  if (base.text != "builtins.dict") return bad_arguments(name);
  return make_dict(nodes, name, {arguments[2]});
}

Result<NodeId> make_dtype(Nodes& nodes, const std::string& name, const Arguments& arguments) {
  if (arguments.empty() || !is_value(nodes[arguments[0]], Kind::kStr)) return bad_arguments(name);
  static constexpr std::array kTypes = {"b1", "i1", "i2", "i4", "i8", "u1",
                                        "u2", "u4", "u8", "f4", "f8"};
  Node dtype;
  dtype.form = Node::Form::kDtype;
  dtype.text = nodes[arguments[0]].text;
  for (const char* type : kTypes) {
    if (dtype.text == type) return nodes.add(std::move(dtype));
  }
  return failure(Code::kForbidden,
                 "it holds a numpy value of type '{}'; bool, integers and floats of up to 64 bits "
                 "are read",
                 dtype.text.substr(0, 40));
}

template <class T>
T number_of(std::string bytes, bool big_endian) {
  if (big_endian) bytes.assign(bytes.rbegin(), bytes.rend());
  T number{};
  std::memcpy(&number, bytes.data(), sizeof(T));
  return number;
}

template <class T>
Node integer_node(const std::string& bytes, bool big_endian) {
  Node node;
  node.kind = Kind::kInt;
  const T number = number_of<T>(bytes, big_endian);
  if (!std::in_range<std::int64_t>(number)) {
    return make_text(Kind::kBigInt, fmt::format("{}", number));
  }
  node.integer = static_cast<std::int64_t>(number);
  return node;
}

// numpy's scalar(dtype, bytes): one number as its memory.
Result<NodeId> make_scalar(Nodes& nodes, const std::string& name, const Arguments& arguments) {
  if (arguments.size() != 2 || nodes[arguments[0]].form != Node::Form::kDtype ||
      !is_value(nodes[arguments[1]], Kind::kBytes)) {
    return bad_arguments(name);
  }
  std::string type = nodes[arguments[0]].text;
  const bool big_endian = type.starts_with('>');
  if (type.size() == 3) type.erase(0, 1);
  const std::string& bytes = nodes[arguments[1]].text;
  if (bytes.size() != static_cast<std::size_t>(type[1] - '0')) return bad_arguments(name);
  Node node;
  if (type == "b1") {
    node.kind = Kind::kBool;
    node.boolean = bytes[0] != 0;
  } else if (type[0] == 'f') {
    node.kind = Kind::kFloat;
    node.number = type == "f8" ? number_of<double>(bytes, big_endian)
                               : static_cast<double>(number_of<float>(bytes, big_endian));
  } else {
    if (type == "i1") node = integer_node<std::int8_t>(bytes, big_endian);
    if (type == "i2") node = integer_node<std::int16_t>(bytes, big_endian);
    if (type == "i4") node = integer_node<std::int32_t>(bytes, big_endian);
    if (type == "i8") node = integer_node<std::int64_t>(bytes, big_endian);
    if (type == "u1") node = integer_node<std::uint8_t>(bytes, big_endian);
    if (type == "u2") node = integer_node<std::uint16_t>(bytes, big_endian);
    if (type == "u4") node = integer_node<std::uint32_t>(bytes, big_endian);
    if (type == "u8") node = integer_node<std::uint64_t>(bytes, big_endian);
  }
  return nodes.add(std::move(node));
}

bool is_numpy_scalar(const std::string& name) {
  return name == "numpy.core.multiarray.scalar" || name == "numpy._core.multiarray.scalar";
}

}  // namespace

Result<NodeId> apply(Nodes& nodes, NodeId function, const std::vector<NodeId>& arguments) {
  if (nodes[function].form != Node::Form::kGlobal) {
    return failure(Code::kInvalid, "it applies something that is no class or function");
  }
  const std::string name = nodes[function].text;
  if (is_dict_class(name)) return make_dict(nodes, name, arguments);
  if (name == "builtins.list") return make_sequence(nodes, Kind::kList, name, arguments);
  if (name == "builtins.tuple") return make_sequence(nodes, Kind::kTuple, name, arguments);
  if (name == "builtins.set") return make_sequence(nodes, Kind::kSet, name, arguments);
  if (name == "builtins.frozenset") return make_sequence(nodes, Kind::kSet, name, arguments);
  if (name == "builtins.bytes") return make_bytes(nodes, name, arguments);
  if (name == "builtins.bytearray") return make_bytes(nodes, name, arguments);
  if (name == "_codecs.encode") return make_bytes(nodes, name, arguments);
  if (name == "copyreg._reconstructor") return reconstruct(nodes, name, arguments);
  if (name == "numpy.dtype") return make_dtype(nodes, name, arguments);
  if (is_numpy_scalar(name)) return make_scalar(nodes, name, arguments);
  return failure(Code::kForbidden, "it wants to call {}; only data is read, nothing is called",
                 name);
}

Status build(Nodes& nodes, NodeId object, NodeId state) {
  Node& target = nodes[object];
  const Node& source = nodes[state];
  if (is_value(target, Kind::kDict)) {
    // The attributes of an EasyDict repeat its items; those of other dicts are no data.
    if (is_value(source, Kind::kDict) || is_value(source, Kind::kNone)) return {};
  }
  if (target.form == Node::Form::kDtype && is_value(source, Kind::kTuple) &&
      source.items.size() >= 2 && is_value(nodes[source.items[1]], Kind::kStr)) {
    const std::string& order = nodes[source.items[1]].text;
    if (order == "<" || order == ">" || order == "|" || order == "=") {
      if (target.text.size() == 2) target.text.insert(0, order);
      return {};
    }
  }
  return make_status(Code::kForbidden, "it sets the state of an object; only data is read");
}

}  // namespace divisi::pickle
