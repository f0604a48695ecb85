// Any bytes after the greeting: frames to numbered events to decoded arguments. The first byte says
// in what pieces the rest arrives.
#include "divisi/payload.h"
#include "mesh/frame_reader.h"
#include "mesh/inbound.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace divisi;
using namespace divisi::mesh;

class Ears final : public Inbound::Control {
 public:
  Status on_ack(std::uint64_t, std::uint64_t) override { return {}; }
  void on_subscribe(std::vector<std::string>, bool) override {}
  void on_unsubscribe(std::vector<std::string>) override {}
  void on_ready() override {}
  void on_roles(std::vector<std::string>) override {}
  void on_labels(std::vector<std::string>) override {}
  void on_bye(bool, std::string) override {}
  void on_gap(std::uint64_t) override {}
};

void decode(Inbound& in) {
  std::vector<Buffer> buffers;
  for (const InEvent& event : in.events().events) {
    const Buffer& owner = in.events().owners[event.owner];
    read_buffers(event, owner, buffers);
    PayloadView view;
    view.codec = static_cast<Codec>(event.codec % 3);
    view.has_kwargs = (event.flags & kFlagKwargs) != 0;
    view.body = event.body();
    view.buffers = buffers;
    try {
      static_cast<void>(unpack_any(view));
    } catch (const std::exception&) {
      // Malformed arguments are the listener's error.
    }
  }
  in.clear_events();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = data[0] == 0 ? size : data[0];
  ++data;
  --size;
  Ears ears;
  Inbound in(ears, 1 << 20);
  FrameReader reader;
  while (size > 0) {
    std::size_t left = std::min(size, piece);
    while (left > 0) {
      std::size_t taken = 0;
      for (const iovec& part : reader.prepare()) {
        const std::size_t take = std::min(left, part.iov_len);
        std::memcpy(part.iov_base, data, take);
        data += take;
        size -= take;
        left -= take;
        taken += take;
      }
      const Status status = reader.commit(taken, in);
      decode(in);
      if (!status.ok()) return 0;
    }
  }
  return 0;
}
