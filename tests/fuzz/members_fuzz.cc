// The di-server's stream of members: in one piece and byte by byte it gives the same lists.
#include "runtime/event_stream.h"
#include "runtime/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

namespace {

std::string told(std::string_view text, std::size_t step) {
  divisi::runtime::EventStream stream(4096);
  std::string all;
  for (; !text.empty(); text.remove_prefix(std::min(step, text.size()))) {
    const auto status =
        stream.write(text.substr(0, step), [&](std::string_view event, std::string_view data) {
          fmt::format_to(std::back_inserter(all), "{}:{};", event, data);
          const auto members = divisi::runtime::parse_members(data);
          if (!members) return;
          for (const auto& member : *members) {
            fmt::format_to(std::back_inserter(all), "{} {} {} {};", member.rank, member.pod,
                           member.host, member.ip);
          }
        });
    if (!status.ok()) return all + "!";
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (told(text, text.size()) != told(text, 1)) std::abort();
  return 0;
}
