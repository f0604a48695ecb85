// Status and Result: what can fail for reasons outside the program returns one of these.
//
//   Result<Port> parse_port(std::string_view text);
//   Status listen(Address where) {
//     DIVISI_TRY(Port port, parse_port(where.port));
//     ...
//     return {};
//   }
#pragma once

#include "divisi/error.h"

#include <fmt/format.h>
#include <tl/expected.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace divisi {

// A code and a sentence that says what was being done, to what, what went wrong
// and what to try. Default-constructed it means success.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const noexcept { return code_ == Code::kOk; }
  Code code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }

  // The same failure with a fact in front: "opening a.zip: no such file".
  Status with_context(std::string_view fact) const {
    return ok() ? Status() : Status(code_, fmt::format("{}: {}", fact, message_));
  }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

template <class T>
using Result = tl::expected<T, Status>;

template <class... Args>
Status make_status(Code code, fmt::format_string<Args...> text, Args&&... args) {
  return {code, fmt::format(text, std::forward<Args>(args)...)};
}

template <class... Args>
tl::unexpected<Status> failure(Code code, fmt::format_string<Args...> text, Args&&... args) {
  return tl::unexpected<Status>(Status(code, fmt::format(text, std::forward<Args>(args)...)));
}

inline tl::unexpected<Status> failure(Status status) {
  return tl::unexpected<Status>(std::move(status));
}

// "invalid", "timeout", ...: for logs and JSON.
std::string_view code_name(Code code);

// The public exception for a failed status (UsageError for kInvalid, TimeoutError
// for kTimeout, Error otherwise). Does nothing when `status` is ok.
void throw_if_failed(const Status& status);

// The text of an errno value, without the races of strerror().
std::string errno_text(int error);

namespace detail {
inline Status to_status(Status status) {
  return status;
}
template <class T>
Status to_status(Result<T>&& result) {
  return std::move(result).error();
}
inline bool is_ok(const Status& status) {
  return status.ok();
}
template <class T>
bool is_ok(const Result<T>& result) {
  return result.has_value();
}
}  // namespace detail

}  // namespace divisi

#define DIVISI_CONCAT_INNER(a, b) a##b
#define DIVISI_CONCAT(a, b) DIVISI_CONCAT_INNER(a, b)

// DIVISI_TRY(auto value, expression_returning_Result): declares `value`, or returns the failure.
#define DIVISI_TRY(declaration, ...)                                                      \
  auto DIVISI_CONCAT(divisi_result_, __LINE__) = (__VA_ARGS__);                           \
  if (!DIVISI_CONCAT(divisi_result_, __LINE__)) {                                         \
    return ::divisi::failure(std::move(DIVISI_CONCAT(divisi_result_, __LINE__)).error()); \
  }                                                                                       \
  declaration = *std::move(DIVISI_CONCAT(divisi_result_, __LINE__))

// DIVISI_TRY_STATUS(expression_returning_Status), inside a function that returns Status.
#define DIVISI_TRY_STATUS(...)                                                 \
  do {                                                                         \
    if (::divisi::Status divisi_status = (__VA_ARGS__); !divisi_status.ok()) { \
      return divisi_status;                                                    \
    }                                                                          \
  } while (false)

// A broken invariant is a bug in this program, not a Status: says what it means and aborts.
#define DIVISI_CHECK(condition, meaning)                               \
  do {                                                                 \
    if (!(condition)) [[unlikely]] {                                   \
      ::divisi::check_failed(#condition, meaning, __FILE__, __LINE__); \
    }                                                                  \
  } while (false)

namespace divisi {
[[noreturn]] void check_failed(const char* condition, const char* meaning, const char* file,
                               int line);
}  // namespace divisi
