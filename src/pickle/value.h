// pickle::Value: what a Python pickle can hold as far as this program reads it: plain data.
//
// Tuples, sets and bytes are kept apart from lists and text; to_json() gives them up where the
// reader wants a document.
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace divisi::pickle {

enum class Kind {
  kNone,
  kBool,
  kInt,
  kBigInt,  // does not fit 64 bits; `text` has its decimal digits
  kFloat,
  kStr,    // `text`, valid UTF-8
  kBytes,  // `text`; bytearray too
  kList,
  kTuple,
  kSet,  // frozenset too
  kDict,
};

// "None", "bool", "int", ... : as Python names it, for messages.
std::string_view kind_name(Kind kind);

struct Value {
  Kind kind = Kind::kNone;
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0;
  std::string text{};
  std::vector<Value> items{};                      // of a list, tuple or set
  std::vector<std::pair<Value, Value>> members{};  // of a dict, in the order of insertion

  // The member of a dict with this text as its key; null when there is none.
  const Value* find(std::string_view key) const noexcept;

  friend bool operator==(const Value&, const Value&) = default;
};

// As a document: tuples and sets become arrays. Fails, naming the place ("main.env[2]"), for
// bytes, for an integer beyond 64 bits and for a dict whose key is no text.
Result<json::Value> to_json(const Value& value);

}  // namespace divisi::pickle
