// Any text as an address: what is accepted means the same when it is written out and read again.
#include "io/address.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using divisi::io::Address;
  const auto address = Address::parse({reinterpret_cast<const char*>(data), size});
  if (!address) {
    if (address.error().message().empty()) std::abort();
    return 0;
  }
  const auto again = Address::parse(address->to_string());
  if (!again || !(*again == *address)) std::abort();
  return 0;
}
