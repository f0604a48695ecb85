#include "dijob/job_secret.h"

#include "base/log.h"
#include "dijob/names.h"
#include "http/base64.h"
#include "io/crypto.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <span>
#include <utility>

namespace divisi::dijob {
namespace {

constexpr std::chrono::seconds kTryAgain{2};

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string hex(const io::Digest& digest) {
  std::string text;
  for (const std::byte each : digest) text += fmt::format("{:02x}", std::to_integer<int>(each));
  return text;
}

// Asking again would not change it.
bool is_final(const Status& status) {
  return status.code() == Code::kForbidden || status.code() == Code::kUnauthorized ||
         status.code() == Code::kInvalid || status.code() == Code::kNotFound;
}

}  // namespace

std::string random_secret() {
  std::string text;
  for (int i = 0; i < 4; ++i) text += fmt::format("{:016x}", io::random_u64());
  return text;
}

std::string derive_secret(std::string_view key, std::string_view job_uid) {
  return hex(io::hmac_sha256(key, bytes(job_uid)));
}

std::string hash_secret(std::string_view secret, std::string_view salt) {
  return fmt::format("{}:{}", salt, hex(io::hmac_sha256(salt, bytes(secret))));
}

bool has_hash(std::string_view secret, std::string_view hash) {
  const std::size_t colon = hash.find(':');
  if (secret.empty() || colon == std::string_view::npos || colon == 0) return false;
  return io::equal_constant_time(bytes(hash_secret(secret, hash.substr(0, colon))), bytes(hash));
}

void SecretKey::load(std::function<void(Result<std::string>)> done) {
  done_ = std::move(done);
  client_.get(kube::resources::secrets(), space_, kKeySecret, {},
              [this, alive = std::weak_ptr(alive_)](const Result<json::Value>& answer) {
                if (!alive.expired()) read(answer);
              });
}

void SecretKey::read(const Result<json::Value>& answer) {
  if (!answer) {
    if (answer.error().code() == Code::kNotFound) return create();
    return try_again(answer.error());
  }
  auto key = http::decode_base64(answer->string_at({"data", "key"}));
  if (!key || key->empty()) {
    return std::exchange(done_, nullptr)(
        failure(Code::kInvalid, "secret {}/{} has no field key: delete it, and a new one is made",
                space_, kKeySecret));
  }
  std::exchange(done_, nullptr)(*std::move(key));
}

// Whoever comes second reads what the first has made.
void SecretKey::create() {
  json::Value object = json::Object{{"apiVersion", "v1"}, {"kind", "Secret"}, {"type", "Opaque"}};
  object["metadata"]["name"] = kKeySecret;
  object["metadata"]["namespace"] = space_;
  object["data"]["key"] = http::encode_base64(random_secret());
  client_.create(kube::resources::secrets(), space_, object, {.answer = kube::Answer::kNone},
                 [this, alive = std::weak_ptr(alive_)](const Result<json::Value>& made) {
                   if (alive.expired()) return;
                   if (!made && made.error().code() != Code::kAlreadyExists) {
                     return try_again(made.error());
                   }
                   load(std::exchange(done_, nullptr));
                 });
}

void SecretKey::try_again(const Status& why) {
  if (is_final(why)) return std::exchange(done_, nullptr)(failure(why));
  if (!warned_) log::warning("the key of the jobs' secrets: {}; trying again", why.message());
  warned_ = true;
  next_ = client_.reactor().after(kTryAgain, [this] { load(std::exchange(done_, nullptr)); });
}

}  // namespace divisi::dijob
