// json::Value: a JSON document as a plain value, its text form, and where a bad text is bad.
//
//   DIVISI_TRY(json::Value pod, json::parse(text));
//   const std::string_view name = pod.string_at({"metadata", "name"});
//   pod["metadata"]["labels"]["app"] = "learner";
//
// Values are copied and moved like any other; a const Value may be read from many threads.
// Objects keep the order of their keys, so that what is printed reads as it was written.
#pragma once

#include "base/status.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
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
using Path = std::initializer_list<std::string_view>;  // keys from the outermost object inwards

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

  // Moves are not inline: g++ 12 warns of strings in the variant that are never there.
  Value(const Value&) = default;
  Value& operator=(const Value&) = default;
  Value(Value&& other) noexcept;
  Value& operator=(Value&& other) noexcept;
  ~Value() = default;

  bool is_null() const noexcept { return std::holds_alternative<std::monostate>(data_); }

  // Null unless the value is of that kind.
  const bool* as_bool() const noexcept { return std::get_if<bool>(&data_); }
  const std::int64_t* as_int() const noexcept { return std::get_if<std::int64_t>(&data_); }
  const double* as_double() const noexcept { return std::get_if<double>(&data_); }
  const std::string* as_string() const noexcept { return std::get_if<std::string>(&data_); }
  const Array* as_array() const noexcept { return std::get_if<Array>(&data_); }
  const Object* as_object() const noexcept { return std::get_if<Object>(&data_); }
  std::string* as_string() noexcept { return std::get_if<std::string>(&data_); }
  Array* as_array() noexcept { return std::get_if<Array>(&data_); }
  Object* as_object() noexcept { return std::get_if<Object>(&data_); }

  // The member of an object; null when there is none or this is no object. Linear in the number
  // of keys, which are few and in one piece of memory.
  const Value* find(std::string_view key) const noexcept;
  Value* find(std::string_view key) noexcept;

  // The member of an object, inserted last as null when absent. What is no object becomes an empty
  // one first, so that v["a"]["b"] always leads somewhere: look before where that would lose data.
  Value& operator[](std::string_view key);
  Value& operator[](int) = delete;  // a literal 0 would be taken for a null key

  // False when there was no such member.
  bool erase(std::string_view key);

  // The same through nested objects: absent, or of another kind, is null, "" and nullopt.
  const Value* find_path(Path path) const noexcept;
  std::string_view string_at(Path path) const noexcept;
  std::optional<std::int64_t> int_at(Path path) const noexcept;
  std::optional<bool> bool_at(Path path) const noexcept;

  // "null", "bool", "number", "string", "array" or "object": for error messages.
  std::string_view kind() const noexcept;

  // The same kinds and the same order of keys; equivalent() below asks for less.
  friend bool operator==(const Value&, const Value&) = default;

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> data_;
};

// Whether two documents mean the same: keys in any order, and 1 is 1.0.
bool equivalent(const Value& a, const Value& b);

struct ParseLimits {
  std::size_t max_bytes = std::size_t{16} << 20;  // a configuration, not a data set
  std::size_t max_depth = 64;                     // deeper than any document we read
};

// One document, nothing after it. Fails with the line and column; a key that appears twice in
// an object is an error too, because readers disagree on which one counts.
Result<Value> parse(std::string_view text, const ParseLimits& limits = {});

// The same for text that arrives in pieces, built while the rest is still on its way.
//
//   Parser parser({.max_bytes = 1 << 20});
//   DIVISI_TRY_STATUS(parser.write(piece));  ...  DIVISI_TRY(Value value, parser.finish());
//
// Errors name the byte, counted from 1. Not thread-safe.
class Parser {
 public:
  explicit Parser(const ParseLimits& limits = {});
  Parser(Parser&&) noexcept;
  Parser& operator=(Parser&&) noexcept;
  ~Parser();

  // Fails as soon as the text cannot become a document any more; then always.
  Status write(std::string_view piece);
  Result<Value> finish();  // once, last

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// `indent` spaces a level; 0 prints everything on one line. A number that is not finite is null.
std::string print(const Value& value, int indent = 0);

}  // namespace divisi::json
