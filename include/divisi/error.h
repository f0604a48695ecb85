// Errors as the public API throws them. Inside, the same codes travel as values
// (`Status`, src/base/status.h); they become exceptions at the public headers only.
#pragma once

#include "divisi/export.h"

#include <stdexcept>
#include <string>

namespace divisi {

// One closed set for the whole system: what Kubernetes answers with, and what
// messaging adds.
enum class Code {
  kOk,
  kInvalid,          // the caller's mistake: a usage error
  kNotFound,         //
  kAlreadyExists,    //
  kConflict,         //
  kExpired,          //
  kTooManyRequests,  //
  kForbidden,        //
  kUnauthorized,     // no proof of the secret, wrong job
  kTimeout,          //
  kUnavailable,      // a peer, an address or a service cannot be reached or bound
  kInternal,         //
  kClosed,           // the thing was stopped
  kCancelled,        //
  kWouldBlock,       // a full queue under the policy `error`
};

// Base of everything the library throws by itself. Exceptions of user callbacks
// are passed on as they were thrown.
class DIVISI_API Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

// A mistake in the call itself: wrong argument, wrong state, wrong type.
class DIVISI_API UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(Code::kInvalid, message) {}
};

// A wait that was told not to ignore its deadline.
class DIVISI_API TimeoutError : public Error {
 public:
  explicit TimeoutError(const std::string& message) : Error(Code::kTimeout, message) {}
};

}  // namespace divisi
