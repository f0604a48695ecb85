// YAML text in and out of json::Value, by the rules that Kubernetes' own tools use.
//
//   DIVISI_TRY(std::vector<json::Value> manifests, json::parse_yaml(text));
//   std::string text = json::print_yaml(manifests[0]);
//
// Plain scalars are resolved as YAML 1.1 says (yes and off are booleans, 010 is eight), because
// that is what kubectl does; a quoted scalar is a string. Keys become strings, dates stay strings,
// merge keys (<<) and aliases are expanded. Safe to call from any thread.
#pragma once

#include "json/value.h"

#include <string>
#include <string_view>
#include <vector>

namespace divisi::json {

// The documents of a stream; empty ones are left out. Fails with "line L, column C" for text that
// is no YAML, a key that its map already has, and what JSON cannot hold (.nan, a map as a key).
// `limits` bound the text, the depth after expansion, and what aliases add by being expanded.
Result<std::vector<Value>> parse_yaml(std::string_view text, const ParseLimits& limits = {});

// The same for a text that must hold exactly one document.
Result<Value> parse_yaml_one(std::string_view text, const ParseLimits& limits = {});

// Block style, keys in their order, quotes only where the text would read as something else, and
// `|` for text of several lines. parse_yaml_one() of the result gives the value back, as long as
// its strings are UTF-8 and its numbers finite (others are null, as in print()).
std::string print_yaml(const Value& value);

}  // namespace divisi::json
