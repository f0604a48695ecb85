// Pointer: the place of a value inside a document, written as in RFC 6901.
//
//   DIVISI_TRY(json::Pointer where, json::Pointer::parse("/metadata/labels/app~1name"));
//   const json::Value* label = where.find(pod);
#pragma once

#include "json/value.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::json {

class Pointer {
 public:
  Pointer() = default;  // the whole document
  explicit Pointer(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {}

  // "" or tokens that each start with a slash, where ~0 stands for ~ and ~1 for a slash.
  static Result<Pointer> parse(std::string_view text);
  std::string to_string() const;

  const std::vector<std::string>& tokens() const noexcept { return tokens_; }
  bool empty() const noexcept { return tokens_.empty(); }

  // Everything but the last token. The pointer must not be empty.
  Pointer parent() const;

  // Whether `other` is this place or one inside it.
  bool contains(const Pointer& other) const noexcept;

  // Null when nothing is there.
  const Value* find(const Value& document) const noexcept;
  Value* find(Value& document) const noexcept;

  friend bool operator==(const Pointer&, const Pointer&) = default;

 private:
  std::vector<std::string> tokens_;
};

// One token as it stands in a pointer: for building one from keys.
std::string escape_token(std::string_view token);

// The array index that a token means: decimal digits without leading zeros.
std::optional<std::size_t> array_index(std::string_view token) noexcept;

}  // namespace divisi::json
