#include "tune/value_json.h"

#include "json/value.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace divisi::tune {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

json::Value tagged(const char* tag, json::Value data) {
  return json::Object{{tag, std::move(data)}};
}

std::string to_base64(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      const std::uint32_t byte =
          i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0;
      group = group << 8U | byte;
    }
    for (std::size_t k = 0; k < 4; ++k) {
      const bool there = i + k <= bytes.size();
      text += there ? kDigits[group >> (18U - 6U * k) & 63U] : '=';
    }
  }
  return text;
}

std::string from_base64(std::string_view text) {
  std::string bytes;
  std::uint32_t group = 0;
  unsigned bits = 0;
  for (const char digit : text) {
    const std::size_t value = kDigits.find(digit);
    if (value == std::string_view::npos) break;
    group = group << 6U | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(group >> bits & 255U);
  }
  return bytes;
}

json::Value encoded(const Value& value);

json::Value encoded_map(const Value::Map& map) {
  bool plain = true;
  for (const auto& [key, item] : map) {
    const auto* name = key.get_if<std::string>();
    plain = plain && name != nullptr && !name->starts_with('$');
  }
  json::Object object;
  json::Array pairs;
  for (const auto& [key, item] : map) {
    if (plain) {
      object.emplace_back(*key.get_if<std::string>(), encoded(item));
    } else {
      pairs.emplace_back(json::Array{encoded(key), encoded(item)});
    }
  }
  return plain ? json::Value(std::move(object)) : tagged("$dict", std::move(pairs));
}

json::Value encoded_number(double number) {
  if (std::isfinite(number)) return number;
  return tagged("$float", std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
}

json::Value encoded(const Value& value) {
  if (value.is_nil()) return {};
  if (const auto* flag = value.get_if<bool>()) return *flag;
  if (const auto* whole = value.get_if<std::int64_t>()) return *whole;
  if (const auto* large = value.get_if<std::uint64_t>()) {
    return tagged("$int", std::to_string(*large));
  }
  if (const auto* number = value.get_if<double>()) return encoded_number(*number);
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (const auto* bytes = value.get_if<Buffer>()) {
    return tagged("$bytes",
                  to_base64({reinterpret_cast<const char*>(bytes->data()), bytes->size()}));
  }
  if (const auto* map = value.get_if<Value::Map>()) return encoded_map(*map);
  if (const auto* list = value.get_if<Value::Array>()) {
    json::Array items;
    for (const Value& item : *list) items.push_back(encoded(item));
    return items;
  }
  return tagged("$repr", value.describe());
}

Value decoded(const json::Value& value);

Value::Array decoded_items(const json::Array& from) {
  Value::Array items;
  for (const json::Value& item : from) items.push_back(decoded(item));
  return items;
}

Value decoded_pairs(const json::Array& pairs) {
  Value::Map map;
  for (const json::Value& pair : pairs) {
    const json::Array* two = pair.as_array();
    if (two != nullptr && two->size() == 2)
      map.emplace_back(decoded((*two)[0]), decoded((*two)[1]));
  }
  return map;
}

Value decoded_text_tag(std::string_view tag, const std::string& text) {
  if (tag == "$float") {
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (tag == "$bytes") return Buffer::copy_of(from_base64(text));
  if (tag == "$int") {
    std::uint64_t whole = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
    if (error == std::errc() && end == text.data() + text.size()) return whole;
  }
  return text;
}

Value decoded(const json::Value& value) {
  if (const bool* flag = value.as_bool()) return *flag;
  if (const std::int64_t* whole = value.as_int()) return *whole;
  if (const double* number = value.as_double()) return *number;
  if (const std::string* text = value.as_string()) return *text;
  if (const json::Array* list = value.as_array()) return decoded_items(*list);
  const json::Object* object = value.as_object();
  if (object == nullptr) return {};
  if (object->size() == 1 && object->front().first.starts_with('$')) {
    const auto& [tag, data] = object->front();
    if (tag == "$dict" && data.as_array() != nullptr) return decoded_pairs(*data.as_array());
    if (data.as_array() != nullptr) return decoded_items(*data.as_array());  // $tuple, $set
    if (data.as_string() != nullptr) return decoded_text_tag(tag, *data.as_string());
  }
  Value::Map map;
  for (const auto& [key, item] : *object) map.emplace_back(Value(key), decoded(item));
  return map;
}

}  // namespace

std::string value_to_json(const Value& value) {
  return json::print(encoded(value));
}

Value value_from_json(std::string_view text) {
  const Result<json::Value> value = json::parse(text, {.max_bytes = text.size() + 1});
  return value ? decoded(*value) : Value();
}

}  // namespace divisi::tune
