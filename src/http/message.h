// Requests and responses of HTTP/1.1 as plain values.
#pragma once

#include "base/status.h"

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace divisi::http {

// In the order they were added; names compare without regard to case.
class Headers {
 public:
  Headers() = default;
  Headers(std::initializer_list<std::pair<std::string, std::string>> fields) : fields_(fields) {}

  // The first of that name; empty when there is none.
  std::string_view get(std::string_view name) const noexcept;
  bool has(std::string_view name) const noexcept;
  // Whether a header of that name has `token` in its comma-separated list.
  bool lists(std::string_view name, std::string_view token) const noexcept;
  void add(std::string name, std::string value);
  // Replaces all of that name.
  void set(std::string name, std::string value);
  void remove(std::string_view name);

  auto begin() const noexcept { return fields_.begin(); }
  auto end() const noexcept { return fields_.end(); }
  std::size_t size() const noexcept { return fields_.size(); }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

struct Request {
  std::string method = "GET";
  std::string target = "/";  // path and query, percent-encoded
  Headers headers{};
  std::string body{};
};

struct ResponseHead {
  int status = 0;
  std::string reason{};
  Headers headers{};
};

struct Response {
  int status = 200;
  Headers headers{};
  std::string body{};
};

// Bounds on what the other side may send. Beyond them the connection ends with one clear error.
struct Limits {
  std::size_t max_header_bytes = std::size_t{64} << 10;  // the start line and all headers
  std::size_t max_body_bytes = std::size_t{64} << 20;    // of one message that is collected whole
};

// "Not Found" of 404: the standard reason phrase; "" for a number that has none.
std::string_view reason_phrase(int status);

// Percent-encodes all but unreserved characters: for one part of a path, or a query value.
std::string encode_component(std::string_view text);
// False for text that is no valid encoding.
bool decode_component(std::string_view text, std::string& decoded);

// --- for those who write messages ---

// Header names, tokens and schemes: without regard to case.
bool same_name(std::string_view a, std::string_view b) noexcept;
bool lists_token(std::string_view list, std::string_view token) noexcept;

// Fails for a name or value that would break the message apart.
Status check_sendable(const Headers& headers);
// The fields and the empty line behind them.
void append_headers(std::string& text, const Headers& headers);
// One chunk; nothing for an empty piece.
void append_chunk(std::string& text, std::string_view piece);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace divisi::http
