#include "base/status.h"

#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace divisi {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kInvalid: return "invalid";
    case Code::kNotFound: return "not_found";
    case Code::kAlreadyExists: return "already_exists";
    case Code::kConflict: return "conflict";
    case Code::kExpired: return "expired";
    case Code::kTooManyRequests: return "too_many_requests";
    case Code::kForbidden: return "forbidden";
    case Code::kUnauthorized: return "unauthorized";
    case Code::kTimeout: return "timeout";
    case Code::kUnavailable: return "unavailable";
    case Code::kInternal: return "internal";
    case Code::kClosed: return "closed";
    case Code::kCancelled: return "cancelled";
    case Code::kWouldBlock: return "would_block";
  }
  return "unknown";
}

void throw_if_failed(const Status& status) {
  switch (status.code()) {
    case Code::kOk: return;
    case Code::kInvalid: throw UsageError(status.message());
    case Code::kTimeout: throw TimeoutError(status.message());
    default: throw Error(status.code(), status.message());
  }
}

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

void check_failed(const char* condition, const char* meaning, const char* file, int line) {
  std::fprintf(stderr, "divisi: broken invariant: %s (%s, %s:%d)\n", meaning, condition, file,
               line);
  std::abort();
}

}  // namespace divisi
