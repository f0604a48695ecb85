#include "launch/text.h"

#include <algorithm>
#include <charconv>

namespace divisi::launch {
namespace {

constexpr std::size_t kMaxHostLength = 253;  // what DNS allows

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_';
}

bool is_ipv6_character(char c) {
  return is_host_character(c) || c == ':' || c == '%';
}

}  // namespace

std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 80;
  std::string out(text.substr(0, kMost));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (text.size() > kMost) out += "...";
  return out;
}

std::optional<std::string_view> lookup(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  if (found == environment.end()) return std::nullopt;
  const std::string_view value = trimmed(found->second);
  if (value.empty()) return std::nullopt;
  return value;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::vector<std::string> split_list(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    const std::string_view part = trimmed(text.substr(0, end));
    if (!part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

Result<int> parse_int(std::string_view text, int low, int high, std::string_view what) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return failure(Code::kInvalid, "{}: '{}' is not a whole number from {} to {}", what,
                   shown(text), low, high);
  }
  return value;
}

Result<int> parse_port(std::string_view text, std::string_view what) {
  auto port = parse_int(text, 1, 65535, what);
  if (!port) {
    return failure(Code::kInvalid, "{}: '{}' is not a port number (1 to 65535)", what, shown(text));
  }
  return port;
}

Status check_host(std::string_view host, std::string_view what) {
  if (host.empty()) return make_status(Code::kInvalid, "{}: the host name is empty", what);
  if (host.size() > kMaxHostLength) {
    return make_status(Code::kInvalid, "{}: the host name '{}' is longer than {} characters", what,
                       shown(host), kMaxHostLength);
  }
  if (std::ranges::all_of(host, is_host_character)) return {};
  const bool ipv6 = std::ranges::count(host, ':') >= 2;
  if (ipv6 && std::ranges::all_of(host, is_ipv6_character)) return {};
  return make_status(Code::kInvalid, "{}: '{}' is not a host name or address (no scheme, no port)",
                     what, shown(host));
}

}  // namespace divisi::launch
