#include "pickle/value.h"

namespace divisi::pickle {

namespace {

Result<json::Value> value_to_json(const Value& value, const std::string& place);

std::string shown(const std::string& place) {
  return place.empty() ? "the pickle" : place;
}

Result<json::Value> items_to_json(const Value& value, const std::string& place) {
  json::Array array;
  array.reserve(value.items.size());
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    DIVISI_TRY(json::Value item, value_to_json(value.items[i], fmt::format("{}[{}]", place, i)));
    array.push_back(std::move(item));
  }
  return json::Value(std::move(array));
}

Result<json::Value> members_to_json(const Value& value, const std::string& place) {
  json::Object object;
  object.reserve(value.members.size());
  for (const auto& [key, member] : value.members) {
    if (key.kind != Kind::kStr) {
      return failure(Code::kInvalid,
                     "{}: a dict with a key of type {}; only text can be a key here", shown(place),
                     kind_name(key.kind));
    }
    const std::string inner = place.empty() ? key.text : fmt::format("{}.{}", place, key.text);
    DIVISI_TRY(json::Value converted, value_to_json(member, inner));
    object.emplace_back(key.text, std::move(converted));
  }
  return json::Value(std::move(object));
}

// As deep as load() lets a value be.
// NOLINTNEXTLINE(misc-no-recursion): bounded by Limits::max_depth
Result<json::Value> value_to_json(const Value& value, const std::string& place) {
  switch (value.kind) {
    case Kind::kNone: return json::Value();
    case Kind::kBool: return json::Value(value.boolean);
    case Kind::kInt: return json::Value(value.integer);
    case Kind::kFloat: return json::Value(value.number);
    case Kind::kStr: return json::Value(value.text);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kSet: return items_to_json(value, place);
    case Kind::kDict: return members_to_json(value, place);
    case Kind::kBigInt:
      return failure(Code::kInvalid, "{}: the integer {} does not fit 64 bits", shown(place),
                     value.text.size() > 40 ? value.text.substr(0, 40) + "..." : value.text);
    case Kind::kBytes: break;
  }
  return failure(Code::kInvalid, "{}: a value of type {} has no place in a document", shown(place),
                 kind_name(value.kind));
}

}  // namespace

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kNone: return "None";
    case Kind::kBool: return "bool";
    case Kind::kInt:
    case Kind::kBigInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kStr: return "str";
    case Kind::kBytes: return "bytes";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kSet: return "set";
    case Kind::kDict: return "dict";
  }
  return "unknown";
}

const Value* Value::find(std::string_view key) const noexcept {
  for (const auto& [name, member] : members) {
    if (name.kind == Kind::kStr && name.text == key) return &member;
  }
  return nullptr;
}

Result<json::Value> to_json(const Value& value) {
  return value_to_json(value, "");
}

}  // namespace divisi::pickle
