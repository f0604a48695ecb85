// How both sides agree to speak WebSocket.
#include "base/log.h"
#include "http/base64.h"
#include "http/websocket.h"
#include "io/crypto.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace divisi::http {

namespace {

constexpr std::string_view kVersion = "13";

// RFC 6455, 1.3: proves that the answer is to this request.
std::string accept_value(std::string_view key) {
  const auto digest = io::sha1(fmt::format("{}258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key));
  return encode_base64({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

}  // namespace

Headers WebSocket::request_headers(std::string& key, const std::vector<std::string>& protocols) {
  std::array<std::byte, 16> nonce{};
  io::fill_random(nonce);
  key = encode_base64({reinterpret_cast<const char*>(nonce.data()), nonce.size()});
  Headers headers{{"Connection", "Upgrade"},
                  {"Upgrade", "websocket"},
                  {"Sec-WebSocket-Version", std::string(kVersion)},
                  {"Sec-WebSocket-Key", key}};
  if (!protocols.empty()) {
    headers.add("Sec-WebSocket-Protocol", fmt::format("{}", fmt::join(protocols, ", ")));
  }
  return headers;
}

Status WebSocket::check_answer(const ResponseHead& head, std::string_view key,
                               const std::vector<std::string>& protocols) {
  if (head.status != 101) {
    return make_status(Code::kUnavailable, "no WebSocket: the server answered {} {}", head.status,
                       log::printable(head.reason));
  }
  if (!head.headers.lists("Upgrade", "websocket") || !head.headers.lists("Connection", "Upgrade") ||
      head.headers.get("Sec-WebSocket-Accept") != accept_value(key)) {
    return {Code::kUnavailable, "no WebSocket: the server's answer does not fit the request"};
  }
  if (head.headers.has("Sec-WebSocket-Extensions")) {
    return {Code::kUnavailable, "no WebSocket: the server uses extensions that nobody asked for"};
  }
  const auto chosen = head.headers.get("Sec-WebSocket-Protocol");
  if (protocols.empty() || std::ranges::find(protocols, chosen) != protocols.end()) return {};
  return make_status(Code::kUnavailable, "no WebSocket: we offered {}, the server chose {}",
                     fmt::join(protocols, " and "),
                     chosen.empty() ? "none" : log::printable(std::string(chosen)));
}

Result<Headers> WebSocket::answer_headers(const Request& request, std::string_view protocol) {
  const auto& headers = request.headers;
  const auto key = headers.get("Sec-WebSocket-Key");
  if (request.method != "GET" || !headers.lists("Upgrade", "websocket") ||
      !headers.lists("Connection", "Upgrade")) {
    return failure(Code::kInvalid, "this is for WebSocket clients only");
  }
  if (headers.get("Sec-WebSocket-Version") != kVersion) {
    return failure(Code::kInvalid, "only version 13 of WebSocket is spoken here");
  }
  if (const auto nonce = decode_base64(key); !nonce || nonce->size() != 16) {
    return failure(Code::kInvalid, "the Sec-WebSocket-Key is not 16 bytes in base64");
  }
  Headers answer{{"Connection", "Upgrade"},
                 {"Upgrade", "websocket"},
                 {"Sec-WebSocket-Accept", accept_value(key)}};
  if (protocol.empty()) return answer;
  if (!headers.lists("Sec-WebSocket-Protocol", protocol)) {
    return failure(Code::kInvalid, "only the WebSocket protocol '{}' is spoken here", protocol);
  }
  answer.add("Sec-WebSocket-Protocol", std::string(protocol));
  return answer;
}

}  // namespace divisi::http
