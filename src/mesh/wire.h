// The link protocol's bytes: docs/wire.md says the same in words, and tests/conformance holds
// golden files. All integers are little-endian.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace divisi::mesh {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

// Both sides send this first: six letters, then the protocol version.
inline constexpr std::uint16_t kProtocolVersion = 2;
inline constexpr std::size_t kPreambleBytes = 8;
inline constexpr std::array<char, 6> kMagic = {'D', 'I', 'V', 'I', 'S', 'I'};

enum class Kind : std::uint8_t {
  kPad = 0x00,  // a single byte, skipped: brings the next large frame to a multiple of 64
  // Handshake; bodies are MessagePack maps, unknown keys are ignored.
  kHello = 0x01,
  kProof = 0x02,
  kWelcome = 0x03,
  kReject = 0x04,
  // Sequenced: numbered 1, 2, 3... for each direction of a pair of incarnations, kept by the
  // sender until acknowledged, sent again after a reconnect.
  kEvent = 0x10,
  kChunk = 0x11,
  kTopic = 0x12,
  kGap = 0x13,
  // Not sequenced: about this connection only.
  kAck = 0x20,
  kPing = 0x21,
  kSubscribe = 0x23,
  kUnsubscribe = 0x24,
  kReady = 0x25,
  kRoles = 0x26,
  kBye = 0x27,
  kLabels = 0x28,
};

inline bool is_sequenced(Kind kind) {
  return kind >= Kind::kEvent && kind <= Kind::kGap;
}

// Flags of kEvent and kChunk.
inline constexpr std::uint8_t kFlagMore = 0x01;     // the message goes on in the next chunk
inline constexpr std::uint8_t kFlagKwargs = 0x02;   // the last argument is a map of keywords
inline constexpr std::uint8_t kFlagTrace = 0x04;    // a trace id follows the topic
inline constexpr std::uint8_t kFlagDropped = 0x08;  // the sender's policy removed the content
inline constexpr std::uint8_t kFlagRelayed = 0x10;  // came through a hub: not handed on again
inline constexpr std::uint8_t kEventFlags = 0x1f;   // all that an event may have

// Flags of kPing: callbacks of the sender wait for room in its queue to the receiver, or no longer.
inline constexpr std::uint8_t kFlagWaiting = 0x01;
inline constexpr std::uint8_t kFlagWaitingNoMore = 0x02;

inline constexpr std::uint8_t kCodecPickle = 2;  // the last one there is

struct FrameHeader {
  Kind kind = Kind::kPad;
  std::uint8_t flags = 0;
  std::uint8_t codec = 0;
  std::uint8_t buffers = 0;    // kEvent: number of out-of-band buffers, or kManyBuffers
  std::uint32_t length = 0;    // bytes behind the header
  std::uint64_t sequence = 0;  // sequenced kinds; kAck: the last one received
};
inline constexpr std::size_t kHeaderBytes = 16;
static_assert(sizeof(FrameHeader) == kHeaderBytes, "laid out as on the wire");

inline FrameHeader read_header(const std::byte* at) {
  FrameHeader header;
  std::memcpy(&header, at, sizeof header);
  return header;
}
inline void write_header(std::byte* at, const FrameHeader& header) {
  std::memcpy(at, &header, sizeof header);
}

// A message is what kEvent carries, whole or as the first part of a chain of chunks:
//   u32 topic id, u32 body length, [u16 n, n bytes of topic name when the id is 0],
//   [u64 trace id], [u64 number of buffers when the header says kManyBuffers], u64 length of each
//   buffer, body, then each buffer at the next multiple of 64 counted from the start of the
//   message.
// With kFlagMore a u64, the length of the whole message, stands before it.
inline constexpr std::size_t kMessagePrefix = 8;
inline constexpr std::size_t kBufferAlignment = 64;

inline constexpr std::size_t kChunkBytes = 256 * 1024;   // a heartbeat waits for one at most
inline constexpr std::size_t kMaxHandshake = 64 * 1024;  // before the proof nobody sends more
inline constexpr std::size_t kMaxControl = 1024 * 1024;  // a subscription list
inline constexpr std::size_t kMaxTopicName = 260;        // an event's name of 255 behind "task."
inline constexpr std::size_t kMaxTopics = 4096;          // interned; further names go inline
// In FrameHeader::buffers: this many buffers or more, the number stands in the message.
inline constexpr std::uint8_t kManyBuffers = 255;
inline constexpr std::size_t kMaxSubscriptions = 64 * 1024;  // of one peer
inline constexpr std::size_t kMaxRoles = 1024;

inline constexpr std::size_t align_up(std::size_t n, std::size_t to) {
  return (n + to - 1) / to * to;
}

inline std::array<std::byte, kPreambleBytes> preamble(std::uint16_t version = kProtocolVersion) {
  std::array<std::byte, kPreambleBytes> bytes{};
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  std::memcpy(bytes.data() + kMagic.size(), &version, sizeof version);
  return bytes;
}

}  // namespace divisi::mesh
