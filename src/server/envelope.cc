#include "server/envelope.h"

#include <algorithm>
#include <string>
#include <utility>

namespace divisi::server {
namespace {

http::Response envelope(int http_status, std::string message, json::Value data) {
  json::Value body;
  body["success"] = http_status == 200;
  body["code"] = http_status == 200 ? 0 : 1;
  body["message"] = std::move(message);
  body["data"] = std::move(data);
  return {http_status, {{"Content-Type", "application/json"}}, json::print(body) + "\n"};
}

int http_status_of(Code code) {
  switch (code) {
    case Code::kInvalid: return 400;
    case Code::kUnauthorized: return 401;
    case Code::kNotFound: return 404;
    case Code::kAlreadyExists:
    case Code::kConflict: return 409;
    default: return 500;
  }
}

char plain(char c) {
  if (c == '"' || c == '\'') return '`';
  return c >= ' ' && c <= '~' ? c : '?';
}

void make_plain(std::string& message) {
  const std::size_t kept = message.find(kQuantitySyntax);
  std::ranges::transform(message, message.begin(), plain);
  if (kept != std::string::npos) message.replace(kept, kQuantitySyntax.size(), kQuantitySyntax);
}

}  // namespace

http::Response success(std::string_view message, json::Value data) {
  return envelope(200, std::string(message), std::move(data));
}

http::Response failed(const Status& status, json::Value data) {
  return failed(http_status_of(status.code()), status.message(), std::move(data));
}

http::Response failed(int http_status, std::string message, json::Value data) {
  make_plain(message);
  http::Response answer = envelope(http_status, std::move(message), std::move(data));
  if (answer.status == 401) answer.headers.add("WWW-Authenticate", "Bearer");
  return answer;
}

Status of_cluster(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
    case Code::kNotFound:
    case Code::kAlreadyExists:
    case Code::kConflict: return status;
    default: return {Code::kInternal, status.message()};
  }
}

}  // namespace divisi::server
