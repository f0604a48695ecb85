// The values that pickles write as text (protocol 0) or as integers of any length.
#pragma once

#include "base/status.h"
#include "pickle/nodes.h"

#include <string>
#include <string_view>

namespace divisi::pickle {

bool is_utf8(std::string_view text);
void append_utf8(std::string& out, std::uint32_t code_point);

// 'it\'s' or "..." with Python's escapes; ASCII only.
Result<std::string> read_quoted(std::string_view line);
// Latin-1 with \uXXXX and \UXXXXXXXX.
Result<std::string> read_raw_unicode(std::string_view line);
// "12", "12L"; "00" and "01" are False and True where `booleans` says so.
Result<Node> read_decimal(std::string_view line, bool booleans);
Result<Node> read_float(std::string_view line);
// Two's complement, little-endian; no bytes are 0.
Result<Node> read_long(std::string_view bytes);

}  // namespace divisi::pickle
