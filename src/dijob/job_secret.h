// The secret that the pods of a job share: derived from a key of the operator, so that any operator
// makes the same one again, and known to others by a salted hash alone.
#pragma once

#include "kube/client.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace divisi::dijob {

std::string random_secret();  // 64 hex digits
// Of the job with that uid: 64 hex digits.
std::string derive_secret(std::string_view key, std::string_view job_uid);

// "<salt>:<hex digits>", as status.secretHash has it. The uid of the job is the salt.
std::string hash_secret(std::string_view secret, std::string_view salt);
// Whether that is the hash of this secret. Takes the same time whatever differs.
bool has_hash(std::string_view secret, std::string_view hash);

// SecretKey: reads the operator's key from its own Secret, which it makes if there is none.
//
// Loop only. Tries until the server answers.
class SecretKey {
 public:
  SecretKey(kube::Client& client, std::string space) : client_(client), space_(std::move(space)) {}

  // `done` runs once: the key, or why this account cannot have one.
  void load(std::function<void(Result<std::string>)> done);

 private:
  void read(const Result<json::Value>& answer);
  void create();
  void try_again(const Status& why);

  kube::Client& client_;
  const std::string space_;
  std::function<void(Result<std::string>)> done_{};
  bool warned_ = false;
  std::unique_ptr<io::Timer> next_{};
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace divisi::dijob
