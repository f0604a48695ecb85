#include "tune_run/value_json.h"

#include <cmath>

namespace divisi::tune_run {
namespace {

constexpr std::string_view kFloatTag = "$float";

json::Value number_json(double number) {
  if (std::isfinite(number)) return number;
  const char* const text = std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
  return json::Object{{std::string(kFloatTag), text}};
}

std::string key_text(const Value& key) {
  const auto* text = key.get_if<std::string>();
  return text != nullptr ? *text : json::print(to_json(key));
}

// The number of a tag; nothing for other objects.
const std::string* float_tag(const json::Object& object) {
  const bool tagged = object.size() == 1 && object.front().first == kFloatTag;
  return tagged ? object.front().second.as_string() : nullptr;
}

double tagged_number(const std::string& text) {
  if (text == "inf") return HUGE_VAL;
  return text == "-inf" ? -HUGE_VAL : std::nan("");
}

}  // namespace

json::Value to_json(const Value& value) {
  if (value.is_nil()) return {};
  if (const auto* flag = value.get_if<bool>()) return *flag;
  if (const auto* whole = value.get_if<std::int64_t>()) return *whole;
  if (const auto* large = value.get_if<std::uint64_t>()) return static_cast<double>(*large);
  if (const auto* number = value.get_if<double>()) return number_json(*number);
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (const auto* items = value.get_if<Value::Array>()) {
    json::Array array;
    for (const Value& item : *items) array.push_back(to_json(item));
    return array;
  }
  if (const auto* entries = value.get_if<Value::Map>()) {
    json::Object object;
    for (const auto& [key, item] : *entries) object.emplace_back(key_text(key), to_json(item));
    return object;
  }
  return value.describe();
}

Value from_json(const json::Value& document) {
  if (const bool* flag = document.as_bool()) return *flag;
  if (const auto* whole = document.as_int()) return *whole;
  if (const double* number = document.as_double()) return *number;
  if (const auto* text = document.as_string()) return *text;
  if (const auto* items = document.as_array()) {
    Value::Array array;
    for (const json::Value& item : *items) array.push_back(from_json(item));
    return array;
  }
  if (const auto* members = document.as_object()) {
    if (const std::string* tag = float_tag(*members)) return tagged_number(*tag);
    Value::Map map;
    for (const auto& [key, item] : *members) map.emplace_back(Value(key), from_json(item));
    return map;
  }
  return {};
}

std::string to_text(const Value& value) {
  return json::print(to_json(value));
}

Value from_text(const std::string& text) {
  if (text.empty()) return {};
  const Result<json::Value> document = json::parse(text);
  return document ? from_json(*document) : Value();
}

std::string plain_text(const Value& value) {
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (const auto* number = value.get_if<double>()) return fmt::format("{}", *number);
  return to_text(value);
}

Value value_at(const Value& config, std::string_view path) {
  const auto* entries = config.get_if<Value::Map>();
  const auto* items = config.get_if<Value::Array>();
  const std::size_t dot = path.find('.');
  const std::string_view first = path.substr(0, dot);
  const auto rest = [&](const Value& inner) {
    return dot == std::string_view::npos ? inner : value_at(inner, path.substr(dot + 1));
  };
  for (std::size_t i = 0; entries != nullptr && i < entries->size(); ++i) {
    const auto& [key, value] = (*entries)[i];
    if (const auto* name = key.get_if<std::string>(); name != nullptr && *name == path)
      return value;
    if (const auto* name = key.get_if<std::string>(); name != nullptr && *name == first) {
      return rest(value);
    }
  }
  for (std::size_t i = 0; items != nullptr && i < items->size(); ++i) {
    if (std::to_string(i) == first) return rest((*items)[i]);
  }
  return {};
}

}  // namespace divisi::tune_run
