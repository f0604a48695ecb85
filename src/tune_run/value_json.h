// Values of the tuner as JSON documents, and back.
//
// A number that JSON lacks is tagged as studies do it: {"$float": "nan"}.
#pragma once

#include "divisi/value.h"
#include "json/value.h"

#include <string>

namespace divisi::tune_run {

// Bytes and tensors become their description.
json::Value to_json(const Value& value);
Value from_json(const json::Value& document);

// As one line of text; nil for a text that is empty or no JSON.
std::string to_text(const Value& value);
Value from_text(const std::string& text);

// For command lines, tables and labels: text as it is, everything else as JSON.
std::string plain_text(const Value& value);

// The value at a path like "policy.lr" or "layers.0"; nil if there is none.
Value value_at(const Value& config, std::string_view path);

}  // namespace divisi::tune_run
