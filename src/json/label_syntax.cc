// What Kubernetes accepts as the key and as the value of a label.
#include "json/selector.h"

#include <algorithm>

namespace divisi::json {
namespace {

constexpr std::size_t kMaxName = 63;
constexpr std::size_t kMaxPrefix = 253;

bool is_lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool is_letter_or_digit(char c) {
  return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z');
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxName && is_letter_or_digit(text.front()) &&
         is_letter_or_digit(text.back()) && std::ranges::all_of(text, [](char c) {
           return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.';
         });
}

bool is_dns_label(std::string_view text) {
  return !text.empty() && is_lower_or_digit(text.front()) && is_lower_or_digit(text.back()) &&
         std::ranges::all_of(text, [](char c) { return is_lower_or_digit(c) || c == '-'; });
}

bool is_dns_name(std::string_view text) {
  if (text.size() > kMaxPrefix) return false;
  for (;;) {
    const std::size_t dot = std::min(text.find('.'), text.size());
    if (!is_dns_label(text.substr(0, dot))) return false;
    if (dot == text.size()) return true;
    text.remove_prefix(dot + 1);
  }
}

}  // namespace

Status check_label_key(std::string_view key) {
  const std::size_t slash = key.find('/');
  if (slash != std::string_view::npos && !is_dns_name(key.substr(0, slash))) {
    return make_status(Code::kInvalid,
                       "\"{}\" is no label key: before the / stands a DNS name in lower case of at "
                       "most {} characters",
                       key, kMaxPrefix);
  }
  if (!is_name(slash == std::string_view::npos ? key : key.substr(slash + 1))) {
    return make_status(Code::kInvalid,
                       "\"{}\" is no label key: its name has at most {} letters, digits, -, _ and "
                       ". and starts and ends with a letter or digit",
                       key, kMaxName);
  }
  return {};
}

Status check_label_value(std::string_view value) {
  if (value.empty() || is_name(value)) return {};
  return make_status(Code::kInvalid,
                     "\"{}\" is no label value: it is empty, or at most {} letters, digits, -, _ "
                     "and . that start and end with a letter or digit",
                     value, kMaxName);
}

}  // namespace divisi::json
