#include "dist/token.h"

#include "io/crypto.h"

#include <array>
#include <cstddef>
#include <span>

namespace divisi::dist {

std::string new_token() {
  constexpr std::string_view kLower = "0123456789abcdef";
  constexpr std::string_view kUpper = "0123456789ABCDEF";
  std::array<std::byte, 64> random{};  // of each byte: 4 bits for the digit, 1 for its case
  io::fill_random(random);
  std::string token;
  for (const std::byte each : random) {
    const auto bits = std::to_integer<unsigned>(each);
    token += ((bits & 0x10U) != 0 ? kUpper : kLower)[bits & 0xfU];
  }
  return token;
}

bool same_token(std::string_view a, std::string_view b) {
  return io::equal_constant_time(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

}  // namespace divisi::dist
