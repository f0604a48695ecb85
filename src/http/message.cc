#include "http/message.h"

#include <algorithm>
#include <array>

namespace divisi::http {

namespace {

constexpr char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

struct Phrase {
  int status;
  std::string_view text;
};

constexpr auto kPhrases = std::to_array<Phrase>({
    {100, "Continue"},
    {101, "Switching Protocols"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {407, "Proxy Authentication Required"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {426, "Upgrade Required"},
    {428, "Precondition Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
});

bool unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

bool same_name(std::string_view a, std::string_view b) noexcept {
  return std::ranges::equal(a, b, {}, lower, lower);
}

bool lists_token(std::string_view list, std::string_view token) noexcept {
  while (!list.empty()) {
    const auto comma = list.find(',');
    if (same_name(trim(list.substr(0, comma)), token)) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
  return false;
}

std::string_view Headers::get(std::string_view name) const noexcept {
  for (const auto& [each, value] : fields_) {
    if (same_name(each, name)) return value;
  }
  return {};
}

bool Headers::has(std::string_view name) const noexcept {
  return std::ranges::any_of(fields_,
                             [&](const auto& field) { return same_name(field.first, name); });
}

bool Headers::lists(std::string_view name, std::string_view token) const noexcept {
  return std::ranges::any_of(fields_, [&](const auto& field) {
    return same_name(field.first, name) && lists_token(field.second, token);
  });
}

void Headers::add(std::string name, std::string value) {
  fields_.emplace_back(std::move(name), std::move(value));
}

void Headers::set(std::string name, std::string value) {
  remove(name);
  add(std::move(name), std::move(value));
}

void Headers::remove(std::string_view name) {
  std::erase_if(fields_, [&](const auto& field) { return same_name(field.first, name); });
}

std::string_view reason_phrase(int status) {
  const auto found = std::ranges::lower_bound(kPhrases, status, {}, &Phrase::status);
  return found != kPhrases.end() && found->status == status ? found->text : std::string_view();
}

std::string encode_component(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    if (unreserved(c)) {
      encoded += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      encoded += '%';
      encoded += kDigits[byte >> 4];
      encoded += kDigits[byte & 15];
    }
  }
  return encoded;
}

bool decode_component(std::string_view text, std::string& decoded) {
  decoded.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return false;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return true;
}

Status check_sendable(const Headers& headers) {
  for (const auto& [name, value] : headers) {
    const bool token = !name.empty() && std::ranges::all_of(name, [](char c) {
      return c > ' ' && c < 127 &&
             std::string_view("()<>@,;:\\\"/[]?={}").find(c) == std::string_view::npos;
    });
    if (!token) return make_status(Code::kInvalid, "'{}' is no name of a header", name);
    if (value.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos) {
      return make_status(Code::kInvalid, "the value of the header {} has a line break", name);
    }
  }
  return {};
}

void append_headers(std::string& text, const Headers& headers) {
  for (const auto& [name, value] : headers) {
    text.append(name).append(": ").append(value).append("\r\n");
  }
  text += "\r\n";
}

void append_chunk(std::string& text, std::string_view piece) {
  if (piece.empty()) return;  // an empty chunk would be the last one
  fmt::format_to(std::back_inserter(text), "{:x}\r\n", piece.size());
  text.append(piece).append("\r\n");
}

}  // namespace divisi::http
