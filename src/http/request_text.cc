#include "http/request_text.h"

#include "http/connect.h"

#include <algorithm>
#include <array>

namespace divisi::http {

namespace {

bool good_method(std::string_view method) {
  return !method.empty() && std::ranges::all_of(method, [](char c) {
    return (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
  });
}

bool good_target(std::string_view target) {
  return (target.starts_with('/') || target == "*") &&
         std::ranges::all_of(target, [](char c) { return c > ' ' && c < 127; });
}

}  // namespace

bool body_follows(const Request& request) {
  return request.body.empty() && request.headers.lists("Transfer-Encoding", "chunked");
}

bool is_idempotent(std::string_view method) {
  constexpr auto kMethods =
      std::to_array<std::string_view>({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"});
  return std::ranges::find(kMethods, method) != kMethods.end();
}

Result<std::string> request_text(const Request& request, const ClientOptions& options,
                                 bool upgrade) {
  if (!good_method(request.method)) return failure(Code::kInvalid, "no method of HTTP");
  if (!good_target(request.target)) {
    return failure(Code::kInvalid, "a target starts with '/' and is percent-encoded");
  }
  if (const auto wrong = check_sendable(request.headers); !wrong.ok()) return failure(wrong);

  Headers headers = request.headers;
  const bool streamed = body_follows(request);
  if (!streamed) headers.remove("Transfer-Encoding");
  headers.remove("Content-Length");
  if (!headers.has("Host")) headers.add("Host", options.server.host_header());
  if (!headers.has("Accept-Encoding") && !upgrade) headers.add("Accept-Encoding", "gzip");
  const bool sends =
      request.method == "POST" || request.method == "PUT" || request.method == "PATCH";
  if (!streamed && (sends || !request.body.empty())) {
    headers.add("Content-Length", std::to_string(request.body.size()));
  }
  std::string target = options.server.path + request.target;
  if (options.proxy && !options.server.tls) {
    target = options.server.origin() + target;
    if (auto credentials = proxy_credentials(*options.proxy); !credentials.empty()) {
      headers.set("Proxy-Authorization", std::move(credentials));
    }
  }
  std::string text = fmt::format("{} {} HTTP/1.1\r\n", request.method, target);
  append_headers(text, headers);
  if (!streamed) text += request.body;
  return text;
}

}  // namespace divisi::http
