// The frames of a watch, cut at a place that the input chooses: any cut gives the same events.

#include "kube/watch.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

std::string told(std::string_view first, std::string_view second) {
  divisi::kube::WatchDecoder decoder(1 << 16);
  std::string text;
  for (const std::string_view piece : {first, second}) {
    const auto status = decoder.feed(piece, [&](const divisi::kube::WatchEvent& event) {
      text += std::to_string(static_cast<int>(event.type)) + divisi::json::print(event.object);
      return true;
    });
    if (!status.ok()) return text + "!";
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t cut = data[0] + 256 * std::size_t{data[1]};
  const std::string_view text(reinterpret_cast<const char*>(data + 2), size - 2);
  const std::size_t place = cut % (text.size() + 1);
  if (told(text, {}) != told(text.substr(0, place), text.substr(place))) std::abort();
  return 0;
}
