// Authenticator: whether a caller may ask about a job, by a bearer token.
//
// Loop only. Off unless asked for. With job secrets each job's own pods, which have the secret as a
// file, speak for that job and no other; with one token whoever has it speaks for all.
#pragma once

#include "base/status.h"
#include "http/message.h"
#include "kube/client.h"
#include "kube/files.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace divisi::server {

enum class AuthMode { kNone, kJobSecret, kToken };

struct AuthOptions {
  AuthMode mode = AuthMode::kNone;
  std::string token_file{};  // kToken; read again when it is replaced
};

class Authenticator {
 public:
  // Fails when the token file cannot be read or is empty.
  static Result<std::unique_ptr<Authenticator>> make(kube::Client& client, AuthOptions options);

  // What can be said before the job is looked up. kUnauthorized.
  Status check_caller(const http::Headers& headers);
  // Then, about this job. At once where nothing has to be read.
  void check_job(const http::Headers& headers, const json::Value& object,
                 std::function<void(Status)> done);

  // Whether a caller without the right token may not even learn which jobs there are.
  bool hides_jobs() const noexcept { return options_.mode == AuthMode::kJobSecret; }

  void forget(const std::string& job_uid) { secrets_.erase(job_uid); }

 private:
  struct Secret {
    std::string text{};
    io::TimePoint read{};
  };

  Authenticator(kube::Client& client, AuthOptions options)
      : client_(client), options_(std::move(options)) {}
  Status load_token();
  void read_secret(const json::Value& object, std::function<void(Result<std::string>)> done);

  kube::Client& client_;
  const AuthOptions options_;
  std::string token_;
  kube::FileStamp stamp_;
  std::map<std::string, Secret> secrets_;  // by the uid of the job
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace divisi::server
