// Authenticator: whether a caller may ask about a job, by a bearer token.
//
// Loop only. Off unless asked for. With job secrets each job's own pods, which have the secret as a
// file, speak for that job and no other: the status of the job has a salted hash to compare with.
// With one token whoever has it speaks for all.
#pragma once

#include "base/status.h"
#include "http/message.h"
#include "json/value.h"
#include "kube/files.h"

#include <memory>
#include <string>
#include <utility>

namespace divisi::server {

enum class AuthMode { kNone, kJobSecret, kToken };

struct AuthOptions {
  AuthMode mode = AuthMode::kNone;
  std::string token_file{};  // kToken; read again when it is replaced
};

class Authenticator {
 public:
  // Fails when the token file cannot be read or is empty.
  static Result<std::unique_ptr<Authenticator>> make(AuthOptions options);

  // What can be said before the job is looked up. kUnauthorized.
  Status check_caller(const http::Headers& headers);
  // Then, about this job. kUnauthorized, with one text for whatever is wrong.
  Status check_job(const http::Headers& headers, const json::Value& object);

  // Whether a caller without the right token may not even learn which jobs there are.
  bool hides_jobs() const noexcept { return options_.mode == AuthMode::kJobSecret; }

 private:
  explicit Authenticator(AuthOptions options) : options_(std::move(options)) {}
  Status load_token();

  const AuthOptions options_;
  std::string token_;
  kube::FileStamp stamp_;
};

}  // namespace divisi::server
