#include "http/base64.h"

#include <cstdint>

namespace divisi::http {

namespace {
constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
}  // namespace

std::string encode_base64(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto group = bytes.substr(i, 3);
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < group.size() ? static_cast<unsigned char>(group[k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += k <= group.size() ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

std::optional<std::string> decode_base64(std::string_view text) {
  std::string bytes;
  if (text.size() % 4 != 0) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t bits = 0;
    std::size_t digits = 0;
    for (; digits < 4 && text[i + digits] != '='; ++digits) {
      const auto value = kDigits.find(text[i + digits]);
      if (value == std::string_view::npos) return std::nullopt;
      bits |= static_cast<std::uint32_t>(value) << (18 - 6 * digits);
    }
    for (std::size_t k = 1; k < digits; ++k) bytes += static_cast<char>(bits >> (24 - 8 * k) & 255);
  }
  // Padding inside, stray bits and short groups do not come back the same.
  if (encode_base64(bytes) != text) return std::nullopt;
  return bytes;
}

}  // namespace divisi::http
