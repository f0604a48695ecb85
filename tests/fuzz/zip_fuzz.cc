// Zip archives: any bytes are either refused or unpack to what they announce, within the limits.
#include "launch/archive.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr divisi::launch::ArchiveLimits kLimits{.max_entries = 64, .max_bytes = 1 << 20};
  const auto inflated =
      divisi::launch::check_archive(std::as_bytes(std::span(data, size)), kLimits);
  if (inflated && *inflated > kLimits.max_bytes) std::abort();

  const auto path = divisi::launch::safe_entry_path({reinterpret_cast<const char*>(data), size});
  if (path) {
    const std::string_view text = *path;
    const std::string inside = "/" + *path + "/";
    if (text.empty() || text.front() == '/' || inside.find("/../") != std::string::npos) {
      std::abort();
    }
  }
  return 0;
}
