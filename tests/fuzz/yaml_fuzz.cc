// Any text as YAML: what is read is the same when it is printed and read again.
#include "json/yaml.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace divisi::json;
  // Small enough that aliases meet their bound.
  const ParseLimits limits{.max_bytes = std::size_t{64} << 10, .max_depth = 64};
  const auto documents = parse_yaml({reinterpret_cast<const char*>(data), size}, limits);
  if (!documents) {
    const std::string& message = documents.error().message();
    if (size <= limits.max_bytes && message.find("line ") == std::string::npos) std::abort();
    return 0;
  }
  for (const Value& document : *documents) {
    const auto again = parse_yaml_one(print_yaml(document));
    if (!again || !(*again == document)) std::abort();
  }
  return 0;
}
