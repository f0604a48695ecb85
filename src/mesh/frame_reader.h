// FrameReader: turns the bytes of one connection into frames, without copying what is large.
//
// The caller reads from the socket straight into the places that prepare() names. Small frames are
// handed on inside the block they arrived in; the rest of a large frame that has only begun goes
// directly to its final, page-aligned place. Loop only. Accepts any bytes: what is not a frame
// ends in a Status that says why.
#pragma once

#include "base/status.h"
#include "divisi/buffer.h"
#include "mesh/wire.h"

#include <array>
#include <cstdint>
#include <span>
#include <sys/uio.h>

namespace divisi::mesh {

class FrameReader {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;

    // The longest frame of this kind that the peer may send now; 0 refuses the kind.
    virtual std::size_t max_length(Kind kind) const = 0;

    // Where the content of a kChunk, or of a kEvent that announces `total` bytes in all, is to be
    // put. Room for `length` bytes; an error ends the connection.
    virtual Result<std::byte*> landing(const FrameHeader& header, std::size_t length,
                                       std::uint64_t total) = 0;

    // One whole frame. `content` lies in `owner`, or (`landed`) already where landing() said.
    virtual Status on_frame(const FrameHeader& header, std::span<const std::byte> content,
                            const Buffer& owner, bool landed) = 0;

    // True: parsing stops after this frame (the next ones are for another handler).
    virtual bool done() const { return false; }
  };

  FrameReader();

  // Where the next bytes go. At most two parts, together never empty.
  std::span<const iovec> prepare();

  // `n` bytes were read. Hands every frame that is now complete to `handler`; stops at the first
  // error. The handler may change between calls; commit(0, next) goes on with what is left.
  Status commit(std::size_t n, Handler& handler);

  // Alignment bytes seen so far.
  std::uint64_t padding() const { return padding_; }

 private:
  Status parse(Handler& handler);
  Status begin_direct(const FrameHeader& header, Handler& handler, bool& began);
  void make_room(std::size_t frame);

  Buffer block_;
  std::size_t begin_ = 0;  // first byte not yet parsed
  std::size_t end_ = 0;    // one past the last byte read
  std::uint64_t padding_ = 0;

  // A large frame whose remainder is read directly to its place.
  FrameHeader direct_header_;
  Buffer direct_owner_;  // empty when the handler gave the place
  std::byte* direct_at_ = nullptr;
  std::size_t direct_size_ = 0;
  std::size_t direct_left_ = 0;

  std::array<iovec, 2> parts_{};
};

}  // namespace divisi::mesh
