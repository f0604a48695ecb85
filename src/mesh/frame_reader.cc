#include "mesh/frame_reader.h"

#include <algorithm>
#include <cstring>

namespace divisi::mesh {

namespace {

// One read of a busy Unix socket brings about this much; larger blocks leave the cache.
constexpr std::size_t kBlockBytes = 256 * 1024;

// A frame that has begun and is at least this long is read to its final place.
constexpr std::size_t kDirect = 32 * 1024;

// With less room than this it is cheaper to begin a new block than to read a little more.
constexpr std::size_t kLeastRoom = 16 * 1024;

}  // namespace

FrameReader::FrameReader() : block_(kBlockBytes) {}

std::span<const iovec> FrameReader::prepare() {
  std::size_t count = 0;
  if (direct_left_ > 0) {
    parts_[count++] = {direct_at_ + (direct_size_ - direct_left_), direct_left_};
  }
  if (block_.size() - end_ < kLeastRoom) make_room(0);
  std::size_t room = block_.size() - end_;
  // Of a message that goes on, only the next header: its content is to land in place as well.
  const bool more = direct_left_ > 0 && (direct_header_.flags & kFlagMore) != 0;
  if (more) room = std::min(room, kBufferAlignment);
  parts_[count++] = {block_.mutable_data() + end_, room};
  return {parts_.data(), count};
}

// Moves the unparsed bytes to the front of a fresh block: events may still point into this one.
void FrameReader::make_room(std::size_t frame) {
  const std::size_t rest = end_ - begin_;
  Buffer fresh(std::max(kBlockBytes, align_up(std::max(frame, rest + kLeastRoom), 4096)));
  if (rest > 0) std::memcpy(fresh.mutable_data(), block_.data() + begin_, rest);
  block_ = std::move(fresh);
  begin_ = 0;
  end_ = rest;
}

Status FrameReader::commit(std::size_t n, Handler& handler) {
  if (direct_left_ > 0) {
    const std::size_t direct = std::min(n, direct_left_);
    direct_left_ -= direct;
    n -= direct;
    if (direct_left_ > 0) return {};
    const bool landed = direct_owner_.empty();
    const Buffer owner = std::move(direct_owner_);
    direct_owner_ = Buffer();
    // The announced length before the message was taken out already.
    const std::span<const std::byte> content{direct_at_, direct_size_};
    DIVISI_TRY_STATUS(handler.on_frame(direct_header_, content, owner, landed));
  }
  end_ += n;
  return parse(handler);
}

Status FrameReader::parse(Handler& handler) {
  for (;;) {
    const std::byte* const bytes = block_.data();
    for (; begin_ < end_ && static_cast<Kind>(bytes[begin_]) == Kind::kPad; ++begin_) ++padding_;
    if (end_ - begin_ < kHeaderBytes) return {};
    const FrameHeader header = read_header(bytes + begin_);
    const std::size_t limit = handler.max_length(header.kind);
    if (header.length > limit) {
      return limit == 0 ? make_status(Code::kInvalid, "unexpected frame of kind 0x{:02x}",
                                      static_cast<unsigned>(header.kind))
                        : make_status(Code::kInvalid,
                                      "oversized frame of kind 0x{:02x}: {} bytes, at most {}",
                                      static_cast<unsigned>(header.kind), header.length, limit);
    }
    const std::size_t frame = kHeaderBytes + header.length;
    if (end_ - begin_ >= frame) {
      const std::size_t at = begin_ + kHeaderBytes;
      begin_ += frame;
      DIVISI_TRY_STATUS(handler.on_frame(header, {bytes + at, header.length}, block_, false));
      if (handler.done()) return {};
      continue;
    }
    bool began = false;
    DIVISI_TRY_STATUS(begin_direct(header, handler, began));
    if (!began && frame > block_.size() - begin_) make_room(frame);
    return {};
  }
}

Status FrameReader::begin_direct(const FrameHeader& header, Handler& handler, bool& began) {
  const bool large = header.length >= kDirect;
  if (!large || (header.kind != Kind::kEvent && header.kind != Kind::kChunk)) return {};
  const std::size_t have = end_ - begin_ - kHeaderBytes;
  const std::byte* content = block_.data() + begin_ + kHeaderBytes;
  std::size_t skip = 0;
  std::uint64_t total = 0;
  const bool announced = header.kind == Kind::kEvent && (header.flags & kFlagMore) != 0;
  if (announced) {
    if (have < sizeof total) return {};  // a few bytes more first
    std::memcpy(&total, content, sizeof total);
    skip = sizeof total;
  }
  direct_header_ = header;
  direct_size_ = header.length - skip;
  if (announced || header.kind == Kind::kChunk) {
    DIVISI_TRY_STATUS([&]() -> Status {
      auto place = handler.landing(header, direct_size_, total);
      if (!place) return std::move(place).error();
      direct_at_ = *place;
      return {};
    }());
  } else {
    direct_owner_ = Buffer(direct_size_);
    direct_at_ = direct_owner_.mutable_data();
  }
  const std::size_t present = have - skip;
  if (present > 0) std::memcpy(direct_at_, content + skip, present);
  direct_left_ = direct_size_ - present;
  begin_ = end_;
  began = true;
  return {};
}

}  // namespace divisi::mesh
