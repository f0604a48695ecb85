// Bodies of requests: one JSON object, bounded, whatever the Content-Type says or does not say.
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <cstddef>
#include <string_view>

namespace divisi::server {

// Of a body, and of the profilings that a job may have: an object of the cluster is kept whole in
// many memories.
inline constexpr std::size_t kMaxBodyBytes = std::size_t{64} << 10;

// "failed to decode request body: ..." (kInvalid); of an empty body "EOF".
Result<json::Value> read_object(std::string_view body);

}  // namespace divisi::server
