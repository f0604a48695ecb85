#include "mesh/inbound.h"

#include "divisi/packer.h"

#include <cstring>
#include <string_view>
#include <utility>

namespace divisi::mesh {

namespace {

// A buffer below this part of its block is copied out of it: whoever keeps it would otherwise keep
// the whole block.
constexpr std::size_t kShareAtLeast = 32 * 1024;

// What InEvent::body_offset can hold: half a billion buffers.
constexpr std::size_t kMaxBodyOffset = 0xffff'ffff;

template <class T>
T read_at(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

Result<std::vector<std::string>> read_names(std::span<const std::byte> content) {
  try {
    Unpacker in(content);
    const std::size_t count = in.array();
    if (count > kMaxSubscriptions) throw PayloadError("too many names");
    std::vector<std::string> names(count);
    for (auto& name : names) {
      name = in.text();
      if (name.size() > kMaxTopicName) throw PayloadError("a name is too long");
    }
    return names;
  } catch (const std::exception& error) {
    return failure(Code::kInvalid, "malformed list of names: {}", error.what());
  }
}

}  // namespace

void read_buffers(const InEvent& event, const Buffer& owner, std::vector<Buffer>& out) {
  out.clear();
  const std::byte* lengths = event.message + event.body_offset - std::size_t{8} * event.buffers;
  std::size_t at = std::size_t{event.body_offset} + event.body_length;
  for (std::uint32_t i = 0; i < event.buffers; ++i, lengths += 8) {
    const auto size = static_cast<std::size_t>(read_at<std::uint64_t>(lengths));
    at = align_up(at, kBufferAlignment);
    const std::span<const std::byte> bytes{event.message + at, size};
    if (size >= kShareAtLeast) {
      out.push_back(owner.slice(static_cast<std::size_t>(bytes.data() - owner.data()), size));
    } else {
      out.push_back(Buffer::copy_of(bytes));
    }
    at += size;
  }
}

std::uint64_t InEvent::trace() const {
  if ((flags & kFlagTrace) == 0) return 0;
  const std::size_t lengths = std::size_t{8} * buffers + (buffers >= kManyBuffers ? 8 : 0);
  return read_at<std::uint64_t>(message + body_offset - lengths - 8);
}

void Inbound::restart() {
  connection_bytes_ = 0;
  // A first chunk that was cut off comes again whole, or its message was dropped meanwhile.
  if (filled_ == 0) message_ = Buffer();
}

void Inbound::clear_events() {
  events_.owners.clear();
  events_.events.clear();
  inline_topics_.clear();
}

std::size_t Inbound::max_length(Kind kind) const {
  switch (kind) {
    // A message that fits a chunk travels whole, one that does not has its length in front.
    case Kind::kEvent: return kChunkBytes + 8;
    case Kind::kChunk: return kChunkBytes;
    case Kind::kTopic: return 4 + kMaxTopicName;
    case Kind::kGap:
    case Kind::kAck: return 8;
    case Kind::kPing: return 256;
    case Kind::kSubscribe:
    case Kind::kUnsubscribe:
    case Kind::kRoles:
    case Kind::kBye: return kMaxControl;
    case Kind::kLabels: return kMaxHandshake;  // where the others are
    case Kind::kReady: return 8;
    default: return 0;
  }
}

Result<std::byte*> Inbound::landing(const FrameHeader& header, std::size_t length,
                                    std::uint64_t total) {
  if (header.sequence != received_ + 1) {
    return failure(Code::kInvalid, "frame {} where {} was due", header.sequence, received_ + 1);
  }
  if (header.kind == Kind::kEvent) {
    if (const Status begun = begin_message(header, total); !begun.ok()) return failure(begun);
  }
  if (message_.empty() || length > message_.size() - filled_) {
    return failure(Code::kInvalid, "a chunk that belongs to no message");
  }
  return message_.mutable_data() + filled_;
}

Status Inbound::on_frame(const FrameHeader& header, std::span<const std::byte> content,
                         const Buffer& owner, bool landed) {
  if (!is_sequenced(header.kind)) return on_control(header, content);
  if (header.sequence != received_ + 1) {
    return make_status(Code::kInvalid, "frame {} where {} was due", header.sequence, received_ + 1);
  }
  Status status;
  switch (header.kind) {
    case Kind::kEvent: status = on_event(header, content, owner, landed); break;
    case Kind::kChunk: status = on_chunk(header, content, landed); break;
    case Kind::kTopic: status = on_topic(content); break;
    default:
      if (content.size() != 8) return make_status(Code::kInvalid, "a gap of the wrong size");
      control_.on_gap(read_at<std::uint64_t>(content.data()));
      break;
  }
  if (!status.ok()) return status;
  received_ = header.sequence;
  connection_bytes_ += kHeaderBytes + header.length;
  return {};
}

Status Inbound::on_event(const FrameHeader& header, std::span<const std::byte> content,
                         const Buffer& owner, bool landed) {
  if ((header.flags & ~kEventFlags) != 0) {
    return make_status(Code::kInvalid, "an event with unknown flags 0x{:02x}", header.flags);
  }
  if (header.codec > kCodecPickle) {
    return make_status(Code::kInvalid, "an event in the unknown codec {}", header.codec);
  }
  if ((header.flags & kFlagDropped) != 0) {
    ++dropped_by_peer_;
    return {};
  }
  if ((header.flags & kFlagMore) == 0) {
    if (!message_.empty()) return make_status(Code::kInvalid, "an event inside another one");
    return add_message(header, content, owner);
  }
  if (!landed) {
    if (content.size() < 8) return make_status(Code::kInvalid, "a message without its length");
    const auto total = read_at<std::uint64_t>(content.data());
    content = content.subspan(8);
    auto place = landing(header, content.size(), total);
    if (!place) return std::move(place).error();
    std::memcpy(*place, content.data(), content.size());
  }
  filled_ = content.size();
  return {};
}

Status Inbound::begin_message(const FrameHeader& header, std::uint64_t total) {
  if (filled_ != 0) return make_status(Code::kInvalid, "an event inside another one");
  if (total > max_message_) {
    return make_status(Code::kInvalid, "oversized message: {} bytes, at most {}", total,
                       max_message_);
  }
  if (total <= kChunkBytes) return make_status(Code::kInvalid, "a short message in chunks");
  message_ = Buffer(static_cast<std::size_t>(total));
  message_header_ = header;
  return {};
}

Status Inbound::on_chunk(const FrameHeader& header, std::span<const std::byte> content,
                         bool landed) {
  if ((header.flags & kFlagDropped) != 0) return {};
  if (filled_ == 0 || content.size() > message_.size() - filled_) {
    return make_status(Code::kInvalid, "a chunk that belongs to no message");
  }
  if (!landed) std::memcpy(message_.mutable_data() + filled_, content.data(), content.size());
  filled_ += content.size();
  const bool more = (header.flags & kFlagMore) != 0;
  if (more != (filled_ < message_.size())) {
    return make_status(Code::kInvalid, "a message of {} bytes ended after {}", message_.size(),
                       filled_);
  }
  if (more) return {};
  filled_ = 0;
  const Buffer whole = std::exchange(message_, Buffer());
  return add_message(message_header_, whole.bytes(), whole);
}

Result<InTopic*> Inbound::topic_of(std::uint32_t id, std::string_view inline_name) {
  if (id == 0) {
    inline_topics_.push_back(std::make_unique<InTopic>());
    inline_topics_.back()->name = inline_name;
    return inline_topics_.back().get();
  }
  if (id > topics_.size() || topics_[id - 1] == nullptr) {
    return failure(Code::kInvalid, "an event on a topic that was never named");
  }
  return topics_[id - 1].get();
}

Status Inbound::add_message(const FrameHeader& header, std::span<const std::byte> message,
                            const Buffer& owner) {
  const auto malformed = [] { return make_status(Code::kInvalid, "a malformed event"); };
  if (message.size() < kMessagePrefix) return malformed();
  const auto id = read_at<std::uint32_t>(message.data());
  InEvent event;
  event.body_length = read_at<std::uint32_t>(message.data() + 4);
  std::size_t at = kMessagePrefix;
  std::string_view name;
  if (id == 0) {
    if (message.size() < at + 2) return malformed();
    const auto length = read_at<std::uint16_t>(message.data() + at);
    at += 2;
    if (length == 0) return make_status(Code::kInvalid, "an event without a name");
    if (length > kMaxTopicName || message.size() < at + length) return malformed();
    name = {reinterpret_cast<const char*>(message.data() + at), length};
    at += length;
  }
  if ((header.flags & kFlagTrace) != 0) at += 8;
  std::uint64_t buffers = header.buffers;
  if (header.buffers == kManyBuffers) {
    if (message.size() < at + 8) return malformed();
    buffers = read_at<std::uint64_t>(message.data() + at);
    at += 8;
    // One form for each number; the sum below cannot overflow.
    if (buffers < kManyBuffers || buffers > message.size() / 8) return malformed();
  }
  const std::size_t lengths = at;
  at += 8 * static_cast<std::size_t>(buffers);
  if (at > kMaxBodyOffset || message.size() < at + event.body_length) return malformed();
  event.body_offset = static_cast<std::uint32_t>(at);
  event.buffers = static_cast<std::uint32_t>(buffers);
  std::size_t end = at + event.body_length;
  for (std::size_t i = 0; i < buffers; ++i) {
    const auto size = read_at<std::uint64_t>(message.data() + lengths + 8 * i);
    end = align_up(end, kBufferAlignment);
    if (end > message.size() || size > message.size() - end) return malformed();
    end += static_cast<std::size_t>(size);
  }
  if (end != message.size()) return malformed();

  auto topic = topic_of(id, name);
  if (!topic) return std::move(topic).error();
  if (header.codec == kCodecPickle && !allow_pickle_) {
    ++refused_;
    return {};
  }
  ++(*topic)->received;
  event.topic = *topic;
  event.message = message.data();
  event.sequence = header.sequence;
  event.length = message.size();
  event.flags = header.flags;
  event.codec = header.codec;
  if (events_.owners.empty() || events_.owners.back().data() != owner.data()) {
    events_.owners.push_back(owner);
  }
  event.owner = static_cast<std::uint16_t>(events_.owners.size() - 1);
  events_.events.push_back(event);
  return {};
}

Status Inbound::on_topic(std::span<const std::byte> content) {
  if (content.size() < 5) return make_status(Code::kInvalid, "a topic without a name");
  const auto id = read_at<std::uint32_t>(content.data());
  if (id == 0 || id > kMaxTopics || (id <= topics_.size() && topics_[id - 1] != nullptr)) {
    return make_status(Code::kInvalid, "topic number {} is out of range or taken", id);
  }
  if (topics_.size() < id) topics_.resize(id);
  topics_[id - 1] = std::make_unique<InTopic>();
  topics_[id - 1]->name.assign(reinterpret_cast<const char*>(content.data()) + 4,
                               content.size() - 4);
  return {};
}

Status Inbound::on_control(const FrameHeader& header, std::span<const std::byte> content) {
  switch (header.kind) {
    case Kind::kPing: control_.on_ping(header.flags); return {};
    case Kind::kAck:
      if (content.size() != 8) return make_status(Code::kInvalid, "an ACK of the wrong size");
      return control_.on_ack(header.sequence, read_at<std::uint64_t>(content.data()));
    case Kind::kReady: control_.on_ready(); return {};
    case Kind::kBye: {
      if (content.empty()) {
        control_.on_bye(true, "");
        return {};
      }
      auto reason = read_names(content);
      if (!reason) return std::move(reason).error();
      if (reason->empty()) return make_status(Code::kInvalid, "a goodbye with an empty reason");
      control_.on_bye(false, reason->front());
      return make_status(Code::kUnavailable, "the peer closed the link: {}", reason->front());
    }
    default: break;
  }
  auto names = read_names(content);
  if (!names) return std::move(names).error();
  if (header.kind == Kind::kSubscribe) {
    control_.on_subscribe(*std::move(names), (header.flags & 1) != 0);
  } else if (header.kind == Kind::kUnsubscribe) {
    control_.on_unsubscribe(*std::move(names));
  } else if (header.kind == Kind::kRoles) {
    control_.on_roles(*std::move(names));
  } else {
    control_.on_labels(*std::move(names));
  }
  return {};
}

}  // namespace divisi::mesh
