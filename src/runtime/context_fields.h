// Fields of a context by name, for middleware that work with several context classes.
#pragma once

#include "divisi/context.h"

#include <cstdint>
#include <string_view>

namespace divisi::runtime {

// Throw UsageError when the context has no such field, or one of another type.
inline std::int64_t counter_of(Context& ctx, std::string_view name) {
  return ctx.get<std::int64_t>(name);
}
inline double value_of(Context& ctx, std::string_view name) {
  return ctx.get<double>(name);
}

}  // namespace divisi::runtime
