// The way out: from a link's log and control frames to its socket.
#include "divisi/packer.h"
#include "mesh/connection.h"
#include "mesh/node.h"

#include <cerrno>
#include <cstring>

namespace divisi::mesh {

namespace {

constexpr std::size_t kParts = 64;

// At most this much in one system call: the lock is free meanwhile, but acknowledgements queue up.
constexpr std::size_t kWriteBytes = 1 << 20;

}  // namespace

void Node::add_control(Outbound& out, Kind kind, std::uint8_t flags, std::uint64_t sequence,
                       std::span<const std::byte> content) {
  FrameHeader header;
  header.kind = kind;
  header.flags = flags;
  header.length = static_cast<std::uint32_t>(content.size());
  header.sequence = sequence;
  const std::size_t at = out.control.size();
  out.control.resize(at + kHeaderBytes + content.size());
  write_header(out.control.data() + at, header);
  if (!content.empty()) {
    std::memcpy(out.control.data() + at + kHeaderBytes, content.data(), content.size());
  }
}

void Node::add_names(Outbound& out, Kind kind, std::uint8_t flags,
                     const std::vector<std::string>& names) {
  // Long lists go in several frames: a frame is bounded.
  constexpr std::size_t kNamesPerFrame = 2048;
  std::size_t at = 0;
  do {
    const std::size_t count = std::min(kNamesPerFrame, names.size() - at);
    Packer body;
    body.array(count);
    for (std::size_t i = 0; i < count; ++i) body.text(names[at + i]);
    add_control(out, kind, at == 0 ? flags : 0, 0, body.body());
    at += count;
  } while (at < names.size());
}

void Node::add_ack(Outbound& out) {
  std::byte credit[8];
  std::memcpy(credit, &out.grant, sizeof credit);
  add_control(out, Kind::kAck, 0, out.ack, credit);
  out.ack_bytes = 0;
  out.grant_told = out.grant;
}

// Control frames stand between events. They are filled up to a multiple of 64 by a PING, so that
// the content of large frames keeps its alignment in the stream.
std::size_t Node::gather(Outbound& out, std::span<iovec> parts, std::size_t& control_bytes) {
  std::size_t count = 0;
  std::size_t most = 0;  // not a byte of the log beyond this
  if (out.log.unsent_bytes() > 0) {
    most = out.credit - std::min(out.credit, out.sent);
    // A frame that has begun is finished in any case: the peer grants for whole ones only.
    if (most == 0) most = out.log.to_frame_end();
  }
  const bool may_send_events = most > 0;
  if (out.control_written == out.control_writing.size()) {
    out.control_writing.clear();
    out.control_written = 0;
    if (may_send_events && out.ack_bytes > 0) add_ack(out);
    if (!out.control.empty()) {
      const std::size_t rest = out.log.to_frame_end();
      if (rest == 0) {
        const std::size_t size = out.control.size() + kHeaderBytes;
        const std::size_t fill = align_up(size, kBufferAlignment) - size;
        const std::byte zeros[kBufferAlignment] = {};
        if (out.control.size() % kBufferAlignment != 0) {
          add_control(out, Kind::kPing, 0, 0, {zeros, fill});
        }
        out.control_writing.swap(out.control);
      } else {
        most = rest;  // finish the frame first
      }
    }
  }
  control_bytes = out.control_writing.size() - out.control_written;
  if (control_bytes > 0) {
    parts[count++] = {out.control_writing.data() + out.control_written, control_bytes};
  }
  // No event before what was said earlier and waits behind half written lists.
  if (control_bytes > 0 && !out.control.empty()) return count;
  if (most == 0) return count;
  std::size_t total = 0;
  const std::size_t added =
      out.log.gather(parts.subspan(count), std::min(kWriteBytes, most), total);
  count += added;
  if (total > most) {  // cut at the end of the frame, or of the credit
    std::size_t excess = total - most;
    while (excess >= parts[count - 1].iov_len) excess -= parts[--count].iov_len;
    parts[count - 1].iov_len -= excess;
  }
  return count;
}

void Node::write_some(Lock& lock, const LinkPtr& link) {
  Outbound& out = link->out;
  if (out.writing || out.waiting_writable || out.stream == nullptr) return;
  out.writing = true;
  while (out.stream != nullptr) {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): gather() fills as many as it counts
    std::array<iovec, kParts> parts;
    std::size_t control_bytes = 0;
    const std::size_t count = gather(out, parts, control_bytes);
    if (count == 0) break;
    const auto stream = out.stream;
    const std::uint64_t connection = out.connection;
    lock.unlock();
    const ssize_t n = stream->write({parts.data(), count});
    lock.lock();
    out.last_written = reactor_.now();
    if (n > 0) {
      const auto written = static_cast<std::size_t>(n);
      const std::size_t control = std::min(written, control_bytes);
      out.control_written += control;
      const std::size_t before = out.log.bytes();
      out.log.advance(written - control);
      count_queued(out, before);
      out.sent += written - control;
      continue;
    }
    out.log.advance(0);
    if (n != -EAGAIN) break;  // the read side sees the same and ends the connection
    if (out.connection != connection) continue;
    out.waiting_writable = true;
    reactor_.post([this, alive = std::weak_ptr(alive_), link, connection] {
      if (alive.expired()) return;
      Lock relock(mutex_);
      if (link->out.connection != connection || link->out.stream == nullptr) return;
      const auto socket = link->out.stream;
      relock.unlock();
      socket->wait_writable([this, alive, link, connection] {
        if (alive.expired()) return;
        Lock again(mutex_);
        if (link->out.connection != connection) return;
        link->out.waiting_writable = false;
        write_some(again, link);
        if (link->out.parting) linger_when_written(again, link);
      });
    });
    break;
  }
  out.writing = false;
  if (waiting_ > 0) changed_.notify_all();
}

}  // namespace divisi::mesh
