// The number that a label's value is for the operators > and <. Inside src/json only.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace divisi::json {

inline std::optional<std::int64_t> label_integer(std::string_view text) noexcept {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == end;
  return whole ? std::optional(number) : std::nullopt;
}

}  // namespace divisi::json
