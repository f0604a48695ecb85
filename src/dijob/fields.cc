#include "dijob/fields.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

namespace divisi::dijob {
namespace {

const json::Value kNothing{};
const json::Array kNoElements{};

std::string_view article(std::string_view kind) {
  return kind == "array" || kind == "object" ? "an " : kind == "null" ? "" : "a ";
}

std::string element(const std::string& path, std::size_t index) {
  return fmt::format("{}[{}]", path, index);
}

}  // namespace

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 80;  // longer than any name; a message stays one line
  if (text.size() <= kShown) return fmt::format("\"{}\"", text);
  return fmt::format("\"{}...\" of {} characters", text.substr(0, kShown), text.size());
}

Fields::Fields(const json::Value& object, std::string path, Status& bad)
    : object_(&object), path_(std::move(path)), bad_(&bad) {
  if (!object.is_null() && object.as_object() == nullptr) blame(path_, "an object", object);
}

void Fields::blame(const std::string& path, std::string_view wanted, const json::Value& found) {
  if (!bad_->ok()) return;
  *bad_ = make_status(Code::kInvalid, "{} must be {}, not {}{}", path, wanted,
                      article(found.kind()), found.kind());
}

std::string Fields::at(std::string_view key) const {
  return fmt::format("{}.{}", path_, key);
}

const json::Value* Fields::find(std::string_view key) const noexcept {
  const json::Value* value = object_->find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool Fields::has_null(std::string_view key) const noexcept {
  const json::Value* value = object_->find(key);
  return value != nullptr && value->is_null();
}

std::string Fields::text(std::string_view key, std::string_view otherwise) {
  const json::Value* value = find(key);
  if (value == nullptr) return std::string(otherwise);
  if (const std::string* text = value->as_string()) return *text;
  blame(at(key), "a string", *value);
  return std::string(otherwise);
}

std::optional<int> Fields::to_number(const json::Value& value, const std::string& path) {
  std::int64_t whole = 0;
  if (const std::int64_t* number = value.as_int()) {
    whole = *number;
  } else if (const double* real = value.as_double()) {
    if (std::trunc(*real) != *real || std::abs(*real) > std::numeric_limits<int>::max()) {
      if (bad_->ok())
        *bad_ = make_status(Code::kInvalid, "{} must be a whole number of 32 bits", path);
      return std::nullopt;
    }
    whole = static_cast<std::int64_t>(*real);
  } else {
    blame(path, "a number", value);
    return std::nullopt;
  }
  if (!std::in_range<int>(whole)) {
    if (bad_->ok())
      *bad_ = make_status(Code::kInvalid, "{} must be a whole number of 32 bits", path);
    return std::nullopt;
  }
  return static_cast<int>(whole);
}

std::optional<int> Fields::number(std::string_view key) {
  const json::Value* value = find(key);
  return value == nullptr ? std::nullopt : to_number(*value, at(key));
}

int Fields::number(std::string_view key, int otherwise) {
  return number(key).value_or(otherwise);
}

bool Fields::flag(std::string_view key, bool otherwise) {
  const json::Value* value = find(key);
  if (value == nullptr) return otherwise;
  if (const bool* flag = value->as_bool()) return *flag;
  blame(at(key), "a bool", *value);
  return otherwise;
}

Fields Fields::object(std::string_view key) {
  const json::Value* value = find(key);
  return {value == nullptr ? kNothing : *value, at(key), *bad_};
}

Fields Fields::object(std::string_view key, const json::Value& instead) {
  return {instead, at(key), *bad_};
}

const json::Array& Fields::array(std::string_view key) {
  const json::Value* value = find(key);
  if (value == nullptr) return kNoElements;
  if (const json::Array* array = value->as_array()) return *array;
  blame(at(key), "an array", *value);
  return kNoElements;
}

std::vector<Fields> Fields::objects(std::string_view key) {
  std::vector<Fields> found;
  const json::Array& elements = array(key);
  found.reserve(elements.size());
  for (const json::Value& value : elements) {
    const std::string path = element(at(key), found.size());
    if (value.is_null()) blame(path, "an object", value);
    found.emplace_back(value, path, *bad_);
  }
  return found;
}

std::vector<json::Value> Fields::values(std::string_view key) {
  (void)objects(key);  // says so when an element is none
  return array(key);
}

std::vector<std::string> Fields::texts(std::string_view key) {
  std::vector<std::string> found;
  for (const json::Value& value : array(key)) {
    const std::string* text = value.as_string();
    if (text == nullptr) blame(element(at(key), found.size()), "a string", value);
    found.push_back(text == nullptr ? std::string() : *text);
  }
  return found;
}

std::vector<int> Fields::numbers(std::string_view key) {
  std::vector<int> found;
  for (const json::Value& value : array(key)) {
    found.push_back(to_number(value, element(at(key), found.size())).value_or(0));
  }
  return found;
}

void Fields::require_text_map(std::string_view key) {
  const Fields map = object(key);
  const json::Object* members = map.object_->as_object();
  if (members == nullptr) return;
  for (const auto& [name, value] : *members) {
    if (value.as_string() == nullptr) blame(map.at(name), "a string", value);
  }
}

}  // namespace divisi::dijob
