#include "kube/auth_headers.h"

#include "http/base64.h"

#include <algorithm>

namespace divisi::kube {
namespace {

// A line break in a value would begin a header of somebody else's choice.
bool fits_header(std::string_view value) {
  return std::ranges::all_of(value,
                             [](unsigned char c) { return c == '\t' || (c >= 0x20 && c != 0x7f); });
}

bool is_token_character(unsigned char c) {
  return c > 0x20 && c < 0x7f;
}

// Keys may have any characters, names of headers may not: the others are percent-encoded, which
// the server undoes.
std::string escaped_key(std::string_view key) {
  constexpr std::string_view kPunctuation = "!#$&'*+-.^_`|~";
  std::string escaped;
  for (const char c : key) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       kPunctuation.find(c) != std::string_view::npos;
    escaped += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return escaped;
}

}  // namespace

Result<std::string> bearer(std::string_view token, std::string_view where) {
  constexpr std::size_t kMost = std::size_t{48} << 10;  // servers take headers of 64 KiB at best
  if (token.empty()) return failure(Code::kUnauthorized, "{}: the token is empty", where);
  if (token.size() > kMost) {
    return failure(Code::kInvalid, "{}: the token is longer than {} bytes", where, kMost);
  }
  if (!std::ranges::all_of(token, is_token_character)) {
    return failure(Code::kInvalid, "{}: the token has characters that no token has", where);
  }
  return fmt::format("Bearer {}", token);
}

std::string basic(const std::string& username, const std::string& password) {
  return "Basic " + http::encode_base64(fmt::format("{}:{}", username, password));
}

Result<http::Headers> impersonation_headers(const Impersonation& as) {
  http::Headers headers;
  if (as.user.empty()) return headers;
  headers.add("Impersonate-User", as.user);
  if (!as.uid.empty()) headers.add("Impersonate-Uid", as.uid);
  for (const std::string& group : as.groups) headers.add("Impersonate-Group", group);
  for (const auto& [key, values] : as.extra) {
    for (const std::string& value : values) {
      headers.add("Impersonate-Extra-" + escaped_key(key), value);
    }
  }
  for (const auto& [name, value] : headers) {
    if (fits_header(value)) continue;
    return failure(Code::kInvalid, "{}: its value has control characters", name);
  }
  return headers;
}

}  // namespace divisi::kube
