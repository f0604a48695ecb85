// Requests and answers of the interaction protocol: the envelope, and the checks that every request
// passes. Pure functions.
#pragma once

#include "base/status.h"
#include "dist/protocol.h"
#include "http/message.h"
#include "json/value.h"

#include <optional>
#include <string>
#include <string_view>

namespace divisi::dist {

// {"success", "code", "message", "data"}; HTTP 200.
http::Response success(std::string_view message, json::Value data = {});
http::Response refused(int http_status, ReplyCode code, std::string_view message);
// What no code of the protocol is for (malformed JSON, an unknown path): code 1.
http::Response failed(int http_status, std::string_view message);

// The object in a body; an empty body is {}. Infinity and NaN, which Python writes, are null.
Result<json::Value> read_body(std::string_view body);

// Null when the request may go on; otherwise the answer. In this order.
std::optional<http::Response> check_channel(const http::Request& request, int channel);
std::optional<http::Response> check_self_token(const http::Request& request,
                                               std::string_view token);

// What an answer says. `code` is -1 where the answer is no envelope.
struct PeerReply {
  int http = 0;
  bool success = false;
  int code = -1;
  std::string message{};
  json::Value data{};

  bool is(ReplyCode wanted) const { return !success && code == static_cast<int>(wanted); }
  // "HTTP 403, code 202: ...", for an error text.
  std::string text() const;
};

PeerReply read_reply(const http::Response& response);

}  // namespace divisi::dist
