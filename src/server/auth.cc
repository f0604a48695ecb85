#include "server/auth.h"

#include "dijob/job_secret.h"
#include "io/crypto.h"

#include <span>
#include <string_view>
#include <utility>

namespace divisi::server {
namespace {

constexpr std::size_t kMaxTokenBytes = 4096;

std::string_view bearer(const http::Headers& headers) {
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view value = headers.get("Authorization");
  if (value.size() <= kScheme.size() || value.size() > kMaxTokenBytes) return {};
  if (!http::same_name(value.substr(0, kScheme.size()), kScheme)) return {};
  const std::string_view token = value.substr(kScheme.size());
  const std::size_t begin = token.find_first_not_of(' ');
  return begin == std::string_view::npos ? std::string_view() : token.substr(begin);
}

bool same_token(std::string_view a, std::string_view b) {
  return !a.empty() &&
         io::equal_constant_time(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

Status refused() {
  return make_status(Code::kUnauthorized, "the bearer token is not the right one");
}

}  // namespace

Result<std::unique_ptr<Authenticator>> Authenticator::make(AuthOptions options) {
  std::unique_ptr<Authenticator> made(new Authenticator(std::move(options)));
  if (made->options_.mode == AuthMode::kToken) {
    if (Status status = made->load_token(); !status.ok()) return failure(std::move(status));
  }
  return made;
}

Status Authenticator::load_token() {
  const kube::FileStamp stamp = kube::stamp_of(options_.token_file);
  if (!token_.empty() && stamp == stamp_) return {};
  auto text = kube::read_file(options_.token_file, "the bearer token", kMaxTokenBytes);
  if (!text) return std::move(text).error();
  std::string token = kube::trimmed(*text);
  if (token.empty()) {
    return make_status(Code::kInvalid, "the bearer token file {} is empty", options_.token_file);
  }
  token_ = std::move(token);
  stamp_ = stamp;
  return {};
}

Status Authenticator::check_caller(const http::Headers& headers) {
  if (options_.mode == AuthMode::kNone) return {};
  const std::string_view given = bearer(headers);
  if (given.empty()) {
    return make_status(Code::kUnauthorized, "the request needs Authorization: Bearer <token>");
  }
  if (options_.mode == AuthMode::kJobSecret) return {};
  // While the file is being replaced the token before it still holds.
  if (const Status status = load_token(); !status.ok() && token_.empty()) return refused();
  return same_token(given, token_) ? Status() : refused();
}

Status Authenticator::check_job(const http::Headers& headers, const json::Value& object) {
  if (options_.mode != AuthMode::kJobSecret) return check_caller(headers);
  const bool right = dijob::has_hash(bearer(headers), object.string_at({"status", "secretHash"}));
  return right ? Status() : refused();
}

}  // namespace divisi::server
