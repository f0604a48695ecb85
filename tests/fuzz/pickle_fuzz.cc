// Any bytes as a pickle: read within its limits or refused in one line; what fits a document is
// the same after it was written and read again.
#include "pickle/reader.h"
#include "pickle/writer.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace divisi;
  const pickle::Limits limits{.max_bytes = std::size_t{64} << 10, .max_values = 20'000};
  const auto value = pickle::load({reinterpret_cast<const char*>(data), size}, limits);
  if (!value) {
    const std::string& message = value.error().message();
    if (message.empty() || message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const auto document = pickle::to_json(*value);
  if (!document) return 0;
  const auto bytes = pickle::save(*document, 4);
  if (!bytes) std::abort();
  const auto again = pickle::load(*bytes);
  if (!again) std::abort();
  // Printed, because NaN differs from itself.
  if (json::print(*pickle::to_json(*again)) != json::print(*document)) std::abort();
  return 0;
}
