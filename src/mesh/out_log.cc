#include "mesh/out_log.h"

#include "base/status.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace divisi::mesh {

namespace {

constexpr std::size_t kBlockBytes = 64 * 1024;

// So many emptied frames may stand in the log; then they are replaced by one.
constexpr std::size_t kMostDropped = 64;

std::size_t prefix_bytes(const OutEvent& event) {
  return kMessagePrefix + (event.topic_id == 0 ? 2 + event.topic_name.size() : 0) +
         (event.trace != 0 ? 8 : 0) + (event.buffers.size() >= kManyBuffers ? 8 : 0) +
         8 * event.buffers.size();
}

template <class T>
std::byte* put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
  return at + sizeof value;
}

std::byte* put_prefix(std::byte* at, const OutEvent& event) {
  at = put(at, event.topic_id);
  at = put(at, static_cast<std::uint32_t>(event.body.size()));
  if (event.topic_id == 0) {
    at = put(at, static_cast<std::uint16_t>(event.topic_name.size()));
    std::memcpy(at, event.topic_name.data(), event.topic_name.size());
    at += event.topic_name.size();
  }
  if (event.trace != 0) at = put(at, event.trace);
  if (event.buffers.size() >= kManyBuffers) at = put(at, std::uint64_t{event.buffers.size()});
  for (const Buffer& buffer : event.buffers) at = put(at, std::uint64_t{buffer.size()});
  return at;
}

const Buffer& zeros() {
  static const Buffer bytes = [] {
    Buffer made(kBufferAlignment);
    std::memset(made.mutable_data(), 0, made.size());
    return made;
  }();
  return bytes;
}

}  // namespace

std::size_t OutLog::message_bytes(const OutEvent& event) {
  std::size_t total = prefix_bytes(event) + event.body.size();
  for (const Buffer& buffer : event.buffers) {
    total = align_up(total, kBufferAlignment) + buffer.size();
  }
  return total;
}

void OutLog::append_event(const OutEvent& event, bool droppable) {
  const std::size_t total = message_bytes(event);
  FrameHeader header;
  header.kind = Kind::kEvent;
  header.codec = event.codec;
  header.buffers =
      static_cast<std::uint8_t>(std::min<std::size_t>(event.buffers.size(), kManyBuffers));
  header.flags = static_cast<std::uint8_t>((event.has_kwargs ? kFlagKwargs : 0) |
                                           (event.trace != 0 ? kFlagTrace : 0) |
                                           (event.relayed ? kFlagRelayed : 0));
  const std::size_t prefix = prefix_bytes(event);

  if (total < kExternal && event.buffers.empty() && !droppable) {  // the common, small case
    header.length = static_cast<std::uint32_t>(total);
    header.sequence = next_sequence_++;
    std::byte* at = reserve(kHeaderBytes + total, true);
    write_header(at, header);
    at = put_prefix(at + kHeaderBytes, event);
    if (!event.body.empty()) std::memcpy(at, event.body.data(), event.body.size());
    note_added(kHeaderBytes + total);
    return;
  }

  // The pieces of the message in order; what is short is copied, the rest referenced.
  std::deque<Buffer> pieces;
  pieces.emplace_back(prefix);
  put_prefix(pieces.back().mutable_data(), event);
  if (!event.body.empty()) {
    pieces.push_back(event.body_owner.empty() ? Buffer::copy_of(event.body) : event.body_owner);
  }
  std::size_t end = prefix + event.body.size();
  for (const Buffer& buffer : event.buffers) {
    const std::size_t aligned = align_up(end, kBufferAlignment);
    if (aligned != end) pieces.push_back(zeros().slice(0, aligned - end));
    if (!buffer.empty()) pieces.push_back(buffer);
    end = aligned + buffer.size();
  }

  if (droppable) {
    inline_open_ = false;  // its headers must be alone in their segments
    begin_droppable(event.topic_name);
  }
  std::size_t left = total;
  for (bool first = true; first || left > 0; first = false) {
    const std::size_t part = std::min(left, kChunkBytes);
    const bool more = part < left;
    header.kind = first ? Kind::kEvent : Kind::kChunk;
    header.flags = static_cast<std::uint8_t>((first ? header.flags : 0) | (more ? kFlagMore : 0));
    const bool announce = first && more;
    header.length = static_cast<std::uint32_t>(part + (announce ? 8 : 0));
    if (!droppable) pad_to_alignment(kHeaderBytes + (announce ? 8 : 0));
    begin_frame(header);
    if (announce) {
      put(reserve(8, false), std::uint64_t{total});
      note_added(8);
    }
    for (std::size_t room = part; room > 0;) {
      Buffer& piece = pieces.front();
      const std::size_t take = std::min(room, piece.size());
      append_piece(piece.slice(0, take), take >= kExternal || droppable);
      if (take == piece.size()) {
        pieces.pop_front();
      } else {
        piece = piece.slice(take, piece.size() - take);
      }
      room -= take;
    }
    left -= part;
    if (droppable) inline_open_ = false;
  }
  if (droppable) {
    Droppable& entry = droppable_.at(next_droppable_++);
    entry.segments = first_segment_ + segments_.size() - entry.segment;
  }
}

void OutLog::begin_droppable(std::string_view topic) {
  while (!droppable_.empty() && droppable_.begin()->second.sequence <= acknowledged_) {
    forget_droppable(droppable_.begin());
  }
  auto& [name, entries] = *droppable_topics_.try_emplace(std::string(topic)).first;
  entries.push_back(next_droppable_);
  droppable_.emplace(next_droppable_,
                     Droppable{next_sequence_, first_segment_ + segments_.size(), 0, &name});
}

void OutLog::append_topic(std::uint32_t id, std::string_view name) {
  FrameHeader header;
  header.kind = Kind::kTopic;
  header.length = static_cast<std::uint32_t>(sizeof id + name.size());
  begin_frame(header);
  std::memcpy(put(reserve(header.length, false), id), name.data(), name.size());
  note_added(header.length);
}

void OutLog::append_gap(std::uint64_t events) {
  FrameHeader header;
  header.kind = Kind::kGap;
  header.length = sizeof events;
  begin_frame(header);
  put(reserve(sizeof events, false), events);
  note_added(sizeof events);
}

void OutLog::begin_frame(FrameHeader header) {
  header.sequence = next_sequence_++;
  write_header(reserve(kHeaderBytes, true), header);
  note_added(kHeaderBytes);
}

// Large frames start so that their content lies at a multiple of 64 in the stream: see finding 4 of
// the performance notes (the kernel's copy is slow onto a target slightly ahead of its source).
void OutLog::pad_to_alignment(std::size_t header_size) {
  const std::size_t off = (position_ + header_size) % kBufferAlignment;
  if (off == 0) return;
  const std::size_t pad = kBufferAlignment - off;
  std::memset(reserve(pad, true), 0, pad);
  // A pad belongs to the frame behind it.
  bytes_ += pad;
  unsent_bytes_ += pad;
  position_ += pad;
  segments_.back().end += pad;
  segments_.back().last_sequence = next_sequence_;
}

std::byte* OutLog::reserve(std::size_t size, bool starts_frame) {
  const bool fits = block_used_ + size <= block_.size();
  if (!fits) {
    block_ = Buffer(std::max(kBlockBytes, size));
    block_used_ = 0;
  }
  // A frame never starts behind the middle of another one: walking a segment relies on it.
  if (!inline_open_ || !fits || (starts_frame && !segments_.back().starts_frame)) {
    segments_.push_back({block_, block_used_, block_used_, next_sequence_, starts_frame});
    inline_open_ = true;
  }
  std::byte* const at = block_.mutable_data() + block_used_;
  block_used_ += size;
  return at;
}

// Makes reserved bytes part of the log; they belong to the newest frame.
void OutLog::note_added(std::size_t size) {
  Segment& last = segments_.back();
  last.end += size;
  last.last_sequence = next_sequence_ - 1;
  bytes_ += size;
  unsent_bytes_ += size;
  position_ += size;
}

void OutLog::append_piece(Buffer bytes, bool reference) {
  const std::size_t size = bytes.size();
  if (reference) {
    inline_open_ = false;
    segments_.push_back({std::move(bytes), 0, 0, 0, false});
  } else {
    std::memcpy(reserve(size, false), bytes.data(), size);
  }
  note_added(size);
}

// What was handed out to a writer, or half written, can no longer be changed.
bool OutLog::is_begun(const Droppable& entry) const {
  const std::uint64_t cursor = first_segment_ + cursor_segment_;
  return entry.segment < gathered_end_ || entry.segment < cursor ||
         (entry.segment == cursor && cursor_offset_ > 0);
}

// The oldest of its topic.
void OutLog::forget_droppable(Droppables::iterator entry) {
  const auto topic = droppable_topics_.find(*entry->second.topic);
  topic->second.pop_front();
  if (topic->second.empty()) droppable_topics_.erase(topic);
  droppable_.erase(entry);
}

// Appends keep their order: those that have begun are the first.
void OutLog::forget_begun() {
  while (!droppable_.empty() && is_begun(droppable_.begin()->second)) {
    forget_droppable(droppable_.begin());
  }
}

// Leaves the frames without their content.
void OutLog::empty(const Droppable& entry) {
  for (std::uint64_t n = entry.segment; n < entry.segment + entry.segments; ++n) {
    Segment& segment = segments_[n - first_segment_];
    std::size_t kept = 0;
    if (segment.starts_frame) {
      std::byte* const at = segment.data.mutable_data() + segment.begin;
      FrameHeader header = read_header(at);
      header.flags = kFlagDropped;
      ++dropped_frames_;
      header.length = 0;
      header.buffers = 0;
      write_header(at, header);
      kept = kHeaderBytes;
    }
    const std::size_t removed = segment.size() - kept;
    bytes_ -= removed;
    unsent_bytes_ -= removed;
    segment.end = segment.begin + kept;
    if (kept == 0) segment.data = Buffer();
  }
}

// Seldom enough that a long log is not walked for each of them.
void OutLog::compact_if_worth_it() {
  if (dropped_frames_ > std::max<std::uint64_t>(kMostDropped, unacknowledged() / 4)) compact();
}

std::size_t OutLog::drop_unsent(std::string_view topic, bool only_oldest) {
  forget_begun();
  std::size_t dropped = 0;
  const std::string name(topic);
  for (auto found = droppable_topics_.find(name);
       found != droppable_topics_.end() && !(only_oldest && dropped == 1);
       found = droppable_topics_.find(name)) {
    const auto entry = droppable_.find(found->second.front());
    empty(entry->second);
    forget_droppable(entry);
    ++dropped;
  }
  compact_if_worth_it();
  return dropped;
}

std::optional<std::string> OutLog::drop_oldest() {
  forget_begun();
  if (droppable_.empty()) return std::nullopt;
  const auto entry = droppable_.begin();
  std::string topic = *entry->second.topic;
  empty(entry->second);
  forget_droppable(entry);
  compact_if_worth_it();
  return topic;
}

// The segment, and the offset in it, of the first frame of which no byte is sent.
std::pair<std::size_t, std::size_t> OutLog::first_unsent_frame() const {
  // Behind the frame under the cursor, which starts in the last segment that starts one.
  std::size_t first = cursor_segment_;
  while (!segments_[first].starts_frame && first > 0) --first;
  const Segment& segment = segments_[first];
  std::size_t at = segment.size();
  if (segment.starts_frame) {
    std::size_t before = cursor_offset_;
    for (std::size_t i = first; i < cursor_segment_; ++i) before += segments_[i].size();
    const std::byte* const bytes = segment.data.data() + segment.begin;
    for (at = 0; at < before && at < segment.size();) {
      const bool pad = static_cast<Kind>(bytes[at]) == Kind::kPad;
      at += pad ? 1 : kHeaderBytes + read_header(bytes + at).length;
    }
  }
  if (at < segment.size()) return {first, at};
  ++first;
  while (first < segments_.size() && !segments_[first].starts_frame) ++first;
  return {first, 0};
}

// The u64 of a GAP whose header is there; it may lie in the next segment.
std::uint64_t OutLog::events_of_gap(std::size_t segment, std::size_t at) const {
  const Segment* in = &segments_[segment];
  at += kHeaderBytes;
  if (at >= in->size()) {
    in = &segments_[segment + 1];
    at = 0;
  }
  std::uint64_t events = 0;
  std::memcpy(&events, in->data.data() + in->begin + at, sizeof events);
  return events;
}

OutLog::CutOff OutLog::cut_unsent() {
  CutOff cut;
  if (cursor_segment_ >= segments_.size()) return cut;
  auto [first, at] = first_unsent_frame();
  std::optional<std::uint64_t> next;  // the number that is free then
  std::size_t removed = 0;
  for (std::size_t i = first; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    const std::byte* const bytes = segment.data.data() + segment.begin;
    std::size_t n = i == first ? at : 0;
    removed += segment.size() - n;
    while (segment.starts_frame && n < segment.size()) {
      if (static_cast<Kind>(bytes[n]) == Kind::kPad) {
        ++n;
        continue;
      }
      const FrameHeader header = read_header(bytes + n);
      const bool is_empty = (header.flags & kFlagDropped) != 0;
      // The first one may be the rest of a message that has begun.
      const bool counts = header.kind == Kind::kEvent || (header.kind == Kind::kChunk && !next);
      if (counts && !is_empty) ++cut.events;
      if (header.kind == Kind::kEvent && is_empty) ++cut.dropped;
      if (header.kind == Kind::kGap) cut.dropped += events_of_gap(i, n);
      if (!next) next = header.sequence;
      n += kHeaderBytes + header.length;
    }
  }
  if (!next) return cut;
  if (at > 0) {
    segments_[first].end = segments_[first].begin + at;
    segments_[first].last_sequence = *next - 1;
    ++first;
  }
  segments_.resize(first);
  next_sequence_ = *next;
  bytes_ -= removed;
  unsent_bytes_ -= removed;
  position_ -= removed;
  inline_open_ = false;
  droppable_.clear();
  droppable_topics_.clear();
  dropped_frames_ = 0;
  return cut;
}

// The header of a frame that has a segment for itself.
std::optional<FrameHeader> OutLog::only_frame(const Segment& segment) {
  if (!segment.starts_frame || segment.size() < kHeaderBytes) return std::nullopt;
  const FrameHeader header = read_header(segment.data.data() + segment.begin);
  if (header.kind == Kind::kPad || segment.size() != kHeaderBytes + header.length)
    return std::nullopt;
  return header;
}

// Takes the emptied frames out of the unsent part and numbers the others anew; one GAP tells the
// receiver how many events they were. Without this the log of a stalled peer would fill with them.
void OutLog::compact() {
  dropped_frames_ = 0;
  // What was handed out, or belongs to a frame that has begun, stays.
  std::size_t first = cursor_segment_ + (cursor_offset_ > 0 ? 1 : 0);
  if (gathered_end_ > first_segment_) {
    first = std::max(first, static_cast<std::size_t>(gathered_end_ - first_segment_));
  }
  const auto emptied = [](const Segment& segment) {
    const auto header = only_frame(segment);
    return header && (header->flags & kFlagDropped) != 0;
  };
  const auto is_gap = [](const Segment& segment) {
    const auto header = only_frame(segment);
    return header && header->kind == Kind::kGap;
  };
  while (first < segments_.size() && !emptied(segments_[first]) && !is_gap(segments_[first]))
    ++first;
  if (std::none_of(segments_.begin() + static_cast<std::ptrdiff_t>(first), segments_.end(),
                   emptied)) {
    return;
  }
  const std::optional<FrameHeader> first_frame = only_frame(segments_[first]);
  DIVISI_CHECK(first_frame.has_value(), "what was emptied is a segment of one frame");
  const std::uint64_t base = first_frame->sequence;

  std::uint64_t events = 0;
  std::uint64_t sequence = base + 1;  // the GAP takes the first number
  std::deque<Segment> kept;
  struct Place {
    std::uint64_t sequence = 0;
    std::uint64_t segment = 0;
  };
  std::unordered_map<std::uint64_t, Place> moved;  // by the old number of the segment
  for (std::size_t i = first; i < segments_.size(); ++i) {
    Segment& segment = segments_[i];
    if (segment.size() == 0) continue;
    const bool gap = is_gap(segment);
    if (gap || emptied(segment)) {
      const std::optional<FrameHeader> header = only_frame(segment);
      std::uint64_t told = header && header->kind == Kind::kEvent ? 1 : 0;
      if (gap) std::memcpy(&told, segment.data.data() + segment.begin + kHeaderBytes, sizeof told);
      events += told;
      bytes_ -= segment.size();
      unsent_bytes_ -= segment.size();
      continue;
    }
    moved[first_segment_ + i] = {sequence, first_segment_ + first + 1 + kept.size()};
    sequence = renumber(segment, sequence);
    kept.push_back(std::move(segment));
  }
  segments_.resize(first);

  FrameHeader header;
  header.kind = Kind::kGap;
  header.length = sizeof events;
  header.sequence = base;
  Buffer told(kHeaderBytes + sizeof events);
  write_header(told.mutable_data(), header);
  put(told.mutable_data() + kHeaderBytes, events);
  bytes_ += told.size();
  unsent_bytes_ += told.size();
  const std::size_t size = told.size();
  segments_.push_back({std::move(told), 0, size, base, true});
  for (Segment& segment : kept) segments_.push_back(std::move(segment));
  inline_open_ = false;
  next_sequence_ = sequence;
  for (auto& [number, entry] : droppable_) {
    const auto found = moved.find(entry.segment);
    if (found == moved.end()) continue;
    entry.sequence = found->second.sequence;
    entry.segment = found->second.segment;
  }
}

// Gives the frames that start in this segment new numbers from `next` on; returns the one after.
std::uint64_t OutLog::renumber(Segment& segment, std::uint64_t next) {
  std::byte* const bytes = segment.data.mutable_data() + segment.begin;
  bool behind_padding = false;
  for (std::size_t at = 0; segment.starts_frame && at < segment.size();) {
    behind_padding = static_cast<Kind>(bytes[at]) == Kind::kPad;
    if (behind_padding) {
      ++at;
      continue;
    }
    FrameHeader header = read_header(bytes + at);
    header.sequence = next++;
    write_header(bytes + at, header);
    at += kHeaderBytes + header.length;
  }
  segment.last_sequence = behind_padding ? next : next - 1;  // padding belongs to what follows it
  return next;
}

std::size_t OutLog::gather(std::span<iovec> parts, std::size_t limit, std::size_t& total) {
  std::size_t count = 0;
  total = 0;
  std::size_t offset = cursor_offset_;
  std::size_t index = cursor_segment_;
  for (;
       index < segments_.size() && count < parts.size() && total < std::max<std::size_t>(limit, 1);
       ++index, offset = 0) {
    Segment& segment = segments_[index];
    const std::size_t size = segment.size() - offset;
    if (size == 0) continue;
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): an iovec has no const form
    parts[count++] = {const_cast<std::byte*>(segment.data.data()) + segment.begin + offset, size};
    total += size;
  }
  gathered_end_ = first_segment_ + index;
  return count;
}

void OutLog::advance(std::size_t written) {
  unsent_bytes_ -= written;
  while (written > 0) {
    const std::size_t left = segments_[cursor_segment_].size() - cursor_offset_;
    const std::size_t take = std::min(written, left);
    cursor_offset_ += take;
    written -= take;
    if (cursor_offset_ < segments_[cursor_segment_].size()) break;
    if (cursor_segment_ + 1 == segments_.size()) break;  // may still grow
    ++cursor_segment_;
    cursor_offset_ = 0;
  }
  gathered_end_ = 0;
  free_acknowledged();
}

std::size_t OutLog::to_frame_end() const {
  if (cursor_segment_ >= segments_.size()) return 0;
  // Walk from the last segment that starts a frame.
  std::size_t start = cursor_segment_;
  while (!segments_[start].starts_frame && start > 0) --start;
  if (!segments_[start].starts_frame) return 0;  // its frame is sent, acknowledged and half freed
  std::size_t before = 0;                        // bytes from that segment's begin to the cursor
  for (std::size_t i = start; i < cursor_segment_; ++i) before += segments_[i].size();
  before += cursor_offset_;
  const Segment& segment = segments_[start];
  const std::byte* const bytes = segment.data.data() + segment.begin;
  std::size_t at = 0;
  while (at < before) {
    if (at >= segment.size()) break;
    if (static_cast<Kind>(bytes[at]) == Kind::kPad) {
      ++at;
      continue;
    }
    at += kHeaderBytes + read_header(bytes + at).length;
  }
  return at - std::min(at, before);
}

std::uint64_t OutLog::handed_out() const {
  if (unsent_bytes_ == 0) return last_sequence();
  if (gathered_end_ > first_segment_) {  // being written
    return segments_[gathered_end_ - first_segment_ - 1].last_sequence;
  }
  const Segment& segment = segments_[cursor_segment_];
  std::uint64_t last =
      cursor_segment_ > 0 ? segments_[cursor_segment_ - 1].last_sequence : acknowledged_;
  if (cursor_offset_ > 0 && !segment.starts_frame) return segment.last_sequence;
  const std::byte* const bytes = segment.data.data() + segment.begin;
  for (std::size_t at = 0; at < cursor_offset_;) {
    if (static_cast<Kind>(bytes[at]) == Kind::kPad) {
      ++at;
      continue;
    }
    const FrameHeader header = read_header(bytes + at);
    last = header.sequence;
    at += kHeaderBytes + header.length;
  }
  return last;
}

bool OutLog::acknowledge(std::uint64_t sequence) {
  if (sequence <= acknowledged_) return true;
  if (sequence > handed_out()) return false;
  acknowledged_ = sequence;
  free_acknowledged();
  return true;
}

void OutLog::free_acknowledged() {
  while (!segments_.empty() && cursor_segment_ > 0 &&
         segments_.front().last_sequence <= acknowledged_) {
    pop_front();
  }
  // The last segment has no successor to move the cursor to; free it once it is all sent.
  if (segments_.size() == 1 && cursor_segment_ == 0 && gathered_end_ == 0 &&
      cursor_offset_ == segments_.front().size() && all_acknowledged()) {
    pop_front();
    cursor_offset_ = 0;
    inline_open_ = false;
    block_used_ = 0;  // nobody refers to the block any more: stay where the cache is warm
    droppable_.clear();
    droppable_topics_.clear();
    dropped_frames_ = 0;
  }
}

void OutLog::pop_front() {
  bytes_ -= segments_.front().size();
  segments_.pop_front();
  ++first_segment_;
  if (cursor_segment_ > 0) --cursor_segment_;
}

std::size_t OutLog::walk_to(std::uint64_t sequence, const Segment& segment) const {
  const std::byte* const bytes = segment.data.data() + segment.begin;
  std::size_t at = 0;
  while (at < segment.size()) {
    if (static_cast<Kind>(bytes[at]) == Kind::kPad) {
      ++at;
      continue;
    }
    const FrameHeader header = read_header(bytes + at);
    if (header.sequence >= sequence) break;
    at += kHeaderBytes + header.length;
  }
  return std::min(at, segment.size());
}

bool OutLog::rewind(std::uint64_t sequence) {
  if (sequence < acknowledged_ || sequence > std::max(acknowledged_, handed_out())) return false;
  acknowledged_ = sequence;
  cursor_segment_ = 0;
  cursor_offset_ = 0;
  gathered_end_ = 0;
  while (!segments_.empty() && segments_.front().last_sequence <= sequence) pop_front();
  if (segments_.empty()) {
    inline_open_ = false;
  } else {
    const std::size_t skip = walk_to(sequence + 1, segments_.front());
    segments_.front().begin += skip;
    bytes_ -= skip;
  }
  unsent_bytes_ = bytes_;
  return true;
}

std::uint64_t OutLog::sent_after(std::uint64_t sequence) const {
  std::uint64_t sent = next_sequence_ - 1;
  if (cursor_segment_ < segments_.size() && unsent_bytes_ > 0) {
    // The segment under the cursor may be sent in part; its predecessor is sent in full.
    sent = cursor_segment_ > 0 ? segments_[cursor_segment_ - 1].last_sequence : acknowledged_;
  }
  return sent > sequence ? sent - sequence : 0;
}

std::uint64_t OutLog::unacknowledged_events() const {
  std::uint64_t events = 0;
  bool is_first = true;
  for (const Segment& segment : segments_) {
    if (!segment.starts_frame) continue;
    const std::byte* const bytes = segment.data.data() + segment.begin;
    for (std::size_t at = 0; at < segment.size();) {
      if (static_cast<Kind>(bytes[at]) == Kind::kPad) {
        ++at;
        continue;
      }
      const FrameHeader header = read_header(bytes + at);
      if (header.sequence > acknowledged_) {
        // The first one may be the rest of a message whose beginning was acknowledged.
        const bool begins =
            header.kind == Kind::kEvent || (is_first && header.kind == Kind::kChunk);
        if (begins && (header.flags & kFlagDropped) == 0) ++events;
        is_first = false;
      }
      at += kHeaderBytes + header.length;
    }
  }
  return events;
}

std::size_t OutLog::cursor_alignment() const {
  return (position_ - unsent_bytes_) % kBufferAlignment;
}

}  // namespace divisi::mesh
