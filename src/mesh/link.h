// Link: everything a node keeps about one peer incarnation. It lives through reconnects.
#pragma once

#include "io/reactor.h"
#include "mesh/inbound.h"
#include "mesh/options.h"
#include "mesh/out_log.h"
#include "mesh/routes.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace divisi::mesh {

class Connection;

// The half that emitters and the loop share; Node::mutex_ protects all of it. The bytes of
// `control_writing` and what the log has gathered are left alone while `writing` is set.
struct Outbound {
  OutLog log;
  std::shared_ptr<io::Stream> stream;  // null while there is no connection
  bool writing = false;                // some thread is inside stream->write
  bool waiting_writable = false;       // the socket is full; the loop will go on
  std::uint64_t connection = 0;        // number of the connection, to recognise a stale one

  std::vector<std::byte> control;          // frames about the connection, before the next event
  std::vector<std::byte> control_writing;  // being written
  std::size_t control_written = 0;

  std::uint64_t credit = 0;     // bytes that may be sent on this connection
  std::uint64_t sent = 0;       // bytes of the log sent on it
  std::uint64_t ack = 0;        // last number received from the peer
  std::uint64_t ack_bytes = 0;  // received since the last ACK we sent
  std::uint64_t grant = 0;      // credit to tell the peer
  std::uint64_t grant_told = 0;

  std::set<std::string, std::less<>> subscriptions;  // of the peer
  std::set<std::string> roles;
  std::set<std::string> task_labels;  // beside those of its launcher, which are in its identity
  bool ready = false;
  bool heard = false;              // its list of topics has come once: it has this link, too
  std::vector<bool> topics_named;  // by topic id

  io::TimePoint disconnected_at{};  // when the last connection ended
  bool lost = false;                // emits no longer wait
  bool dead = false;                // its process was seen to end
  bool left = false;                // said goodbye, or replaced: nothing is queued any more
  std::uint64_t gap = 0;            // events dropped instead of queued, not yet told
  io::TimePoint last_written{};
  io::TimePoint oldest_since{};  // when the log last was empty or got shorter, for queue ages
  io::TimePoint progress_at{};   // and when the peer last acknowledged or granted something
  std::uint64_t paced_at = 0;    // `sent` when an emitter last waited for the socket in vain
  bool parting = false;          // BYE goes out behind the log, and then nothing more
  bool said_bye = false;

  // Callbacks of ours that wait for room, and whether the peer has said that some of its do.
  int callbacks_waiting = 0;
  bool peer_waits = false;

  // At a hub that relays: what the log holds of each other leaf, and in which order.
  struct Relayed {
    std::uint64_t last_sequence;
    int source;
    std::uint64_t bytes;
  };
  std::deque<Relayed> relayed;
  std::map<int, std::uint64_t> relayed_from;  // bytes by node id

  std::uint64_t events_sent = 0;
  std::uint64_t events_received = 0;
  std::uint64_t resent = 0;
  std::uint64_t dropped = 0;
  std::uint64_t undelivered = 0;  // of dead predecessors
  std::uint64_t gaps_told = 0;
  std::uint64_t refused = 0;  // pickled events of the peer
  std::uint64_t reconnects = 0;
};

struct Link {
  Link(Identity who, Inbound::Control& control, const NodeOptions& options)
      : peer(std::move(who)), in(control, options.max_message_bytes, options.takes_pickle()) {}

  // Changed only when a connection is attached, on the loop, under Node::mutex_.
  Identity peer;

  Outbound out;  // Node::mutex_

  // Loop only.
  Inbound in;
  std::shared_ptr<Connection> connection;
  Inbound::Control* hears = nullptr;  // owned together with the link
  std::shared_ptr<FlowGauge> gauge;
  io::TimePoint last_heard{};
  std::uint64_t acknowledged_bytes = 0;  // of in.connection_bytes()
  std::unique_ptr<io::Timer> ack_timer;

  std::uint64_t attachment = 0;  // of the last connection, in the order of all; 0: had none
  // How far both sides were when the connection began, for Node::has_prospered().
  io::TimePoint attached_at{};
  std::uint64_t acknowledged_then = 0;
  std::uint64_t received_then = 0;
  bool broken_by_fault = false;  // the last connection, by one side's
  // The last one of this peer that was logged.
  std::string fault;
  io::TimePoint fault_said{};
};

using LinkPtr = std::shared_ptr<Link>;

}  // namespace divisi::mesh
