// Any text as JSON: what is read means the same when it is printed and read again, and when it
// comes in two pieces.
#include "json/value.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace divisi::json;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = parse(text);
  Parser parser;
  const std::size_t cut = size == 0 ? 0 : data[size - 1] % size;
  const bool begun = parser.write(text.substr(0, cut)).ok() && parser.write(text.substr(cut)).ok();
  const auto in_pieces = parser.finish();
  if (in_pieces.has_value() != value.has_value() || (value && (!begun || *in_pieces != *value)))
    std::abort();
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
