// Frames that are numbered as they should be, with content chosen by the fuzzer: this comes further
// in than any bytes do. The same frames in other pieces, and over a reconnect, give the same
// events.
#include "mesh/inbound.h"
#include "mesh/testing/recorder.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using namespace divisi;
using namespace divisi::mesh;

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
  bool empty() const { return at_ == end_; }
  std::uint8_t byte() { return empty() ? std::uint8_t{0} : *at_++; }
  std::string text(std::size_t size) {
    const std::size_t take = std::min(size, static_cast<std::size_t>(end_ - at_));
    std::string all(reinterpret_cast<const char*>(at_), take);
    at_ += take;
    return all;
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

std::string make_frames(Input& input) {
  constexpr Kind kKinds[] = {Kind::kEvent, Kind::kEvent, Kind::kChunk,     Kind::kTopic,
                             Kind::kGap,   Kind::kAck,   Kind::kSubscribe, Kind::kBye};
  std::string stream;
  std::uint64_t sequence = 0;
  while (!input.empty() && stream.size() < (4u << 20)) {
    FrameHeader header;
    const std::uint8_t choice = input.byte();
    header.kind = kKinds[choice % 8];
    header.flags = input.byte() & 0x1f;
    header.codec = choice / 64;
    header.buffers = header.kind == Kind::kEvent ? (choice / 8) % 4 : 0;
    std::string content = input.text(input.byte());
    // Now and then a long one, to reach the frames that land directly.
    if (content.size() > 200) content.resize(kChunkBytes - content.size() % 7, 'x');
    header.length = static_cast<std::uint32_t>(content.size());
    if (is_sequenced(header.kind)) header.sequence = ++sequence;
    stream.append(reinterpret_cast<const char*>(&header), sizeof header);
    stream += content;
  }
  return stream;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const std::size_t piece = 1 + std::size_t{input.byte()} * 523;
  const std::string stream = make_frames(input);
  const auto bytes = std::as_bytes(std::span(stream));

  mesh::testing::Recorder whole;
  Inbound at_once(whole, 1 << 20);
  FrameReader first;
  const bool ok = mesh::testing::feed(first, at_once, bytes).ok();
  whole.take(at_once);

  mesh::testing::Recorder parts;
  Inbound bit_by_bit(parts, 1 << 20);
  FrameReader second;
  const bool also_ok = mesh::testing::feed(second, bit_by_bit, bytes, piece).ok();
  parts.take(bit_by_bit);
  if (ok != also_ok || at_once.received() != bit_by_bit.received() || whole.heard != parts.heard) {
    std::abort();
  }
  return 0;
}
