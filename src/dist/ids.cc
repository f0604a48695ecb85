#include "dist/ids.h"

#include "io/crypto.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <unistd.h>

namespace divisi::dist {

std::string new_uuid() {
  std::array<std::byte, 16> bytes{};
  io::fill_random(bytes);
  bytes[6] = (bytes[6] & std::byte{0x0f}) | std::byte{0x40};  // version 4
  bytes[8] = (bytes[8] & std::byte{0x3f}) | std::byte{0x80};  // variant 1
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) {
      text += '-';
    }
    text += fmt::format("{:02x}", std::to_integer<unsigned>(bytes[i]));
  }
  return text;
}

std::string new_id(std::string_view prefix) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{}{}PID{}UUID{}_{:.7f}", prefix, prefix.empty() ? "" : "_", getpid(),
                     new_uuid(), now.count());
}

}  // namespace divisi::dist
