// json::Value: a JSON document as a plain value, its text form, and where a bad text is bad.
//
//   DIVISI_TRY(json::Value spec, json::parse(text));
//   const json::Value* tasks = spec.find("tasks");
//
// Values are copied and moved like any other; a const Value may be read from many threads.
// Objects keep the order of their keys, so that what is printed reads as it was written.
#pragma once

#include "base/status.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace divisi::json {

class Value;
using Array = std::vector<Value>;
using Member = std::pair<std::string, Value>;
using Object = std::vector<Member>;

class Value {
 public:
  Value() = default;  // null
  Value(bool value) : data_(value) {}
  Value(int value) : data_(std::int64_t{value}) {}
  Value(std::int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(std::string_view value) : data_(std::string(value)) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(Array value) : data_(std::move(value)) {}
  Value(Object value) : data_(std::move(value)) {}

  bool is_null() const noexcept { return std::holds_alternative<std::monostate>(data_); }

  // Null unless the value is of that kind.
  const bool* as_bool() const noexcept { return std::get_if<bool>(&data_); }
  const std::int64_t* as_int() const noexcept { return std::get_if<std::int64_t>(&data_); }
  const double* as_double() const noexcept { return std::get_if<double>(&data_); }
  const std::string* as_string() const noexcept { return std::get_if<std::string>(&data_); }
  const Array* as_array() const noexcept { return std::get_if<Array>(&data_); }
  const Object* as_object() const noexcept { return std::get_if<Object>(&data_); }

  // The member of an object; null when there is none or this is no object.
  const Value* find(std::string_view key) const noexcept;

  // "null", "bool", "number", "string", "array" or "object": for error messages.
  std::string_view kind() const noexcept;

  friend bool operator==(const Value&, const Value&) = default;

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> data_;
};

struct ParseLimits {
  std::size_t max_bytes = std::size_t{16} << 20;  // a configuration, not a data set
  std::size_t max_depth = 64;                     // deeper than any document we read
};

// One document, nothing after it. Fails with the line and column; a key that appears twice in
// an object is an error too, because readers disagree on which one counts.
Result<Value> parse(std::string_view text, const ParseLimits& limits = {});

// `indent` spaces a level; 0 prints everything on one line.
std::string print(const Value& value, int indent = 0);

}  // namespace divisi::json
