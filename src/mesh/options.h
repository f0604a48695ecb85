// What a node is told, and what it tells about its peers.
#pragma once

#include "io/address.h"
#include "mesh/handshake.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::mesh {

struct NodeOptions {
  Identity self;                  // incarnation 0: chosen at random
  std::string secret;             // empty: every peer of the job is believed
  std::string listen;             // empty: dials only
  std::vector<std::string> dial;  // peers that must be linked before join() returns
  std::set<std::string> lasting;  // those of `dial` that are dialled again after their goodbye

  // With a tcp address, also on 127.0.0.1 at the same port, where that is free.
  bool listen_on_loopback = false;

  int expected_peers = 0;           // join() waits for at least this many linked peers
  std::vector<int> expected_nodes;  // and for these ids

  std::chrono::milliseconds join_timeout{60'000};
  std::chrono::milliseconds send_timeout{30'000};
  std::chrono::milliseconds heartbeat{1'000};
  std::chrono::milliseconds lost_after{5'000};
  std::chrono::milliseconds ready_after{10'000};  // READY at the latest (decision N1)
  std::chrono::milliseconds handshake_timeout{5'000};

  std::size_t queue_bytes = std::size_t{64} << 20;    // for each link and direction
  std::size_t memory_bytes = std::size_t{256} << 20;  // for all queues together
  std::uint64_t max_message_bytes = std::uint64_t{1} << 30;

  bool relay = false;         // hand events of one peer on to the others (star hub)
  bool allow_pickle = false;  // also without a secret
  bool trace = false;         // events carry a trace id; emits and deliveries are logged

  // Whoever unpickles runs what the sender wrote: only from peers that hold the job's secret, or
  // because the user said so (decision N5).
  bool takes_pickle() const { return allow_pickle || !secret.empty(); }
};

enum class PeerChange {
  kJoined,  // a first link to this incarnation
  kLost,    // no sign of life for lost_after, or seen to die
  kBack,    // the same incarnation again after kLost, or its successor
  kLeft,    // it said goodbye
};
const char* to_string(PeerChange change);
// Whether `event` is one of those names.
bool is_peer_change(std::string_view event);

struct PeerInfo {
  int node = 0;
  std::uint64_t incarnation = 0;
  std::set<std::string> labels;
  std::set<std::string> roles;
  std::string listen;
  bool connected = false;
  bool lost = false;
  bool ready = false;
};

// Where a node of a job is, for one that may have to dial it.
struct PeerPlace {
  int node = 0;
  io::Address address{};            // by its name, which is looked up at every attempt
  std::optional<io::Address> at{};  // where it is at present, if known: names lag behind
  bool dial = false;                // from here, not from there
};

// How long a node that ends waits for its peers.
struct EndLimits {
  std::chrono::milliseconds silence{30'000};  // that one acknowledges nothing
  std::chrono::milliseconds total = std::chrono::milliseconds::max();  // 0: no goodbye either
  std::stop_token hurry{};                                             // from then on
  std::chrono::milliseconds hurried{5'000};                            // no longer than this
};

// What a node that ended had for a peer, unacknowledged.
struct GivenUp {
  int node = 0;
  std::uint64_t events = 0;
  bool lost = false;
  bool dead = false;  // its process was seen to end
};

struct PeerStats {
  int node = 0;
  std::uint64_t sent = 0;      // events queued for the peer
  std::uint64_t received = 0;  // events
  std::uint64_t resent = 0;    // frames sent again after a reconnect
  std::uint64_t dropped = 0;   // by policy, or beyond the bound while lost
  std::uint64_t lost = 0;      // unacknowledged when an incarnation died
  std::uint64_t gaps = 0;      // events the peer told us it dropped
  std::uint64_t refused = 0;   // pickled events of the peer, see NodeOptions::takes_pickle
  std::uint64_t reconnects = 0;
  std::uint64_t queued_bytes = 0;
  std::uint64_t unacknowledged = 0;
  std::chrono::milliseconds oldest{0};  // age of the oldest unacknowledged event, about
};

struct TopicStats {
  std::string topic;
  std::uint64_t sent = 0;  // once for each peer it was queued for
  std::uint64_t received = 0;
  std::uint64_t dropped = 0;
};

struct NodeStats {
  std::vector<PeerStats> peers;
  std::vector<TopicStats> topics;
  std::uint64_t undelivered = 0;  // events for processes that ended, also those of `peers`
  std::uint64_t gaps = 0;         // events that peers dropped for us, also those of `peers`
  std::uint64_t unlistened = 0;   // events that arrived without a listener and were dropped
  std::uint64_t held = 0;         // events that wait for their first listener
};

using OnPeerChange = std::function<void(PeerChange, const PeerInfo&)>;

}  // namespace divisi::mesh
