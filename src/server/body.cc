#include "server/body.h"

namespace divisi::server {

Result<json::Value> read_object(std::string_view body) {
  constexpr std::string_view kWhat = "failed to decode request body";
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return failure(Code::kInvalid, "{}: EOF", kWhat);
  }
  auto value = json::parse(body, {.max_bytes = kMaxBodyBytes, .max_depth = 32});
  if (!value) return failure(Code::kInvalid, "{}: {}", kWhat, value.error().message());
  if (value->as_object() == nullptr) {
    return failure(Code::kInvalid, "{}: it must be an object, not {}", kWhat, value->kind());
  }
  return value;
}

}  // namespace divisi::server
