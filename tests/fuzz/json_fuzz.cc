// Any text as JSON: what is read means the same when it is printed and read again.
#include "json/value.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace divisi::json;
  const auto value = parse({reinterpret_cast<const char*>(data), size});
  if (!value) {
    if (value.error().message().find("line ") == std::string::npos) std::abort();
    return 0;
  }
  for (const int indent : {0, 2}) {
    const auto again = parse(print(*value, indent), {.max_bytes = 64 * size + 1024});
    if (!again || !equivalent(*again, *value)) std::abort();
  }
  return 0;
}
