#include "server/auth.h"

#include "http/base64.h"
#include "io/crypto.h"

#include <span>
#include <utility>

namespace divisi::server {
namespace {

constexpr std::size_t kMaxTokenBytes = 4096;

// A secret that was replaced is read again, but a caller with a wrong one cannot make us read it
// all the time.
constexpr auto kReadAgainAfter = std::chrono::seconds(5);

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

Result<std::unique_ptr<Authenticator>> Authenticator::make(kube::Client& client,
                                                           AuthOptions options) {
  std::unique_ptr<Authenticator> made(new Authenticator(client, std::move(options)));
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

void Authenticator::check_job(const http::Headers& headers, const json::Value& object,
                              std::function<void(Status)> done) {
  if (options_.mode != AuthMode::kJobSecret) return done(check_caller(headers));
  const std::string uid(object.string_at({"metadata", "uid"}));
  const std::string_view given = bearer(headers);
  if (const auto known = secrets_.find(uid); known != secrets_.end()) {
    if (same_token(given, known->second.text)) return done({});
    if (client_.reactor().now() - known->second.read < kReadAgainAfter) return done(refused());
  }
  read_secret(object, [this, uid, given = std::string(given), done = std::move(done),
                       alive = std::weak_ptr(alive_)](Result<std::string> secret) {
    if (alive.expired()) return;
    if (!secret) return done(std::move(secret).error());
    const bool right = same_token(given, *secret);
    secrets_[uid] = {*std::move(secret), client_.reactor().now()};
    done(right ? Status() : refused());
  });
}

void Authenticator::read_secret(const json::Value& object,
                                std::function<void(Result<std::string>)> done) {
  const std::string space(object.string_at({"metadata", "namespace"}));
  const std::string name(object.string_at({"status", "secretName"}));
  if (name.empty()) {
    return done(failure(Code::kUnauthorized, "job {}/{} has no secret yet", space,
                        object.string_at({"metadata", "name"})));
  }
  client_.get(kube::resources::secrets(), space, name, {},
              [done = std::move(done)](const Result<json::Value>& secret) {
                if (!secret && secret.error().code() != Code::kNotFound) {
                  return done(failure(Code::kInternal, "{}", secret.error().message()));
                }
                const auto text = secret
                                      ? http::decode_base64(secret->string_at({"data", "secret"}))
                                      : std::nullopt;
                if (!text || text->empty()) {
                  return done(failure(Code::kUnauthorized, "the secret of the job is not there"));
                }
                done(*text);
              });
}

}  // namespace divisi::server
