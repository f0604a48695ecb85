// The way in: events to their loops and, at a hub, to the other leaves; what the sender may send.
// Everything here runs on the loop; what emitters share is touched under mutex_.
#include "base/log.h"
#include "mesh/connection.h"
#include "mesh/node.h"

#include <algorithm>
#include <utility>

namespace divisi::mesh {

namespace {

// An ACK goes out with the next event, at the latest after this time or this many bytes (or a
// quarter of the window): each wakes the sender, and it costs him nothing to keep events.
constexpr auto kAckDelay = std::chrono::milliseconds(5);
constexpr std::uint64_t kAckBytes = 512 * 1024;

// No link is given less than this, however many there are. At a hub that relays the bytes of one
// leaf may wait in the logs of all others: there this keeps 64 leaves within the usual memory.
constexpr std::uint64_t kLeastWindow = 1 << 20;
constexpr std::uint64_t kLeastRelayWindow = 64 * 1024;

// What a leaf sent to another is taken off its account in steps of this size.
constexpr std::uint64_t kRelayStep = 8 * 1024;

// What a peer may send beyond its credit: the frame that passes the limit, and the padding before.
constexpr std::uint64_t kOneFrame = kHeaderBytes + 8 + kChunkBytes + kBufferAlignment;

// A callback that takes longer than this goes on, but the loop's own thread takes the rest.
constexpr auto kDrainBudget = std::chrono::milliseconds(1);

// A batch that is worth another thread for reading on meanwhile. Many tiny events are not: their
// bytes are in this core's cache, and little is left to read.
constexpr std::uint64_t kHeavyBytes = 64 * 1024;
constexpr std::uint64_t kHeavyEvent = 512;

}  // namespace

// After every read: hand the events on, owe the peer an acknowledgement. What a peer makes us keep
// is bounded; one that goes beyond has broken the rules.
Status Node::received(const LinkPtr& link) {
  link->last_heard = reactor_.now();
  auto& events = link->in.events();
  const std::size_t count = events.events.size();
  if (count > 0 && options_.relay) relay(link, events);
  if (count > 0) {
    std::vector<LoopPtr> idle;
    const std::uint64_t length = events.events.back().length;
    const bool heavy = length >= kHeavyEvent && length * count >= kHeavyBytes;
    routes_.deliver(events, link->peer.node, link->gauge, idle);
    for (const LoopPtr& loop : idle) {
      reactor_.hand_off([loop] { loop->drain_here(kDrainBudget); }, [loop] { loop->wake(); },
                        heavy);
    }
  }
  Lock lock(mutex_);
  Outbound& out = link->out;
  out.events_received += count;
  out.gaps_told += link->in.take_dropped_by_peer();
  if (const std::uint64_t refused = link->in.take_refused(); refused > 0) [[unlikely]] {
    if (out.refused == 0) {
      log::warning(
          "node {} sends pickled events, which are refused: give all nodes of the job a secret "
          "(--secret-file), or trust every peer (--allow-pickle)",
          link->peer.node);
    }
    out.refused += refused;
  }
  if (count > 0) count_received(events);
  link->in.clear_events();
  if (out.subscriptions.size() > kMaxSubscriptions) {
    out.subscriptions.clear();  // the next connection begins with the whole list
    out.ready = false;
    ++links_version_;
    return make_status(Code::kInvalid, "subscribed to more than {} topics", kMaxSubscriptions);
  }
  if (out.roles.size() > kMaxRoles) {
    out.roles.clear();
    return make_status(Code::kInvalid, "announced more than {} roles", kMaxRoles);
  }
  if (link->in.received() == out.ack) return {};
  out.ack = link->in.received();
  const std::uint64_t bytes = link->in.connection_bytes();
  if (bytes + link->connection->reader().padding() > out.grant_told + kOneFrame) {
    return make_status(Code::kInvalid, "sent beyond its credit of {} bytes", out.grant_told);
  }
  out.ack_bytes += bytes - std::min(bytes, link->acknowledged_bytes);
  link->acknowledged_bytes = bytes;
  update_grant(*link);
  if (out.ack_bytes >= std::min(kAckBytes, window() / 4)) {
    add_ack(out);
    write_some(lock, link);
    return {};
  }
  lock.unlock();
  schedule_ack(link);
  return {};
}

// A hub's part: the events of one leaf for the others. Never waits; the credit of the leaf that
// sends shrinks by what of its own the others have not taken yet (update_grant), so that a slow one
// holds up only those who send to it. What a lost leaf would get
// beyond its bound is dropped, as an emit of our own is: nobody waits for it. So is what a leaf
// does not take at all: its sender is not here to be told.
void Node::relay(const LinkPtr& from, const Received& events) {
  Lock lock(mutex_);
  std::vector<Buffer> buffers;
  for (const InEvent& event : events.events) {
    if ((event.flags & kFlagRelayed) != 0) continue;
    const Buffer& owner = events.owners[event.owner];
    OutEvent out;
    out.topic_name = event.topic->name;
    out.codec = event.codec;
    out.has_kwargs = (event.flags & kFlagKwargs) != 0;
    out.relayed = true;
    out.trace = event.trace();
    out.body = event.body();
    if (out.body.size() >= OutLog::kExternal) {
      const auto at = static_cast<std::size_t>(out.body.data() - owner.data());
      out.body_owner = owner.slice(at, out.body.size());
    }
    read_buffers(event, owner, buffers);
    out.buffers = buffers;
    OutTopic& topic = out_topic(out.topic_name);
    for (const LinkPtr& link : link_list_) {
      if (link == from || !wants(link->out, topic.name)) continue;
      const bool is_refused = !takes(*link, event.length);
      if (is_refused || (link->out.lost && is_full(*link, event.length))) {
        ++link->out.dropped;
        ++link->out.gap;
        ++topic.dropped;
      } else {
        const std::size_t before = link->out.log.bytes();
        append(*link, topic, out, false);
        note_relayed(link->out, from->peer.node, link->out.log.bytes() - before);
      }
    }
  }
  for (const LinkPtr& link : std::vector<LinkPtr>(link_list_)) {
    if (link != from) write_some(lock, link);
  }
}

// A leaf that is early must be heard by those that come later: until all are there, a hub grants no
// credit and so receives no event.
void Node::open_relay(Lock& lock) {
  if (!options_.relay || relay_open_ || !has_joined()) return;
  relay_open_ = true;
  for (const LinkPtr& link : std::vector<LinkPtr>(link_list_)) {
    if (!link->connection) continue;
    update_grant(*link);
    add_ack(link->out);
    write_some(lock, link);
  }
}

void Node::note_relayed(Outbound& out, int source, std::size_t bytes) {
  out.relayed_from[source] += bytes;
  auto& runs = out.relayed;
  if (!runs.empty() && runs.back().source == source && runs.back().bytes < kRelayStep) {
    runs.back().bytes += bytes;
    runs.back().last_sequence = out.log.last_sequence();
  } else {
    runs.push_back({out.log.last_sequence(), source, bytes});
  }
}

// Forgets what the leaf has taken. Returns from whom it was. Numbers can shrink when dropped events
// are left out of the log, but not below what is acknowledged at the end.
std::set<int> Node::take_relayed(Outbound& out) const {
  std::set<int> sources;
  const bool all = out.log.all_acknowledged();
  while (!out.relayed.empty() &&
         (all || out.relayed.front().last_sequence <= out.log.acknowledged())) {
    const auto& run = out.relayed.front();
    const auto found = out.relayed_from.find(run.source);
    found->second -= run.bytes;
    if (found->second == 0) out.relayed_from.erase(found);
    sources.insert(run.source);
    out.relayed.pop_front();
  }
  return sources;
}

// A leaf has taken something, or nobody waits for it any more: those who sent it may send again.
void Node::grant_after_relay(Lock& lock, const LinkPtr& acknowledged_by) {
  if (!options_.relay) return;
  const Outbound& taker = acknowledged_by->out;
  const bool counts = !taker.lost && !taker.left;
  const std::set<int> sources = take_relayed(acknowledged_by->out);
  for (const LinkPtr& link : std::vector<LinkPtr>(link_list_)) {
    if (link == acknowledged_by || !link->connection) continue;
    if (counts && !sources.contains(link->peer.node)) continue;
    update_grant(*link);
    if (link->out.grant - link->out.grant_told < window() / 4) continue;
    add_ack(link->out);
    write_some(lock, link);
  }
}

void Node::count_received(const Received& events) {
  const InTopic* last = nullptr;
  std::uint64_t* counter = nullptr;
  for (const InEvent& event : events.events) {
    if (event.topic != last) {
      if (topics_received_.size() > 2 * kMaxTopics) topics_received_.clear();
      last = event.topic;
      counter = &topics_received_[last->name];
    }
    ++*counter;
  }
}

void Node::schedule_ack(const LinkPtr& link) {
  if (link->ack_timer) return;
  link->ack_timer = reactor_.after(kAckDelay, [this, weak = std::weak_ptr(link)] {
    const auto due = weak.lock();
    if (!due) return;
    due->ack_timer.reset();
    Lock lock(mutex_);
    if (due->out.ack_bytes == 0 || due->out.stream == nullptr) return;
    update_grant(*due);
    add_ack(due->out);
    write_some(lock, due);
  });
}

std::uint64_t Node::least_window() const {
  return std::min<std::uint64_t>(options_.relay ? kLeastRelayWindow : kLeastWindow,
                                 options_.queue_bytes);
}

std::uint64_t Node::window() const {
  if (options_.relay && !relay_open_) return 0;
  const std::uint64_t links = std::max<std::size_t>(1, links_.size());
  const std::uint64_t memory = options_.memory_bytes / 2 / links;
  std::uint64_t share = std::min<std::uint64_t>(memory, options_.queue_bytes);
  if (options_.relay) share /= links;  // all of them may fill the log of each other one
  return std::clamp<std::uint64_t>(share, least_window(), options_.queue_bytes);
}

// The most that another leaf has not yet taken of what this one sent. Without the lost: nobody
// waits for them.
std::uint64_t Node::relay_backlog(int source) const {
  std::uint64_t most = 0;
  if (!options_.relay) return most;
  for (const LinkPtr& link : link_list_) {
    if (link->peer.node == source || link->out.lost) continue;
    const auto found = link->out.relayed_from.find(source);
    if (found != link->out.relayed_from.end()) most = std::max(most, found->second);
  }
  return most;
}

void Node::update_grant(Link& link) {
  const std::uint64_t room = window();
  // What waits at a hub for the slowest other leaf counts as not consumed.
  const std::uint64_t queued = std::max(link.gauge->queued.load(), relay_backlog(link.peer.node));
  const std::uint64_t received = link.in.connection_bytes() + link.connection->reader().padding();
  link.out.grant = std::max(link.out.grant, received + room - std::min(room, queued));
}

}  // namespace divisi::mesh
