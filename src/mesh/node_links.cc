// Links come and go: attaching, heartbeats, loss. Everything here runs on the loop; what emitters
// share is touched under mutex_.
#include "base/log.h"
#include "mesh/connection.h"
#include "mesh/dialer.h"
#include "mesh/node.h"

#include <algorithm>
#include <utility>

namespace divisi::mesh {

namespace {

constexpr std::string_view kProcessEnded = "its process ended";

// A link that has lasted this long is worth being dialled again without a pause.
constexpr auto kLasting = std::chrono::seconds(1);

// A fault comes again with every connection if its cause stays.
constexpr auto kSayAnother = std::chrono::seconds(1);
constexpr auto kSayAgain = std::chrono::seconds(10);

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
    const std::uint64_t acknowledged = out.log.acknowledged();
    if (!out.log.acknowledge(sequence)) {
      return make_status(Code::kInvalid, "acknowledged event {} of {}", sequence,
                         out.log.last_sequence());
    }
    if (out.log.acknowledged() > acknowledged) out.oldest_since = node_.reactor_.now();
    if (out.log.acknowledged() > acknowledged || credit > out.credit) {
      out.progress_at = node_.reactor_.now();
    }
    out.credit = std::max(out.credit, credit);
    node_.count_queued(out, before);
    if (out.gap > 0 && !node_.is_full(*link, 0)) node_.append_gap(out);
    if (node_.waiting_ > 0) node_.changed_.notify_all();
    node_.write_some(lock, link);
    node_.grant_after_relay(lock, link);
    return {};
  }

  void on_subscribe(std::vector<std::string> topics, bool replace) override {
    bool first = false;
    change([&](Outbound& out) {
      if (replace) out.subscriptions.clear();
      for (auto& topic : topics) out.subscriptions.insert(std::move(topic));
      first = !std::exchange(out.heard, true);
    });
    if (!first) return;
    Lock lock(node_.mutex_);
    node_.open_relay(lock);
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
  void on_labels(std::vector<std::string> labels) override {
    change([&](Outbound& out) {
      out.task_labels = {std::make_move_iterator(labels.begin()),
                         std::make_move_iterator(labels.end())};
    });
  }
  void on_gap(std::uint64_t events) override {
    const auto link = link_.lock();
    if (events == 0) return;
    missed_ += events;
    // A sender that drops by policy tells of it again and again.
    if (const auto now = node_.reactor_.now(); now - missed_logged_ >= std::chrono::seconds(1)) {
      missed_logged_ = now;
      log_missed();
    }
    const Lock lock(node_.mutex_);
    link->out.gaps_told += events;
  }
  void on_bye(bool clean, std::string reason) override {
    const auto link = link_.lock();
    if (clean) {
      said_goodbye = true;
      return;
    }
    said_why = true;
    reason = log::printable(std::move(reason));
    if (node_.worth_saying(*link, reason)) {
      log::warning("node {} closed the link: {}", link->peer.node, reason);
    }
  }

  void on_ping(std::uint8_t flags) override {
    if (flags == 0) return;
    const auto link = link_.lock();
    const Lock lock(node_.mutex_);
    link->out.peer_waits = (flags & kFlagWaiting) != 0;
    node_.changed_.notify_all();
  }

  void log_missed() {
    const auto link = link_.lock();
    if (!link || missed_ == 0) return;
    log::warning("node {} dropped {} events for us", link->peer.node, std::exchange(missed_, 0));
  }

  bool said_goodbye = false;
  bool said_why = false;  // of this connection

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

LinkPtr Node::make_link(const Identity& peer) {
  auto control = std::make_shared<LinkControl>(*this);
  LinkPtr link(new Link(peer, *control, options_), [control](Link* gone) mutable {
    delete gone;
    control.reset();  // it refers back to what keeps us
  });
  control->set_link(link);
  link->hears = control.get();
  link->gauge = std::make_shared<FlowGauge>();
  link->gauge->tell_after = least_window() / 4;
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
  return link;
}

// A greeted connection becomes the one of its node's link.
void Node::attach(const std::shared_ptr<Connection>& connection) {
  const Identity& peer = connection->greeting().peer();
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
    died_unlinked_.erase(peer.node);
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
    link = make_link(peer);
    link->out.undelivered = undelivered;
  }
  const bool was_lost = link->out.lost;
  link->connection = connection;
  link->last_heard = reactor_.now();
  link->in.restart();
  link->acknowledged_bytes = 0;
  connection->set_link(link);
  const std::uint64_t acknowledged_before = link->acknowledged_then;
  if (const Status resumed = resume(link, *connection); !resumed.ok()) {
    connection->close();
    link->connection = nullptr;
    if (fresh) {
      log::debug("node {} has a link that is gone here; it will begin anew", peer.node);
    } else {
      if (worth_saying(*link, resumed.message())) {
        log::error("cannot resume with node {}: {}", peer.node, resumed.message());
      }
      // Unless the greeting is older than what the two have said to each other since.
      if (link->attachment <= connection->opened_after()) begin_anew(link);
    }
    if (connection->dialer()) redial_later(connection->dialer());
    return;
  }
  link->attachment = ++last_attachment_;
  link->attached_at = link->last_heard;
  link->received_then = link->in.received();
  static_cast<LinkControl*>(link->hears)->said_why = false;
  if (const auto& dialer = connection->dialer()) {
    dialer->link = link;
    // The last connection brought something through, although no ACK came back on it.
    const bool prospered = !fresh && link->acknowledged_then > acknowledged_before;
    if (prospered && !link->broken_by_fault) dialer->pause = std::chrono::milliseconds(0);
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

// What the peer has not received goes out on the new connection, after what it must know first.
Status Node::resume(const LinkPtr& link, Connection& connection) {
  const Resume& theirs = connection.greeting().peer_resume();
  Lock lock(mutex_);
  Outbound& out = link->out;
  while (out.writing) {  // an emitter is leaving the old socket's write
    ++waiting_;
    changed_.wait(lock);
    --waiting_;
  }
  link->peer = connection.greeting().peer();
  const std::size_t before = out.log.bytes();
  const std::uint64_t resent = out.log.sent_after(theirs.received);
  const bool has_history = link->in.received() > 0 || out.log.acknowledged() > 0;
  if (has_history && theirs.linked == false) {
    return make_status(Code::kInvalid, "it has let go of the link");
  }
  if (!out.log.rewind(theirs.received)) {
    return make_status(Code::kInvalid, "it has event {}, we have {} to {}", theirs.received,
                       out.log.acknowledged(), out.log.last_sequence());
  }
  count_queued(out, before);
  if (std::exchange(out.lost, false)) queued_bytes_ += out.log.bytes();
  out.dead = false;
  out.progress_at = reactor_.now();
  link->acknowledged_then = out.log.acknowledged();
  if (links_.contains(link->peer.node)) {  // not its first connection
    ++out.reconnects;
    out.resent += resent;
  }
  out.stream = connection.stream();
  out.connection = connection.number();
  out.waiting_writable = false;
  out.credit = theirs.credit;
  out.sent = 0;
  out.paced_at = 0;
  out.peer_waits = false;
  out.ack = link->in.received();
  out.ack_bytes = 0;
  out.grant = out.grant_told = connection.greeting().own_resume().value_or(Resume()).credit;
  out.control.clear();
  out.control_writing = connection.take_unsent();
  out.control_written = 0;
  // The list of its topics comes anew, perhaps in several frames: until READY, which is behind it,
  // nothing is pruned.
  out.ready = false;
  out.last_written = {};
  // The first frames also bring the stream to where the log stands modulo 64.
  add_names(out, Kind::kSubscribe, 1, routes_.topics());
  if (!own_roles_.empty()) {
    add_names(out, Kind::kRoles, 0, {own_roles_.begin(), own_roles_.end()});
  }
  if (labels_announced_) add_names(out, Kind::kLabels, 0, own_labels());
  if (is_ready_ && !options_.relay) add_control(out, Kind::kReady, 0, 0, {});
  // What was consumed since the greeting is told now: perhaps nothing is left to consume.
  update_grant(*link);
  if (out.grant != out.grant_told) add_ack(out);
  if (out.callbacks_waiting > 0) add_control(out, Kind::kPing, kFlagWaiting, 0, {});
  if (out.gap > 0) {
    log::warning("{} events for node {} were dropped while it was away", out.gap, link->peer.node);
    append_gap(out);
  }
  links_.emplace(link->peer.node, link);
  departed_.erase(link->peer.node);
  list_links();
  write_some(lock, link);
  open_relay(lock);
  grant_after_relay(lock, link);
  changed_.notify_all();
  return {};
}

void Node::list_links() {
  link_list_.clear();
  for (const auto& [id, each] : links_) link_list_.push_back(each);
  ++links_version_;
}

// The peer lives but can not go on where this link stands, because it has retired its own. A new
// one takes its place, so that the next greeting finds both sides at their beginning.
void Node::begin_anew(const LinkPtr& link) {
  declare_lost(link, "it has let go of the link");
  retire(link, false);
  const LinkPtr next = make_link(link->peer);
  next->last_heard = link->last_heard;
  for (const auto& dialer : dialers_) {
    if (dialer->link.lock() == link) dialer->link = next;
  }
  const Lock lock(mutex_);
  next->out.undelivered = link->out.undelivered;
  next->out.lost = true;
  next->out.disconnected_at = link->out.disconnected_at;
  links_.emplace(next->peer.node, next);
  list_links();
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

// Whether the connection that ends has brought anything forward. If not, its successor may break
// for the same reason, a frame that one side does not take perhaps: no hurry.
bool Node::has_prospered(const Link& link, bool by_fault) {
  if (reactor_.now() - link.attached_at >= kLasting) return true;
  if (by_fault) return false;
  const Lock lock(mutex_);
  const OutLog& log = link.out.log;
  if (log.acknowledged() > link.acknowledged_then) return true;
  return log.all_acknowledged() && link.in.received() > link.received_then;
}

bool Node::worth_saying(Link& link, std::string_view fault) {
  const auto now = reactor_.now();
  const auto silence = link.fault == fault ? kSayAgain : kSayAnother;
  if (!link.fault.empty() && now - link.fault_said < silence) return false;
  link.fault = fault;
  link.fault_said = now;
  return true;
}

void Node::link_broken(const LinkPtr& link, const std::string& reason, bool by_fault) {
  const auto last = link->connection;
  const bool prospered = has_prospered(*link, by_fault);
  link->broken_by_fault = by_fault;
  detach(link, reason);
  for (const auto& dialer : dialers_) {
    const bool ours = dialer->link.lock() == link || (last && last->dialer() == dialer);
    if (!ours) continue;
    if (prospered) dialer->pause = std::chrono::milliseconds(0);
    redial_later(dialer);
  }
  if (dismissed_.erase(link->peer.node) > 0) return retire(link, true);
  if (died_for_good_.contains(link->peer.node)) return link_of_dead_process(link);
  if (died_unlinked_.erase(link->peer.node) > 0) declare_lost(link, kProcessEnded);
}

void Node::connection_ended(const std::shared_ptr<Connection>& connection, const Status& why) {
  forget(connection);
  const LinkPtr link = connection->link();
  if (link && link->connection == connection) {
    const auto& heard = *static_cast<LinkControl*>(link->hears);
    if (heard.said_goodbye) {
      detach(link, "goodbye");
      return retire(link, true);
    }
    const bool broke_rules = why.code() == Code::kInvalid;
    if (broke_rules && worth_saying(*link, why.message())) {
      log::error("link to node {} closed: {}", link->peer.node, why.message());
    }
    return link_broken(link, why.message(), broke_rules || heard.said_why);
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

// What strangers do must not fill the log: one line a second. False: not logged, only counted.
bool Node::complain(const std::string& text) {
  const auto now = reactor_.now();
  if (complained_at_ && now - *complained_at_ < std::chrono::seconds(1)) {
    ++complaints_kept_;
    return false;
  }
  complained_at_ = now;
  const std::uint64_t kept = std::exchange(complaints_kept_, 0);
  log::warning("{}{}", text, kept == 0 ? "" : fmt::format(" ({} more before it)", kept));
  return true;
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
    Lock lock(mutex_);
    if (link->out.left || link->out.lost) return;
    queued_bytes_ -= link->out.log.bytes();
    link->out.lost = true;
    changed_.notify_all();
    grant_after_relay(lock, link);
  }
  log::warning("lost node {}: {}", link->peer.node, why);
  tell(PeerChange::kLost, *link);
}

// The end of an incarnation: what it did not acknowledge will never arrive.
void Node::retire(const LinkPtr& link, bool said_goodbye) {
  detach(link, "retired");
  link->gauge->stop_telling();
  static_cast<LinkControl*>(link->hears)->log_missed();
  std::uint64_t events = 0;
  {
    Lock lock(mutex_);
    Outbound& out = link->out;
    if (!out.lost) queued_bytes_ -= out.log.bytes();
    out.left = true;
    events = out.log.unacknowledged_events();
    out.undelivered += events;
    gaps_of_past_ += out.gaps_told;
    const auto found = links_.find(link->peer.node);
    if (found != links_.end() && found->second == link) links_.erase(found);
    if (said_goodbye) departed_.insert(link->peer.node);
    list_links();
    undelivered_ += events;
    changed_.notify_all();
    grant_after_relay(lock, link);
  }
  if (events > 0 && !said_goodbye) {
    log::warning("{} events for the earlier life of node {} were not delivered", events,
                 link->peer.node);
  }
  if (said_goodbye) {
    for (const auto& dialer : dialers_) {
      if (dialer->link.lock() != link) continue;
      // A successor of the same name in the same place would change nothing in the job's list; and
      // where the user told us to attach, the next run may begin.
      if (dialer->listed || dialer->lasting) {
        redial_later(dialer);
      } else {
        dialer->unneeded = true;
      }
    }
    tell(PeerChange::kLeft, *link);
  }
}

void Node::peer_died(int node, std::optional<io::Address> for_good) {
  reactor_.post([this, alive = std::weak_ptr(alive_), node, for_good = std::move(for_good)] {
    if (alive.expired()) return;
    LinkPtr link;
    {
      const Lock lock(mutex_);
      if (const auto found = links_.find(node); found != links_.end()) link = found->second;
    }
    if (for_good) {
      died_for_good_.insert(node);
      if (!link) return dismiss({node, *for_good, std::nullopt, false});
      return link_of_dead_process(link);
    }
    if (!link) died_unlinked_.insert(node);
    if (!link) return;
    {
      const Lock lock(mutex_);
      link->out.dead = true;
    }
    if (link->connection) link_broken(link, std::string(kProcessEnded));
    declare_lost(link, kProcessEnded);
  });
}

// Nothing is kept for it, and nobody dials it or waits for it.
void Node::link_of_dead_process(const LinkPtr& link) {
  detach(link, std::string(kProcessEnded));
  declare_lost(link, kProcessEnded);
  for (const auto& dialer : dialers_) {
    if (dialer->link.lock() != link) continue;
    dialer->unneeded = true;
    dialer->pending.reset();
    dialer_joined(dialer);
  }
  retire(link, false);
  Lock lock(mutex_);
  departed_.insert(link->peer.node);
  open_relay(lock);
  changed_.notify_all();
}

void Node::tick() {
  tick_timer_ = reactor_.after(options_.heartbeat / 4, [this] { tick(); });
  const auto now = reactor_.now();
  std::vector<LinkPtr> links;
  {
    const Lock lock(mutex_);
    links = link_list_;
    if (waiting_ > 0) changed_.notify_all();  // how long one waits may depend on a peer's silence
  }
  for (const LinkPtr& link : links) {
    const bool silent = now - link->last_heard > options_.lost_after;
    if (silent) {
      const auto why = fmt::format("no sign of life for {} ms", options_.lost_after.count());
      if (link->connection) link_broken(link, why);
      declare_lost(link, why);
    }
    if (!link->connection) continue;
    // The one that was said to have died would be silent by now.
    if (now - link->attached_at > options_.lost_after) died_unlinked_.erase(link->peer.node);
    Lock lock(mutex_);
    if (now - link->out.last_written >= options_.heartbeat) {
      // What a slow listener has taken since: a sender that ends waits for such news.
      update_grant(*link);
      if (link->out.grant != link->out.grant_told) add_ack(link->out);
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
  loopback_listener_.reset();
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
    ++open_connections_;
    ending_.push_back(link->connection);
    part(lock, link);
  }
}

// The goodbye, and before it how much of what was sent will not come.
void Node::part(Lock& lock, const LinkPtr& link) {
  Outbound& out = link->out;
  while (out.writing) {  // an emitter that was inside when the node closed
    ++waiting_;
    changed_.wait(lock);
    --waiting_;
  }
  const std::size_t before = out.log.bytes();
  const OutLog::CutOff cut = out.log.cut_unsent();
  count_queued(out, before);
  out.gap += cut.events + cut.dropped;
  if (out.gap > 0) append_gap(out);
  // It may go beyond the credit, as a frame that passes the limit may.
  out.credit = std::max(out.credit, out.sent + out.log.unsent_bytes());
  out.parting = true;
  write_some(lock, link);
  linger_when_written(lock, link);
}

// Once the log has gone out the goodbye follows, and with it the end of what we write.
void Node::linger_when_written(Lock& lock, const LinkPtr& link) {
  Outbound& out = link->out;
  const auto is_written = [&] {
    return out.log.unsent_bytes() == 0 && out.control.empty() &&
           out.control_written == out.control_writing.size();
  };
  if (!out.parting || !link->connection || out.stream == nullptr) return;
  if (out.log.unsent_bytes() == 0 && !std::exchange(out.said_bye, true)) {
    add_control(out, Kind::kBye, 0, 0, {});
    write_some(lock, link);
  }
  if (!out.said_bye || !is_written()) return;
  out.parting = false;
  const auto connection = link->connection;
  lock.unlock();
  connection->linger();
  lock.lock();
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
