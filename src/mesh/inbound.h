// Inbound: what one peer incarnation sends us. Checks the numbering, puts chunks together, keeps
// the topic names, and collects the events of a read for the router to hand on. It outlives
// connections: after a reconnect it goes on at the next number. Loop only.
#pragma once

#include "base/status.h"
#include "divisi/buffer.h"
#include "mesh/frame_reader.h"
#include "mesh/wire.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace divisi::mesh {

// A topic as the peer names it, with the router's cached decision for it.
struct InTopic {
  std::string name;
  const void* route = nullptr;      // the router's own
  std::uint64_t route_version = 0;  // of the table that `route` was looked up in
  std::uint64_t received = 0;
};

// One event, still encoded. `message` lies in Received::owners[owner].
struct InEvent {
  InTopic* topic = nullptr;
  const std::byte* message = nullptr;
  std::uint64_t sequence = 0;
  std::uint64_t length = 0;  // of the whole message
  std::uint32_t body_length = 0;
  std::uint32_t body_offset = 0;
  std::uint32_t buffers = 0;
  std::uint16_t owner = 0;
  std::uint8_t flags = 0;
  std::uint8_t codec = 0;

  std::span<const std::byte> body() const { return {message + body_offset, body_length}; }
  std::uint64_t trace() const;  // 0: none
};

// The events of one read, in order.
struct Received {
  std::vector<Buffer> owners;
  std::vector<InEvent> events;
};

// The out-of-band buffers of an event: parts of its owner, or copies where sharing would keep a
// much larger block alive.
void read_buffers(const InEvent& event, const Buffer& owner, std::vector<Buffer>& out);

class Inbound final : public FrameReader::Handler {
 public:
  // What is not an event. Called during FrameReader::commit.
  class Control {
   public:
    virtual ~Control() = default;
    virtual Status on_ack(std::uint64_t sequence, std::uint64_t credit) = 0;
    virtual void on_subscribe(std::vector<std::string> topics, bool replace) = 0;
    virtual void on_unsubscribe(std::vector<std::string> topics) = 0;
    virtual void on_ready() = 0;
    virtual void on_roles(std::vector<std::string> roles) = 0;
    virtual void on_labels(std::vector<std::string> labels) = 0;  // instead of the last ones
    virtual void on_bye(bool clean, std::string reason) = 0;
    virtual void on_ping(std::uint8_t /*flags*/) {}
    virtual void on_gap(std::uint64_t events) = 0;
  };

  Inbound(Control& control, std::uint64_t max_message, bool allow_pickle = false)
      : control_(control), max_message_(max_message), allow_pickle_(allow_pickle) {}

  // A new connection continues after received().
  void restart();

  std::uint64_t received() const { return received_; }
  // Bytes of sequenced frames on this connection (alignment bytes are added by the caller).
  std::uint64_t connection_bytes() const { return connection_bytes_; }
  // Of these, bytes of a message that is not complete yet.
  std::uint64_t assembling_bytes() const { return filled_; }
  // Events that the peer's policy removed, since the last call.
  std::uint64_t take_dropped_by_peer() { return std::exchange(dropped_by_peer_, 0); }
  // Pickled events that were not to be believed (decision N5), since the last call.
  std::uint64_t take_refused() { return std::exchange(refused_, 0); }

  // The events since the last clear_events(). Their topics live as long.
  Received& events() { return events_; }
  void clear_events();
  const std::vector<std::unique_ptr<InTopic>>& topics() const { return topics_; }

  std::size_t max_length(Kind kind) const override;
  Result<std::byte*> landing(const FrameHeader& header, std::size_t length,
                             std::uint64_t total) override;
  Status on_frame(const FrameHeader& header, std::span<const std::byte> content,
                  const Buffer& owner, bool landed) override;

 private:
  Status on_event(const FrameHeader& header, std::span<const std::byte> content,
                  const Buffer& owner, bool landed);
  Status on_chunk(const FrameHeader& header, std::span<const std::byte> content, bool landed);
  Status on_topic(std::span<const std::byte> content);
  Status on_control(const FrameHeader& header, std::span<const std::byte> content);
  Status begin_message(const FrameHeader& header, std::uint64_t total);
  Status add_message(const FrameHeader& header, std::span<const std::byte> message,
                     const Buffer& owner);
  Result<InTopic*> topic_of(std::uint32_t id, std::string_view inline_name);

  Control& control_;
  const std::uint64_t max_message_;
  const bool allow_pickle_;
  std::uint64_t received_ = 0;
  std::uint64_t connection_bytes_ = 0;
  std::uint64_t dropped_by_peer_ = 0;
  std::uint64_t refused_ = 0;

  std::vector<std::unique_ptr<InTopic>> topics_;         // by id - 1
  std::vector<std::unique_ptr<InTopic>> inline_topics_;  // of the events in events_
  Received events_;

  // A message that arrives in chunks.
  FrameHeader message_header_;
  Buffer message_;
  std::uint64_t filled_ = 0;
};

}  // namespace divisi::mesh
