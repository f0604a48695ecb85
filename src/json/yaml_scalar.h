// What a YAML scalar means by the rules of YAML 1.1 as Kubernetes' tools apply them. Inside
// src/json only: the reader asks it for values, the printer for what needs quotes.
#pragma once

#include "json/value.h"

#include <string>
#include <string_view>

namespace divisi::json {

// True for the plain text <<, which merges another map.
inline bool is_merge_key(std::string_view plain) noexcept {
  return plain == "<<";
}

// A scalar without quotes and without a tag. kInvalid for infinities and .nan.
Result<Value> resolve_plain(std::string_view text);

// A scalar with a tag: "tag:yaml.org,2002:int" and its kin. Tags that are not known leave the
// text as it is; those that are known and do not fit are kInvalid.
Result<Value> resolve_tagged(std::string_view tag, std::string_view text);

// Whether the text, printed without quotes, would be read as the same string.
bool reads_as_string(std::string_view plain);

// A scalar that is the key of a map, as encoding/json would name it. kInvalid for null.
Result<std::string> key_text(const Value& scalar);

}  // namespace divisi::json
