// OutLog: the sequenced frames towards one peer, from append to acknowledgement.
//
//   append -> [ acknowledged | sent, waiting for its ACK | unsent ] -> gather + advance -> socket
//
// The bytes of a frame are laid out once and stay where they are until the peer has acknowledged
// them, so keeping them for a resend costs no copy: a reconnect only moves the cursor back.
// Small frames are copied into 64 KiB blocks; a body or buffer of kExternal or more is referenced.
//
// Not thread-safe: the owner's lock protects it. Bytes handed out by gather() stay valid and
// unchanged until the matching advance(), even while others append.
#pragma once

#include "divisi/buffer.h"
#include "mesh/wire.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/uio.h>
#include <unordered_map>
#include <utility>

namespace divisi::mesh {

// One event as the log takes it. Views need to live only during append().
struct OutEvent {
  std::uint32_t topic_id = 0;   // 0: `topic_name` travels with the event
  std::string_view topic_name;  // also the key under which droppable events are found
  std::uint8_t codec = 0;
  bool has_kwargs = false;
  bool relayed = false;
  std::uint64_t trace = 0;  // 0: none
  std::span<const std::byte> body;
  Buffer body_owner;  // when set, `body` lies in it and need not be copied
  std::span<const Buffer> buffers;
};

class OutLog {
 public:
  // From this size on bytes are referenced instead of copied: an iovec costs about as much as
  // copying 4 KiB twice (in here, and through the cache again on the way out).
  static constexpr std::size_t kExternal = 8 * 1024;

  // Bytes that the event will occupy, without padding.
  static std::size_t message_bytes(const OutEvent& event);

  void append_event(const OutEvent& event, bool droppable);
  void append_topic(std::uint32_t id, std::string_view name);
  void append_gap(std::uint64_t events);

  // Removes the content of unsent droppable events of `topic`, all of them or the oldest one.
  // Their numbers travel on as empty frames, or as a GAP if there are many, so that the receiver
  // knows. Returns how many.
  std::size_t drop_unsent(std::string_view topic, bool only_oldest);
  // The same for the oldest unsent droppable event of all topics. Returns its topic, or nothing.
  std::optional<std::string> drop_oldest();

  // Cuts off all that is unsent, but for the rest of a frame that has begun. Nobody may be writing.
  struct CutOff {
    std::uint64_t events = 0;   // that will not arrive
    std::uint64_t dropped = 0;  // events removed before, of which the receiver has not heard
  };
  CutOff cut_unsent();

  std::size_t bytes() const { return bytes_; }  // kept: unsent and unacknowledged
  std::size_t unsent_bytes() const { return unsent_bytes_; }
  std::uint64_t last_sequence() const { return next_sequence_ - 1; }
  std::uint64_t acknowledged() const { return acknowledged_; }
  bool all_acknowledged() const { return acknowledged_ + 1 == next_sequence_; }

  // Fills `parts` with unsent bytes in order, about `limit` bytes at most but whole pieces (at
  // least one if any). Returns the number of parts; `total` is their size.
  std::size_t gather(std::span<iovec> parts, std::size_t limit, std::size_t& total);
  // Also frees what was acknowledged while it was still being written.
  void advance(std::size_t written);

  // Bytes to write before the cursor is between two frames again; 0 when it is.
  std::size_t to_frame_end() const;

  // The last frame of which a byte was handed out.
  std::uint64_t handed_out() const;

  // Frees what the peer has. False if `sequence` was never sent: the peer is broken.
  bool acknowledge(std::uint64_t sequence);

  // After a reconnect: the peer has everything up to `sequence`, the rest is unsent again.
  // False if that number is outside of what was sent and is kept.
  bool rewind(std::uint64_t sequence);

  // How many frames behind `sequence` were written, at least in part: they will be sent twice.
  std::uint64_t sent_after(std::uint64_t sequence) const;

  // How many frames are kept, and where the cursor stands modulo 64 (for stream alignment).
  std::uint64_t unacknowledged() const { return next_sequence_ - 1 - acknowledged_; }
  // Without topics and further chunks, and without what was dropped. Walks the whole log.
  std::uint64_t unacknowledged_events() const;
  std::size_t cursor_alignment() const;

 private:
  struct Segment {
    Buffer data;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::uint64_t last_sequence = 0;  // of the last frame with bytes in here
    // True: whole frames, of which the last may go on in the following segments. False: a part of
    // the middle of exactly one frame.
    bool starts_frame = true;
    std::size_t size() const { return end - begin; }
  };
  struct Droppable {
    std::uint64_t sequence;  // of its first frame
    std::uint64_t segment;   // absolute number of its first segment
    std::uint64_t segments;
    const std::string* topic;  // a key of droppable_topics_
  };
  using Droppables = std::map<std::uint64_t, Droppable>;

  // Contiguous inline space at the end, at the start of a frame or inside one.
  std::byte* reserve(std::size_t size, bool starts_frame);
  void append_piece(Buffer bytes, bool reference);
  void begin_frame(FrameHeader header);
  void pad_to_alignment(std::size_t header_size);
  void note_added(std::size_t size);
  void pop_front();
  void free_acknowledged();
  void compact();
  std::pair<std::size_t, std::size_t> first_unsent_frame() const;
  std::uint64_t events_of_gap(std::size_t segment, std::size_t at) const;
  void begin_droppable(std::string_view topic);
  bool is_begun(const Droppable& entry) const;
  void forget_droppable(Droppables::iterator entry);
  void forget_begun();
  void empty(const Droppable& entry);
  void compact_if_worth_it();
  static std::optional<FrameHeader> only_frame(const Segment& segment);
  static std::uint64_t renumber(Segment& segment, std::uint64_t next);
  std::size_t walk_to(std::uint64_t sequence, const Segment& segment) const;

  std::deque<Segment> segments_;
  std::uint64_t first_segment_ = 0;  // absolute number of segments_.front()
  Buffer block_;                     // where inline bytes go
  std::size_t block_used_ = 0;
  bool inline_open_ = false;  // the last segment may grow

  std::size_t cursor_segment_ = 0;  // index into segments_
  std::size_t cursor_offset_ = 0;   // from the segment's begin
  std::uint64_t gathered_end_ = 0;  // absolute number of the first segment not handed out

  std::uint64_t next_sequence_ = 1;
  std::uint64_t acknowledged_ = 0;
  std::size_t dropped_frames_ = 0;  // emptied since the last compact()
  std::size_t bytes_ = 0;
  std::size_t unsent_bytes_ = 0;
  std::uint64_t position_ = 0;  // bytes ever appended, for alignment

  // By the order of their appends, and which of them each topic has. Those at the front may have
  // been sent meanwhile.
  Droppables droppable_;
  std::uint64_t next_droppable_ = 0;
  std::unordered_map<std::string, std::deque<std::uint64_t>> droppable_topics_;
};

}  // namespace divisi::mesh
