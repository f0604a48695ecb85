// Any text as a quantity: its canonical form is the same amount and stays as it is.
#include "json/quantity.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using divisi::json::Quantity;
  const auto quantity = Quantity::parse({reinterpret_cast<const char*>(data), size});
  if (!quantity) {
    if (quantity.error().message().empty()) std::abort();
    return 0;
  }
  const std::string text = quantity->to_string();
  const auto again = Quantity::parse(text);
  if (!again || !(*again == *quantity) || again->to_string() != text) std::abort();
  if (!(*quantity - *quantity).is_zero() || !(-(-*quantity) == *quantity)) std::abort();
  if (!(*quantity + *quantity >= *quantity) && quantity->sign() > 0) std::abort();
  return 0;
}
