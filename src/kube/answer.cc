// What the answers of an API server mean: Status objects, and what proxies put in their place.

#include "http/message.h"
#include "kube/client.h"

#include <algorithm>
#include <array>

namespace divisi::kube {
namespace {

struct Meaning {
  std::string_view reason;  // of a Status object
  int http_status;
  Code code;
};

// The first row of a number is what it means without a reason.
constexpr std::array kMeanings{
    Meaning{"BadRequest", 400, Code::kInvalid},
    Meaning{"Unauthorized", 401, Code::kUnauthorized},
    Meaning{"Forbidden", 403, Code::kForbidden},
    Meaning{"NotFound", 404, Code::kNotFound},
    Meaning{"MethodNotAllowed", 405, Code::kInvalid},
    Meaning{"NotAcceptable", 406, Code::kInvalid},
    Meaning{"RequestTimeout", 408, Code::kTimeout},
    Meaning{"Conflict", 409, Code::kConflict},
    Meaning{"AlreadyExists", 409, Code::kAlreadyExists},
    Meaning{"Expired", 410, Code::kExpired},
    Meaning{"Gone", 410, Code::kExpired},
    Meaning{"RequestEntityTooLarge", 413, Code::kInvalid},
    Meaning{"UnsupportedMediaType", 415, Code::kInvalid},
    Meaning{"Invalid", 422, Code::kInvalid},
    Meaning{"TooManyRequests", 429, Code::kTooManyRequests},
    Meaning{"InternalError", 500, Code::kInternal},
    Meaning{"ServerTimeout", 500, Code::kUnavailable},
    Meaning{"ServiceUnavailable", 503, Code::kUnavailable},
    Meaning{"Timeout", 504, Code::kTimeout},
};

Code code_of(std::string_view reason, std::int64_t http_status) {
  for (const Meaning& meaning : kMeanings) {
    if (!reason.empty() && meaning.reason == reason) return meaning.code;
  }
  for (const Meaning& meaning : kMeanings) {
    if (meaning.http_status == http_status) return meaning.code;
  }
  return http_status >= 500 ? Code::kUnavailable : Code::kInvalid;
}

// The beginning of a page that somebody else answered with, on one line.
std::string excerpt(std::string_view body) {
  constexpr std::size_t kShown = 120;
  std::string text;
  bool space = false;
  for (const char c : body.substr(0, 4 * kShown)) {
    if (static_cast<unsigned char>(c) <= ' ') {
      space = !text.empty();
      continue;
    }
    if (space) text += ' ';
    space = false;
    text += static_cast<unsigned char>(c) < 0x7f ? c : '?';
    if (text.size() >= kShown) return text + "...";
  }
  return text;
}

bool is_status(const json::Value& object) {
  return object.string_at({"kind"}) == "Status";
}

}  // namespace

Status status_of_object(std::string_view what, const json::Value& object) {
  if (!is_status(object)) {
    return make_status(Code::kInternal, "{}: the server sent an error that is no Status: {}", what,
                       excerpt(json::print(object)));
  }
  const std::int64_t http_status = object.int_at({"code"}).value_or(0);
  std::string_view message = object.string_at({"message"});
  if (message.empty()) message = object.string_at({"reason"});
  if (message.empty()) message = http::reason_phrase(static_cast<int>(http_status));
  return make_status(code_of(object.string_at({"reason"}), http_status), "{}: {}", what, message);
}

Status status_of_answer(std::string_view what, int http_status, std::string_view content_type,
                        std::string_view body) {
  if (const auto object = json::parse(body); object && is_status(*object)) {
    return status_of_object(what, *object);
  }
  const std::string shown = excerpt(body);
  return make_status(code_of({}, http_status), "{}: the server answered {} {}{}{}", what,
                     http_status, http::reason_phrase(http_status),
                     shown.empty() ? "" : fmt::format(" ({}): ", content_type), shown);
}

}  // namespace divisi::kube
