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
  kOk,               // no error; never thrown
  kInvalid,          // the caller's mistake: a usage error
  kNotFound,         // no such peer, file, function or element
  kAlreadyExists,    // the name or id is taken
  kConflict,         // somebody else has changed it meanwhile
  kExpired,          // what was asked for is gone by now
  kTooManyRequests,  // try again later
  kForbidden,        // known, but not allowed
  kUnauthorized,     // no proof of the secret, wrong job
  kTimeout,          // a deadline has passed
  kUnavailable,      // a peer, an address or a service cannot be reached or bound
  kInternal,         // none of the others: our mistake, or an unexpected answer of the system
  kClosed,           // the thing was stopped
  kCancelled,        // somebody asked to give up
  kWouldBlock,       // a full queue under the policy `error`
};

// Base of everything the library throws by itself. Exceptions of user callbacks
// are passed on as they were thrown.
class DIVISI_API Error : public std::runtime_error {
 public:
  // `message` becomes what().
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  // Which of the closed set, for programs; what() is for people.
  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

// A mistake in the call itself: wrong argument, wrong state, wrong type.
class DIVISI_API UsageError : public Error {
 public:
  // With the code kInvalid.
  explicit UsageError(const std::string& message) : Error(Code::kInvalid, message) {}
};

// A wait that was told not to ignore its deadline.
class DIVISI_API TimeoutError : public Error {
 public:
  // With the code kTimeout.
  explicit TimeoutError(const std::string& message) : Error(Code::kTimeout, message) {}
};

}  // namespace divisi
