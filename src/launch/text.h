// Small readers of text that users and schedulers write: lists, numbers, host names.
#pragma once

#include "base/status.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::launch {

// The process environment as a value, so that parsers of it can be tested and fuzzed.
using Environment = std::map<std::string, std::string, std::less<>>;

// What an error message may show of a text that somebody else wrote: short and printable.
std::string shown(std::string_view text);

// The variable's value; nothing when it is missing or empty (schedulers export empty ones).
std::optional<std::string_view> lookup(const Environment& environment, std::string_view name);

std::string_view trimmed(std::string_view text);

// "a, b,,c" -> a, b, c: blanks around parts and empty parts are dropped.
std::vector<std::string> split_list(std::string_view text, char separator = ',');

// A decimal integer in [low, high], nothing else around it. `what` names it in the error.
Result<int> parse_int(std::string_view text, int low, int high, std::string_view what);

Result<int> parse_port(std::string_view text, std::string_view what);

// A host to listen on: a name or an address without scheme and port.
Status check_host(std::string_view host, std::string_view what);

}  // namespace divisi::launch
