// From an address to a link: listening, dialling, who is admitted. Everything here runs on the
// loop; what emitters share is touched under mutex_.
#include "base/log.h"
#include "mesh/connection.h"
#include "mesh/dialer.h"
#include "mesh/node.h"

#include <algorithm>
#include <string>
#include <utility>

namespace divisi::mesh {

namespace {

// What strangers may take. Incoming connections whose greeting is not over:
constexpr std::size_t kMaxGreeting = 512;
// of these, from one source address and without a HELLO so far. Workers send theirs at once, so
// many more of them than this may join from one address at the same time.
constexpr std::size_t kMaxSilentOfSource = 128;
// Refused connections that may still read why.
constexpr std::size_t kMaxLingering = 128;

constexpr auto kFirstPause = std::chrono::milliseconds(2);
constexpr auto kLongestPause = std::chrono::milliseconds(1'000);

}  // namespace

Status Node::listen() {
  if (options_.listen.empty()) {
    unjoined_dialers_ = options_.dial.size();
    return {};
  }
  auto address = io::Address::parse(options_.listen);
  if (!address) return std::move(address).error();
  const auto accept = [this, alive = std::weak_ptr(alive_)](std::shared_ptr<io::Stream> stream) {
    if (alive.expired()) return;
    auto connection =
        std::make_shared<Connection>(*this, std::move(stream), nullptr, next_connection_++);
    make_room_for(*connection);
    greeting_.push_back(connection);
    connection->start();
  };
  auto listener = reactor_.listen(*address, accept);
  if (!listener) return std::move(listener).error();
  listener_ = *std::move(listener);
  address_ = listener_->address().to_string();
  if (options_.listen_on_loopback && address_.starts_with("tcp://") &&
      !address_.starts_with("tcp://127.")) {
    const std::string port = address_.substr(address_.rfind(':'));
    auto loopback = io::Address::parse("tcp://127.0.0.1" + port);
    auto second = loopback ? reactor_.listen(*loopback, accept) : failure(loopback.error());
    if (second) loopback_listener_ = *std::move(second);  // or somebody else has that port there
  }
  options_.self.listen = address_;
  unjoined_dialers_ = options_.dial.size();
  return {};
}

// A newcomer always gets its place: the oldest connection makes room that has proved nothing, or,
// if its source address has too many that have said nothing yet, the oldest of those. A peer needs
// its place for milliseconds, so it is never the oldest.
void Node::make_room_for(const Connection& newcomer) {
  std::shared_ptr<Connection> silent_of_source;
  std::shared_ptr<Connection> unproved;
  std::shared_ptr<Connection> oldest;
  std::size_t incoming = 0;
  std::size_t of_source = 0;
  for (const auto& other : greeting_) {  // in the order of their arrival
    if (other->dialled()) continue;
    ++incoming;
    if (!oldest) oldest = other;
    if (!unproved && !other->greeting().own_resume()) unproved = other;
    if (other->greeting().seen_hello()) continue;
    if (other->source() != newcomer.source()) continue;
    ++of_source;
    if (!silent_of_source) silent_of_source = other;
  }
  std::shared_ptr<Connection> leaver;
  if (of_source >= kMaxSilentOfSource) {
    leaver = silent_of_source;
  } else if (incoming >= kMaxGreeting) {
    leaver = unproved ? unproved : oldest;
  }
  if (!leaver) return;
  complain(fmt::format("too many connections that do not greet{}; closed the oldest",
                       leaver->source().empty() ? "" : " (from " + leaver->source() + ")"));
  leaver->close();
  std::erase(greeting_, leaver);
}

// All of it on the loop: a peer may connect as soon as we listen.
Status Node::start_on_loop() {
  DIVISI_TRY_STATUS(listen());
  for (const auto& text : options_.dial) {
    auto address = io::Address::parse(text);
    if (!address) return std::move(address).error();
    dialers_.push_back(std::make_shared<Dialer>(*address));
    dialers_.back()->lasting = options_.lasting.contains(text);
  }
  for (const auto& dialer : dialers_) dial(dialer);
  tick();
  return {};
}

void Node::dial(const std::shared_ptr<Dialer>& dialer) {
  const std::optional<io::Address>& at = dialer->at;
  const io::Address& to = at && !dialer->by_name ? *at : dialer->address;
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
  dialer->duplicate_since = {};
  dialer->refusal.clear();
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
  std::uint64_t room = 0;
  std::uint64_t backlog = 0;
  {
    const Lock lock(mutex_);
    room = window();
    // A predecessor's, too.
    backlog = relay_backlog(peer.node);
    if (const auto found = links_.find(peer.node); found != links_.end()) existing = found->second;
    const bool is_linked = existing && existing->peer.incarnation == peer.incarnation;
    if ((closing_ || !welcoming_) && !is_linked) {
      return {RejectCode::kClosing, "the node is about to end", {}};
    }
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
  const Resume from_the_beginning{0, room - std::min(room, backlog), false};
  if (!existing) return {RejectCode::kProtocol, "", from_the_beginning};
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
    return {RejectCode::kProtocol, "", from_the_beginning};
  }
  if (has_connection) {
    // The same side dialled again: it has given the old connection up.
    const bool again = existing->connection->dialled() == connection.dialled();
    if (!again && !preferred(connection, peer)) {
      return {RejectCode::kAlready, "these nodes are linked already", {}};
    }
    detach(existing, "replaced by a new connection");
  }
  const std::uint64_t queued = std::max(existing->gauge->queued.load(), backlog);
  return {RejectCode::kProtocol,
          "",
          {existing->in.received(), room - std::min(room, queued), existing->attachment != 0}};
}

void Node::greeted(const std::shared_ptr<Connection>& connection) {
  std::erase(greeting_, connection);
  attach(connection);
}

// Whoever is refused again and again does not make us keep the sockets.
void Node::bound_lingering() {
  const auto is_stranger = [](const std::shared_ptr<Connection>& each) {
    return !each->dialled() && !each->link();
  };
  if (std::ranges::count_if(ending_, is_stranger) <= static_cast<std::ptrdiff_t>(kMaxLingering)) {
    return;
  }
  const auto oldest = *std::ranges::find_if(ending_, is_stranger);
  oldest->close();
  forget(oldest);
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
  if (!dialer) bound_lingering();
  const bool harmless =
      code == RejectCode::kAlready || code == RejectCode::kSelf || code == RejectCode::kClosing;
  if (!harmless && !dialer && greeting.peer().incarnation == 0) {
    complain(fmt::format("an incoming connection was refused: {}", greeting.error().message()));
  } else if (!harmless) {
    const std::string line =
        fmt::format("link to {} failed: {}",
                    dialer ? dialer->address.to_string()
                           : fmt::format("node {} (incoming)", greeting.peer().node),
                    greeting.error().message());
    // Attempts go on, the line is worth reading once.
    const std::string about = fmt::format("{:x} {}", greeting.peer().incarnation, line);
    std::string& said = dialer ? dialer->refusal : incoming_refusal_;
    if (said != about) {
      if (dialer) log::warning("{}", line);
      if (dialer || complain(line)) said = about;
    }
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

}  // namespace divisi::mesh
