// How objects are shown: as tables, YAML, JSON or names.
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <string>
#include <string_view>

namespace divisi::apps {

// The Accept header that makes a server answer with a table where it can.
inline constexpr std::string_view kTableType =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

// To standard output, at once.
void print(std::string_view text);

// A Table of the API in columns; with `wide` those of lower priority, too. What is no Table is
// shown by its name.
std::string print_table(const json::Value& table, bool wide, bool with_space);

// `format`: "yaml", "json", "name". A list prints its items, one after another.
Result<std::string> print_objects(const json::Value& value, std::string_view format);

}  // namespace divisi::apps
