// Links come and go: dialling, admitting, attaching, heartbeats, loss. Everything here runs on the
// loop; what emitters share is touched under mutex_.
#include "base/log.h"
#include "mesh/connection.h"
#include "mesh/dialer.h"
#include "mesh/node.h"

#include <algorithm>
#include <utility>

namespace divisi::mesh {

namespace {

// Strangers that have not finished their greeting: more than a job has workers, too few to hurt.
constexpr std::size_t kMaxGreeting = 1024;

// An ACK goes out with the next event, at the latest after this time or this many bytes.
constexpr auto kAckDelay = std::chrono::milliseconds(5);
// (or a quarter of the window): each wakes the sender, and it costs him nothing to keep events.
constexpr std::uint64_t kAckBytes = 512 * 1024;

constexpr auto kFirstPause = std::chrono::milliseconds(2);
constexpr auto kLongestPause = std::chrono::milliseconds(1'000);

// No link is given less than this, however many there are.
constexpr std::uint64_t kLeastWindow = 1 << 20;

// A callback that takes longer than this goes on, but the loop's own thread takes the rest.
constexpr auto kDrainBudget = std::chrono::milliseconds(1);

// A batch that is worth another thread for reading on meanwhile. Many tiny events are not: their
// bytes are in this core's cache, and little is left to read.
constexpr std::uint64_t kHeavyBytes = 64 * 1024;
constexpr std::uint64_t kHeavyEvent = 512;

constexpr std::string_view kProcessEnded = "its process ended";

}  // namespace

// What a link hears besides events.
class Node::LinkControl final : public Inbound::Control {
 public:
  explicit LinkControl(Node& node) : node_(node) {}
  void set_link(const LinkPtr& link) { link_ = link; }

  Status on_ack(std::uint64_t sequence, std::uint64_t credit) override {
    const auto link = link_.lock();
    Lock lock(node_.mutex_);
    Outbound& out = link->out;
    const std::size_t before = out.log.bytes();
    if (!out.log.acknowledge(sequence)) {
      return make_status(Code::kInvalid, "acknowledged event {} of {}", sequence,
                         out.log.last_sequence());
    }
    out.credit = std::max(out.credit, credit);
    node_.queued_bytes_ -= before - out.log.bytes();
    if (out.log.bytes() > 0 && before != out.log.bytes()) out.oldest_since = node_.reactor_.now();
    if (node_.waiting_ > 0) node_.changed_.notify_all();
    node_.write_some(lock, link);
    if (node_.options_.relay) node_.grant_after_relay(lock, link);
    return {};
  }

  void on_subscribe(std::vector<std::string> topics, bool replace) override {
    change([&](Outbound& out) {
      if (replace) out.subscriptions.clear();
      for (auto& topic : topics) out.subscriptions.insert(std::move(topic));
    });
  }
  void on_unsubscribe(std::vector<std::string> topics) override {
    change([&](Outbound& out) {
      for (const auto& topic : topics) out.subscriptions.erase(topic);
    });
  }
  void on_ready() override {
    change([](Outbound& out) { out.ready = true; });
  }
  void on_roles(std::vector<std::string> roles) override {
    change([&](Outbound& out) {
      for (auto& role : roles) out.roles.insert(std::move(role));
    });
  }
  void on_gap(std::uint64_t events) override {
    const auto link = link_.lock();
    if (events == 0) return;
    missed_ += events;
    // A sender that drops by policy tells of it again and again.
    if (const auto now = node_.reactor_.now(); now - missed_logged_ >= std::chrono::seconds(1)) {
      missed_logged_ = now;
      log::warning("node {} dropped {} events for us", link->peer.node, std::exchange(missed_, 0));
    }
    const Lock lock(node_.mutex_);
    link->out.gaps_told += events;
  }
  void on_bye(bool clean, std::string reason) override {
    const auto link = link_.lock();
    if (clean) {
      said_goodbye = true;
    } else {
      log::warning("node {} closed the link: {}", link->peer.node,
                   log::printable(std::move(reason)));
    }
  }

  bool said_goodbye = false;

 private:
  template <class Change>
  void change(Change apply) {
    const auto link = link_.lock();
    const Lock lock(node_.mutex_);
    apply(link->out);
    ++node_.links_version_;
    node_.changed_.notify_all();
  }

  Node& node_;
  std::weak_ptr<Link> link_;
  std::uint64_t missed_ = 0;  // not yet logged
  io::TimePoint missed_logged_{};
};

Status Node::listen() {
  if (options_.listen.empty()) {
    unjoined_dialers_ = options_.dial.size();
    return {};
  }
  auto address = io::Address::parse(options_.listen);
  if (!address) return std::move(address).error();
  auto listener = reactor_.listen(
      *address, [this, alive = std::weak_ptr(alive_)](std::shared_ptr<io::Stream> stream) {
        if (alive.expired()) return;
        if (greeting_.size() >= kMaxGreeting) {
          log::warning("too many connections that do not greet; closing a new one");
          stream->close();
          return;
        }
        auto connection =
            std::make_shared<Connection>(*this, std::move(stream), nullptr, next_connection_++);
        greeting_.push_back(connection);
        connection->start();
      });
  if (!listener) return std::move(listener).error();
  listener_ = *std::move(listener);
  address_ = listener_->address().to_string();
  options_.self.listen = address_;
  unjoined_dialers_ = options_.dial.size();
  return {};
}

// All of it on the loop: a peer may connect as soon as we listen.
Status Node::start_on_loop() {
  DIVISI_TRY_STATUS(listen());
  for (const auto& text : options_.dial) {
    auto address = io::Address::parse(text);
    if (!address) return std::move(address).error();
    dialers_.push_back(std::make_shared<Dialer>(*address));
  }
  for (const auto& dialer : dialers_) dial(dialer);
  tick();
  return {};
}

void Node::dial(const std::shared_ptr<Dialer>& dialer) {
  const io::Address& to = dialer->by_name ? dialer->address : *dialer->at;
  dialer->pending = reactor_.dial(
      to, options_.handshake_timeout, [this, dialer](Result<std::shared_ptr<io::Stream>> stream) {
        if (!stream) return dial_failed(dialer, stream.error());
        auto connection =
            std::make_shared<Connection>(*this, *std::move(stream), dialer, next_connection_++);
        greeting_.push_back(connection);
        connection->start();
      });
}

void Node::dial_failed(const std::shared_ptr<Dialer>& dialer, const Status& status) {
  {
    const Lock lock(mutex_);
    if (!dialer->joined) dial_errors_[dialer->address.to_string()] = status.message();
  }
  dialer->by_name = !dialer->by_name || !dialer->at;
  redial_later(dialer);
}

void Node::redial_later(const std::shared_ptr<Dialer>& dialer) {
  if (dialer->unneeded) return;
  dialer->pause =
      dialer->pause.count() == 0 ? kFirstPause : std::min(dialer->pause * 2, kLongestPause);
  dialer->pending = reactor_.after(dialer->pause, [this, dialer] { dial(dialer); });
}

void Node::dialer_joined(const std::shared_ptr<Dialer>& dialer) {
  dialer->pause = std::chrono::milliseconds(0);
  dialer->duplicate_since = {};
  if (std::exchange(dialer->joined, true)) return;
  Lock lock(mutex_);
  --unjoined_dialers_;
  dial_errors_.erase(dialer->address.to_string());
  open_relay(lock);
  changed_.notify_all();
}

void Node::forget(const std::shared_ptr<Connection>& connection) {
  std::erase(greeting_, connection);
  if (std::erase(ending_, connection) > 0) {
    const Lock lock(mutex_);
    --open_connections_;
    changed_.notify_all();
  }
}

// Of two connections between the same two nodes the one dialled by the smaller incarnation stays;
// both sides come to the same answer.
bool Node::preferred(const Connection& connection, const Identity& peer) const {
  return connection.dialled() == (options_.self.incarnation < peer.incarnation);
}

Handshake::Verdict Node::admit(const Connection& connection, const Identity& peer) {
  LinkPtr existing;
  std::uint64_t credit = 0;
  {
    const Lock lock(mutex_);
    if (closing_) return {RejectCode::kClosing, "the node is about to end", {}};
    credit = window();
    if (const auto found = links_.find(peer.node); found != links_.end()) existing = found->second;
  }
  if (peer.node == options_.self.node) {
    return {RejectCode::kDuplicate,
            fmt::format("node id {} is taken twice in this job; give each its own --node-ids",
                        peer.node),
            {}};
  }
  // Only one connection at a time may have told the peer where to go on: what another one brings
  // meanwhile would make that untrue.
  for (const auto& other : std::vector(greeting_)) {
    const Handshake& greeting = other->greeting();
    if (other.get() == &connection || !greeting.own_resume()) continue;
    if (greeting.peer().incarnation != peer.incarnation) continue;
    if (other->dialled() != connection.dialled() && preferred(*other, peer)) {
      return {RejectCode::kAlready, "these nodes are greeting each other already", {}};
    }
    other->close();
    std::erase(greeting_, other);
    if (other->dialer() && other->dialer() != connection.dialer()) redial_later(other->dialer());
  }
  if (!existing) return {RejectCode::kProtocol, "", {0, credit}};
  const bool has_connection = existing->connection && existing->connection.get() != &connection;
  if (existing->peer.incarnation != peer.incarnation) {
    const auto silence = reactor_.now() - existing->last_heard;
    if (has_connection && silence < 2 * options_.heartbeat + options_.heartbeat / 2) {
      return {RejectCode::kDuplicate,
              fmt::format("node id {} is taken by another running process ({}); give each its own "
                          "--node-ids",
                          peer.node, existing->peer.listen),
              {}};
    }
    return {RejectCode::kProtocol, "", {0, credit}};
  }
  if (has_connection) {
    // The same side dialled again: it has given the old connection up.
    const bool again = existing->connection->dialled() == connection.dialled();
    if (!again && !preferred(connection, peer)) {
      return {RejectCode::kAlready, "these nodes are linked already", {}};
    }
    detach(existing, "replaced by a new connection");
  }
  const std::uint64_t queued = existing->gauge->queued.load();
  return {RejectCode::kProtocol, "", {existing->in.received(), credit - std::min(credit, queued)}};
}

void Node::greeted(const std::shared_ptr<Connection>& connection) {
  std::erase(greeting_, connection);
  attach(connection);
}

void Node::refused(const std::shared_ptr<Connection>& connection) {
  const Handshake& greeting = connection->greeting();
  const RejectCode code = greeting.reject_code();
  std::erase(greeting_, connection);
  {
    const Lock lock(mutex_);
    ++open_connections_;
  }
  ending_.push_back(connection);
  connection->linger();
  const auto& dialer = connection->dialer();
  const bool harmless =
      code == RejectCode::kAlready || code == RejectCode::kSelf || code == RejectCode::kClosing;
  if (!harmless && !dialer && greeting.peer().incarnation == 0) {
    complain(fmt::format("an incoming connection was refused: {}", greeting.error().message()));
  } else if (!harmless) {
    log::warning("link to {} failed: {}",
                 dialer ? dialer->address.to_string()
                        : fmt::format("node {} (incoming)", greeting.peer().node),
                 greeting.error().message());
  }
  if (!dialer) return;
  if (code == RejectCode::kSelf) {
    dialer->unneeded = true;
    return dialer_joined(dialer);
  }
  if (code == RejectCode::kAlready) {  // the peer dialled us; should that link break, we dial again
    const Lock lock(mutex_);
    if (const auto found = links_.find(greeting.peer().node); found != links_.end()) {
      dialer->link = found->second;
    }
  }
  if (code == RejectCode::kAlready) {
    // That connection may be dead, which we know before the peer does, or never come about.
    const auto other = dialer->link.lock();
    if (!other || !other->connection) return dial_failed(dialer, greeting.error());
    return dialer_joined(dialer);
  }
  const auto now = reactor_.now();
  bool fatal = code != RejectCode::kClosing && !dialer->joined;
  if (code == RejectCode::kDuplicate) {
    // The holder of our id may be a predecessor whose death has not been noticed yet.
    if (dialer->duplicate_since == io::TimePoint()) dialer->duplicate_since = now;
    fatal = fatal && now - dialer->duplicate_since >= options_.lost_after;
  }
  if (fatal) {
    const Lock lock(mutex_);
    join_error_ = make_status(greeting.error().code(), "{}: {}", dialer->address.to_string(),
                              greeting.error().message());
    changed_.notify_all();
    return;
  }
  dial_failed(dialer, greeting.error());
}

void Node::attach(const std::shared_ptr<Connection>& connection) {
  const Handshake& greeting = connection->greeting();
  const Identity& peer = greeting.peer();
  LinkPtr link;
  {
    const Lock lock(mutex_);
    if (const auto found = links_.find(peer.node); found != links_.end()) link = found->second;
  }
  bool successor = false;
  std::uint64_t undelivered = 0;
  if (link && link->peer.incarnation != peer.incarnation) {
    if (!link->out.lost) declare_lost(link, "a new process has taken its place");
    successor = true;
    retire(link, false);
    undelivered = link->out.undelivered;
    link = nullptr;
  }
  if (link && link->connection) {  // another connection was faster since admit()
    if (!preferred(*connection, peer)) {
      connection->close();
      if (connection->dialer()) {
        connection->dialer()->link = link;
        dialer_joined(connection->dialer());
      }
      return;
    }
    detach(link, "replaced by a new connection");
  }
  const bool fresh = link == nullptr;
  if (fresh) {
    auto control = std::make_shared<LinkControl>(*this);
    link = std::shared_ptr<Link>(new Link(peer, *control, options_), [control](Link* gone) mutable {
      delete gone;
      control.reset();  // it refers back to what keeps us
    });
    control->set_link(link);
    link->hears = control.get();
    link->gauge = std::make_shared<FlowGauge>();
    link->gauge->tell_after = std::min<std::uint64_t>(kLeastWindow, options_.queue_bytes) / 4;
    link->gauge->on_drained = [this, alive = std::weak_ptr(alive_), weak = std::weak_ptr(link)] {
      reactor_.post([this, alive, weak] {
        const auto drained = weak.lock();
        if (alive.expired() || !drained || !drained->connection) return;
        Lock lock(mutex_);
        update_grant(*drained);
        if (drained->out.grant - drained->out.grant_told < window() / 4) return;
        add_ack(drained->out);
        write_some(lock, drained);
      });
    };
  }
  link->connection = connection;
  link->last_heard = reactor_.now();
  link->in.restart();
  link->acknowledged_bytes = 0;
  connection->set_link(link);
  const bool was_lost = link->out.lost;
  Status broken;
  {
    Lock lock(mutex_);
    Outbound& out = link->out;
    while (out.writing) {  // an emitter is leaving the old socket's write
      ++waiting_;
      changed_.wait(lock);
      --waiting_;
    }
    link->peer = peer;
    out.undelivered += undelivered;
    const std::size_t before = out.log.bytes();
    const std::uint64_t resent = out.log.sent_after(greeting.peer_resume().received);
    if (!out.log.rewind(greeting.peer_resume().received)) {
      broken = make_status(Code::kInvalid, "it has event {}, we have {} to {}",
                           greeting.peer_resume().received, out.log.acknowledged(),
                           out.log.last_sequence());
    } else {
      if (!fresh) {
        ++out.reconnects;
        out.resent += resent;
      }
      queued_bytes_ -= before - out.log.bytes();
      out.stream = connection->stream();
      out.connection = connection->number();
      out.waiting_writable = false;
      out.credit = greeting.peer_resume().credit;
      out.sent = 0;
      out.ack = link->in.received();
      out.ack_bytes = 0;
      out.grant = out.grant_told = greeting.own_resume().value_or(Resume()).credit;
      out.control.clear();
      out.control_writing = connection->take_unsent();
      out.control_written = 0;
      out.lost = false;
      out.last_written = {};
      // The first frames also bring the stream to where the log stands modulo 64.
      add_names(out, Kind::kSubscribe, 1, routes_.topics());
      if (!own_roles_.empty()) {
        add_names(out, Kind::kRoles, 0, {own_roles_.begin(), own_roles_.end()});
      }
      if (is_ready_ && !options_.relay) add_control(out, Kind::kReady, 0, 0, {});
      // What was consumed since the greeting is told now: perhaps nothing is left to consume.
      update_grant(*link);
      if (out.grant != out.grant_told) add_ack(out);
      if (out.gap > 0) {
        log::warning("{} events for node {} were dropped while it was away", out.gap, peer.node);
        const std::size_t without = out.log.bytes();
        out.log.append_gap(std::exchange(out.gap, 0));
        queued_bytes_ += out.log.bytes() - without;
      }
      links_[peer.node] = link;
      departed_.erase(peer.node);
      link_list_.clear();
      for (const auto& [id, each] : links_) link_list_.push_back(each);
      ++links_version_;
      write_some(lock, link);
      open_relay(lock);
      changed_.notify_all();
    }
  }
  if (!broken.ok()) {
    log::error("cannot resume with node {}: {}", peer.node, broken.message());
    connection->close();
    link->connection = nullptr;
    if (connection->dialer()) redial_later(connection->dialer());
    return;
  }
  if (const auto& dialer = connection->dialer()) {
    dialer->link = link;
    dialer_joined(dialer);
  }
  log::debug("linked with node {}{}", peer.node,
             peer.listen.empty() ? "" : fmt::format(" ({})", peer.listen));
  if (successor || was_lost) {
    tell(PeerChange::kBack, *link);
  } else if (fresh) {
    tell(PeerChange::kJoined, *link);
  }
}

// Takes the connection away from its link; the link stays and may get another one.
void Node::detach(const LinkPtr& link, const std::string& reason) {
  const auto connection = std::exchange(link->connection, nullptr);
  if (!connection) return;
  log::debug("link to node {} interrupted: {}", link->peer.node, reason);
  link->ack_timer.reset();
  {
    const Lock lock(mutex_);
    link->out.stream = nullptr;
    link->out.disconnected_at = reactor_.now();
    link->out.connection = 0;
    link->out.waiting_writable = false;
    changed_.notify_all();
  }
  connection->set_link(nullptr);
  connection->close();
}

void Node::link_broken(const LinkPtr& link, const std::string& reason) {
  const auto last = link->connection;
  detach(link, reason);
  for (const auto& dialer : dialers_) {
    const bool ours = dialer->link.lock() == link || (last && last->dialer() == dialer);
    if (ours) redial_later(dialer);
  }
  if (dismissed_.erase(link->peer.node) > 0) return retire(link, true);
  if (died_unlinked_.erase(link->peer.node) > 0) declare_lost(link, kProcessEnded);
}

void Node::connection_ended(const std::shared_ptr<Connection>& connection, const Status& why) {
  forget(connection);
  const LinkPtr link = connection->link();
  if (link && link->connection == connection) {
    if (static_cast<LinkControl*>(link->hears)->said_goodbye) {
      detach(link, "goodbye");
      return retire(link, true);
    }
    if (why.code() == Code::kInvalid) {
      log::error("link to node {} closed: {}", link->peer.node, why.message());
    }
    return link_broken(link, why.message());
  }
  if (link || connection->greeting().state() == Handshake::State::kFailed) return;
  const auto& dialer = connection->dialer();
  // One that only closes is a port scan, or a node that changed its mind.
  if (why.code() == Code::kTimeout || why.code() == Code::kInvalid) {
    complain(fmt::format(
        "{} was closed during the greeting: {}",
        dialer ? "the connection to " + dialer->address.to_string() : "an incoming connection",
        why.message()));
  }
  if (!dialer) return;
  dial_failed(dialer,
              make_status(why.code(), "{}: {}", dialer->address.to_string(), why.message()));
}

// What strangers do must not fill the log: one line a second.
void Node::complain(const std::string& text) {
  const auto now = reactor_.now();
  if (complained_at_ && now - *complained_at_ < std::chrono::seconds(1)) {
    ++complaints_kept_;
    return;
  }
  complained_at_ = now;
  const std::uint64_t kept = std::exchange(complaints_kept_, 0);
  log::warning("{}{}", text, kept == 0 ? "" : fmt::format(" ({} more before it)", kept));
}

// The last words on a connection whose peer breaks the protocol. They may not arrive.
void Node::say_why(const LinkPtr& link, const std::string& reason) {
  Lock lock(mutex_);
  if (link->out.stream == nullptr) return;
  add_names(link->out, Kind::kBye, 0, {reason.substr(0, kMaxTopicName)});
  write_some(lock, link);
}

void Node::declare_lost(const LinkPtr& link, std::string_view why) {
  {
    const Lock lock(mutex_);
    if (link->out.left || std::exchange(link->out.lost, true)) return;
    changed_.notify_all();
  }
  log::warning("lost node {}: {}", link->peer.node, why);
  tell(PeerChange::kLost, *link);
}

// The end of an incarnation: what it did not acknowledge will never arrive.
void Node::retire(const LinkPtr& link, bool said_goodbye) {
  detach(link, "retired");
  link->gauge->stop_telling();
  std::uint64_t events = 0;
  {
    const Lock lock(mutex_);
    Outbound& out = link->out;
    out.left = true;
    events = out.log.unacknowledged_events();
    out.undelivered += events;
    queued_bytes_ -= out.log.bytes();
    const auto found = links_.find(link->peer.node);
    if (found != links_.end() && found->second == link) links_.erase(found);
    if (said_goodbye) departed_.insert(link->peer.node);
    link_list_.clear();
    for (const auto& [id, each] : links_) link_list_.push_back(each);
    ++links_version_;
    undelivered_ += events;
    changed_.notify_all();
  }
  if (events > 0 && !said_goodbye) {
    log::warning("{} events for the earlier life of node {} were not delivered", events,
                 link->peer.node);
  }
  if (said_goodbye) {
    for (const auto& dialer : dialers_) {
      if (dialer->link.lock() == link) dialer->unneeded = true;
    }
    tell(PeerChange::kLeft, *link);
  }
}

void Node::peer_died(int node) {
  reactor_.post([this, alive = std::weak_ptr(alive_), node] {
    if (alive.expired()) return;
    LinkPtr link;
    {
      const Lock lock(mutex_);
      if (const auto found = links_.find(node); found != links_.end()) link = found->second;
    }
    if (!link) died_unlinked_.insert(node);
    if (!link || link->out.lost) return;
    if (link->connection) link_broken(link, std::string(kProcessEnded));
    declare_lost(link, kProcessEnded);
  });
}

// After every read: hand the events on, owe the peer an acknowledgement.
void Node::received(const LinkPtr& link) {
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
  if (link->in.received() == out.ack) return;
  out.ack = link->in.received();
  const std::uint64_t bytes = link->in.connection_bytes();
  out.ack_bytes += bytes - std::min(bytes, link->acknowledged_bytes);
  link->acknowledged_bytes = bytes;
  update_grant(*link);
  if (out.ack_bytes >= std::min(kAckBytes, window() / 4)) {
    add_ack(out);
    return write_some(lock, link);
  }
  lock.unlock();
  schedule_ack(link);
}

// A hub's part: the events of one leaf for the others. Never waits; the credit of the leaf that
// sends shrinks by what the others have not taken yet (update_grant).
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
      if (link != from && wants(link->out, topic.name)) append(*link, topic, out, false);
    }
  }
  for (const LinkPtr& link : std::vector<LinkPtr>(link_list_)) {
    if (link != from) write_some(lock, link);
  }
}

// A leaf that is early must be heard by those that come later: until all are there, a hub grants no
// credit and so receives no event.
void Node::open_relay(Lock& lock) {
  if (!options_.relay || relay_open_ || !joined()) return;
  relay_open_ = true;
  for (const LinkPtr& link : std::vector<LinkPtr>(link_list_)) {
    if (!link->connection) continue;
    update_grant(*link);
    add_ack(link->out);
    write_some(lock, link);
  }
}

void Node::grant_after_relay(Lock& lock, const LinkPtr& acknowledged_by) {
  for (const LinkPtr& link : std::vector<LinkPtr>(link_list_)) {
    if (link == acknowledged_by || !link->connection) continue;
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

std::uint64_t Node::window() const {
  if (options_.relay && !relay_open_) return 0;
  const std::uint64_t share = options_.memory_bytes / 2 / std::max<std::size_t>(1, links_.size());
  return std::clamp<std::uint64_t>(
      share, std::min<std::uint64_t>(kLeastWindow, options_.queue_bytes), options_.queue_bytes);
}

void Node::update_grant(Link& link) {
  const std::uint64_t room = window();
  std::uint64_t queued = link.gauge->queued.load();
  if (options_.relay) {  // what waits at the hub for the slowest leaf counts as not consumed
    for (const LinkPtr& other : link_list_) {
      if (other.get() != &link) queued = std::max<std::uint64_t>(queued, other->out.log.bytes());
    }
  }
  const std::uint64_t received = link.in.connection_bytes() + link.connection->reader().padding();
  link.out.grant = std::max(link.out.grant, received + room - std::min(room, queued));
}

void Node::tick() {
  tick_timer_ = reactor_.after(options_.heartbeat / 4, [this] { tick(); });
  const auto now = reactor_.now();
  std::vector<LinkPtr> links;
  {
    const Lock lock(mutex_);
    links = link_list_;
    if (closing_) changed_.notify_all();  // flushed() depends on the time
  }
  for (const LinkPtr& link : links) {
    const bool silent = now - link->last_heard > options_.lost_after;
    if (silent) {
      const auto why = fmt::format("no sign of life for {} ms", options_.lost_after.count());
      if (link->connection) link_broken(link, why);
      declare_lost(link, why);
    }
    if (!link->connection) continue;
    Lock lock(mutex_);
    if (now - link->out.last_written >= options_.heartbeat) {
      add_control(link->out, Kind::kPing, 0, 0, {});
      write_some(lock, link);
    }
  }
}

void Node::tell(PeerChange change, const Link& link) {
  PeerInfo peer;
  {
    const Lock lock(mutex_);
    peer = info(link);
  }
  if (on_change_) on_change_(change, peer);
}

// Stops dialling and accepting; with `politely` each peer hears a goodbye first and closes.
void Node::say_goodbye(bool politely) {
  listener_.reset();
  for (const auto& dialer : dialers_) dialer->pending.reset();
  dialers_.clear();
  tick_timer_.reset();
  ready_timer_.reset();
  flush_timer_.reset();
  for (const auto& connection : std::exchange(greeting_, {})) connection->close();
  Lock lock(mutex_);
  const std::vector<LinkPtr> links = link_list_;
  for (const LinkPtr& link : links) {
    if (!politely || link->out.stream == nullptr) continue;
    add_control(link->out, Kind::kBye, 0, 0, {});
    write_some(lock, link);
    ++open_connections_;
    ending_.push_back(link->connection);
    lock.unlock();
    link->connection->linger();
    lock.lock();
  }
}

void Node::stop_on_loop() {
  say_goodbye(false);
  std::vector<LinkPtr> links;
  {
    const Lock lock(mutex_);
    links = link_list_;
  }
  for (const LinkPtr& link : links) {
    detach(link, "the node ends");
    link->gauge->stop_telling();
  }
  for (const auto& connection : std::exchange(ending_, {})) connection->close();
  const Lock lock(mutex_);
  alive_.reset();
  links_.clear();
  link_list_.clear();
  queued_bytes_ = 0;
}

}  // namespace divisi::mesh
