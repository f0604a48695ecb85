// Any bytes as WebSocket frames: whatever the pieces they come in, the messages are the same.
#include "http/websocket_frame.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using namespace divisi::http;

std::string outcome(std::string_view bytes, std::size_t piece, bool masked) {
  FrameReader reader(masked, 1000);
  std::string seen;
  std::string held;
  while (!bytes.empty() && !reader.failed()) {
    const auto next = bytes.substr(0, piece);
    bytes.remove_prefix(next.size());
    held += next;
    std::string_view left = held;
    while (const auto message = reader.next(left)) {
      if (message->payload.size() > 1000) std::abort();
      if (message->opcode == Opcode::kText && !is_utf8(message->payload)) std::abort();
      seen += std::to_string(static_cast<int>(message->opcode)) + ':' + message->payload + '\n';
    }
    held.erase(0, held.size() - left.size());
  }
  return seen + (reader.failed() ? reader.failed()->text : "");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const bool masked = (data[0] & 1) != 0;
  const std::size_t piece = std::max<std::size_t>(data[1], 1);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (outcome(bytes, piece, masked) != outcome(bytes, bytes.size(), masked)) std::abort();
  return 0;
}
