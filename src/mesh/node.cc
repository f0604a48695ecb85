#include "mesh/node.h"

#include "base/deadline.h"
#include "base/glob.h"
#include "base/log.h"
#include "io/crypto.h"
#include "mesh/connection.h"
#include "mesh/dialer.h"
#include "mesh/node_labels.h"

#include <algorithm>
#include <utility>

namespace divisi::mesh {

namespace {

// An emitter that finds this much waiting writes it itself: it is a full batch, and waking the
// loop for it would only move the work.
constexpr std::size_t kWriteYourself = 64 * 1024;

// An event that follows another after a pause of this length is written at once by its emitter;
// closer together they are left to the loop, which takes all that came meanwhile in one system
// call. The pause is counted from the end of the send before, so that an emitter that is busy
// writing to many peers does not take itself for idle.
constexpr auto kIdle = std::chrono::microseconds(10);

// More sends than this since the last flush are a stream, see flush_links().
constexpr std::uint64_t kBusySends = 16;
constexpr auto kFlushEvery = std::chrono::microseconds(100);

// An emitter that is this far ahead of the socket waits for it: what is written while it is still
// in the cache costs half. Only what a peer cannot take at all fills the queue to its bound.
constexpr std::size_t kAhead = 4 << 20;
constexpr auto kAheadWait = std::chrono::milliseconds(50);

constexpr auto kAwayAtEnd = std::chrono::seconds(1);

// How often a node that waits for its peers says for whom.
constexpr auto kWaitLine = std::chrono::seconds(10);

void log_emit(const OutEvent& event, int peer, std::chrono::nanoseconds waited) {
  log::info("trace emit event={} id={:016x} peer={} bytes={} waited_us={}", event.topic_name,
            event.trace, peer, OutLog::message_bytes(event),
            std::chrono::duration_cast<std::chrono::microseconds>(waited).count());
}

}  // namespace

const char* to_string(PeerChange change) {
  switch (change) {
    case PeerChange::kJoined: return "peer_joined";
    case PeerChange::kLost: return "peer_lost";
    case PeerChange::kBack: return "peer_back";
    case PeerChange::kLeft: return "peer_left";
  }
  return "peer";
}

bool is_peer_change(std::string_view event) {
  for (const auto change :
       {PeerChange::kJoined, PeerChange::kLost, PeerChange::kBack, PeerChange::kLeft}) {
    if (event == to_string(change)) return true;
  }
  return false;
}

Result<std::unique_ptr<Node>> Node::start(io::Reactor& reactor, NodeOptions options,
                                          OnPeerChange on_change) {
  while (options.self.incarnation == 0) options.self.incarnation = io::random_u64();
  options.self.max_message = options.max_message_bytes;
  std::unique_ptr<Node> node(new Node(reactor, std::move(options), std::move(on_change)));
  Status started;
  reactor.run_on_loop([&] { started = node->start_on_loop(); });
  if (!started.ok()) return failure(started);
  return node;
}

Node::Node(io::Reactor& reactor, NodeOptions options, OnPeerChange on_change)
    : reactor_(reactor),
      options_(std::move(options)),
      on_change_(std::move(on_change)),
      routes_(options_.queue_bytes, options_.trace) {}

Node::~Node() {
  close(std::chrono::milliseconds(0));
}

bool Node::joined() const {
  std::size_t connected = 0;
  for (const auto& [id, link] : links_) connected += link->out.stream != nullptr ? 1 : 0;
  const auto present = [&](int id) { return links_.contains(id) || departed_.contains(id); };
  return unjoined_dialers_ == 0 &&
         connected + departed_.size() >= static_cast<std::size_t>(options_.expected_peers) &&
         std::ranges::all_of(options_.expected_nodes, present);
}

Status Node::join() {
  DIVISI_TRY_STATUS(await_links());
  // The time in which a program makes its listeners begins with its main.
  reactor_.run_on_loop([this] {
    {
      const Lock lock(mutex_);
      if (closing_) return;
    }
    ready_timer_ = reactor_.after(options_.ready_after, [this] { ready(); });
  });
  return {};
}

std::string Node::missing_links() const {
  std::string missing;
  for (const int id : options_.expected_nodes) {
    if (!links_.contains(id) && !departed_.contains(id)) missing += fmt::format(" node {},", id);
  }
  for (const auto& text : dial_errors_) missing += " " + text.second + ",";
  if (missing.empty()) {
    missing = fmt::format(" {} of {} peers are linked,", links_.size(), options_.expected_peers);
  }
  missing.pop_back();
  return missing;
}

Status Node::await_links() {
  using Clock = std::chrono::steady_clock;
  Lock lock(mutex_);
  const auto start = Clock::now();
  join_deadline_ = std::max(join_deadline_, deadline_after(options_.join_timeout, start));
  auto next_line = start + kWaitLine;
  while (!joined()) {
    if (!join_error_.ok()) return join_error_;
    if (join_cancelled_ || closing_) {
      return make_status(Code::kCancelled, "joining the job was cancelled");
    }
    const auto now = Clock::now();
    if (now >= join_deadline_) {
      return make_status(Code::kTimeout, "join timeout: node {} waited {:.1f} s; missing:{}",
                         options_.self.node, std::chrono::duration<double>(now - start).count(),
                         missing_links());
    }
    if (now >= next_line) {
      next_line = now + kWaitLine;
      log::info("node {} waits for its peers; missing:{}", options_.self.node, missing_links());
    }
    ++waiting_;
    changed_.wait_until(lock, std::min(join_deadline_, next_line));
    --waiting_;
  }
  return {};
}

void Node::cancel_join() {
  const Lock lock(mutex_);
  join_cancelled_ = true;
  changed_.notify_all();
}

Node::OutTopic& Node::out_topic(std::string_view name) {
  if (auto* const cached = last_topic_; cached != nullptr && cached->name == name) return *cached;
  auto found = topics_.find(name);
  if (found == topics_.end()) {
    auto topic = std::make_unique<OutTopic>();
    topic->name = name;
    if (next_topic_ <= kMaxTopics) topic->id = next_topic_++;
    // Names made up as one goes must not fill the memory: beyond the interned ones, forget some.
    if (topic->id == 0 && topics_.size() > 2 * kMaxTopics) {
      std::erase_if(topics_, [](const auto& item) {
        return item.second->id == 0 && item.second->users == 0;
      });
      last_topic_ = nullptr;
    }
    found = topics_.emplace(topic->name, std::move(topic)).first;
  }
  last_topic_ = found->second.get();
  return *last_topic_;
}

bool Node::wants(const Outbound& out, std::string_view topic) const {
  return !out.ready || out.subscriptions.contains(topic);
}

// The links that get an event, in the order of their node ids.
void Node::choose(OutTopic& topic, const Target& to, std::vector<LinkPtr>& targets) {
  if (topic.wanted_version != links_version_) {
    topic.wanted.assign(link_list_.size(), false);
    for (std::size_t i = 0; i < link_list_.size(); ++i) {
      topic.wanted[i] = wants(link_list_[i]->out, topic.name);
    }
    topic.wanted_version = links_version_;
  }
  const auto matches = [&](const Link& link) {
    switch (to.kind) {
      case Target::Kind::kAll: return true;
      case Target::Kind::kNode: return link.peer.node == to.node;
      case Target::Kind::kLabel:
        return label_names_node(to.pattern, link.peer.labels, link.peer.node) ||
               any_label_matches(to.pattern, link.out.task_labels);
      case Target::Kind::kRole: return link.out.roles.contains(to.pattern);
    }
    return false;
  };
  for (std::size_t i = 0; i < link_list_.size(); ++i) {
    if (topic.wanted[i] && matches(*link_list_[i])) targets.push_back(link_list_[i]);
  }
  if (!to.one_of || targets.size() < 2) return;
  // In turn, but not to one that is away while another is there.
  LinkPtr chosen;
  for (std::size_t i = 0; i < targets.size() && !chosen; ++i) {
    const LinkPtr& candidate = targets[(topic.turn + i) % targets.size()];
    if (candidate->out.stream != nullptr && !is_full(*candidate, 0)) {
      chosen = candidate;
      topic.turn = (topic.turn + i + 1) % targets.size();
    }
  }
  if (!chosen) chosen = targets[topic.turn++ % targets.size()];
  targets.assign(1, chosen);
}

Status Node::send(std::string_view topic, const PayloadView& payload, const SendOptions& options) {
  OutEvent event;
  event.topic_name = topic;
  event.codec = static_cast<std::uint8_t>(payload.codec);
  event.has_kwargs = payload.has_kwargs;
  event.relayed = options.to.kind != Target::Kind::kAll;  // for those it names, not for all leaves
  event.body = payload.body;
  event.buffers = payload.buffers;
  if (topic.empty() || topic.size() > kMaxTopicName) {
    return make_status(Code::kInvalid, "event name of {} bytes: 1 to {} are allowed", topic.size(),
                       kMaxTopicName);
  }
  if (payload.codec == Codec::kPickle && !options_.takes_pickle()) {
    return make_status(
        Code::kInvalid,
        "event '{}' is a Python pickle, which peers take only in a job with a secret "
        "(--secret-file, or the runner's secret) or with --allow-pickle "
        "(allow_pickle)",
        topic);
  }
  std::chrono::steady_clock::time_point started;
  if (options_.trace) [[unlikely]] {
    started = std::chrono::steady_clock::now();
    event.trace = options_.self.incarnation + traced_.fetch_add(1) + 1;
  }
  const std::size_t bytes = OutLog::message_bytes(event);
  if (bytes > options_.max_message_bytes || payload.body.size() > 0xffffffffu) {
    return make_status(Code::kInvalid, "event '{}' is {} bytes, a message has at most {}", topic,
                       bytes, options_.max_message_bytes);
  }

  static thread_local std::vector<LinkPtr> targets;  // no allocation when warm
  targets.clear();
  Lock lock(mutex_);
  if (closing_) return make_status(Code::kClosed, "the node is closing");
  OutTopic& out = out_topic(topic);
  choose(out, options.to, targets);
  if (targets.empty()) {
    if (options.to.kind == Target::Kind::kNode && !links_.contains(options.to.node)) {
      return make_status(Code::kNotFound, "event '{}' for node {}: no such peer is linked", topic,
                         options.to.node);
    }
    if (options.to.one_of) {
      return make_status(Code::kUnavailable, "event '{}': no peer with {} '{}' listens", topic,
                         options.to.kind == Target::Kind::kRole ? "role" : "label",
                         options.to.pattern);
    }
    return {};
  }
  // What is referenced instead of copied needs an owner; make one copy for all peers.
  if (payload.body.size() >= OutLog::kExternal) {
    if (payload.owner.empty()) {
      event.body_owner = Buffer::copy_of(payload.body);
    } else {
      const auto at = static_cast<std::size_t>(payload.body.data() - payload.owner.data());
      event.body_owner = payload.owner.slice(at, payload.body.size());
    }
    event.body = event.body_owner.bytes();
  }
  const Policy policy = options.policy.value_or(Policy::kBlock);
  Status first_failure;
  ++out.users;
  for (const LinkPtr& link : targets) {
    Status status = queue(lock, link, out, event, bytes, policy);
    if (!status.ok() && first_failure.ok()) first_failure = std::move(status);
  }
  --out.users;
  ++sends_;
  const bool at_once = !flush_requested_ && was_idle();
  for (const LinkPtr& link : targets) written_or_flush_later(lock, link, at_once);
  if (at_once) last_send_ = reactor_.now();
  if (options_.trace) [[unlikely]] {
    lock.unlock();
    const auto waited = std::chrono::steady_clock::now() - started;
    for (const LinkPtr& link : targets) log_emit(event, link->peer.node, waited);
  }
  targets.clear();
  return first_failure;
}

Status Node::queue(Lock& lock, const LinkPtr& link, OutTopic& topic, OutEvent& event,
                   std::size_t bytes, Policy policy) {
  if (!takes(*link, bytes)) {
    return make_status(Code::kInvalid, "event '{}' is {} bytes, node {} takes at most {}",
                       topic.name, bytes, link->peer.node, link->peer.max_message);
  }
  if (policy != Policy::kBlock || is_full(*link, bytes)) {
    const Result<bool> space = make_space(lock, link, topic, bytes, policy);
    if (!space) return space.error();
    if (!*space) return {};
  }
  if (link->out.left) {  // while we waited, for it or for another one
    ++link->out.undelivered;
    ++undelivered_;
    ++topic.dropped;
    return {};
  }
  append(*link, topic, event, policy == Policy::kDropOldest || policy == Policy::kLatestOnly);
  if (policy == Policy::kBlock && link->out.log.unsent_bytes() > kAhead) stay_close(lock, link);
  return {};
}

void Node::append(Link& link, OutTopic& topic, OutEvent& event, bool droppable) {
  Outbound& out = link.out;
  const std::size_t before = out.log.bytes();
  if (before == 0) out.oldest_since = reactor_.now();
  if (out.gap > 0) out.log.append_gap(std::exchange(out.gap, 0));
  event.topic_id = topic.id;
  if (topic.id != 0) {
    if (out.topics_named.size() < topic.id) out.topics_named.resize(topic.id);
    if (!out.topics_named[topic.id - 1]) {
      out.topics_named[topic.id - 1] = true;
      out.log.append_topic(topic.id, topic.name);
    }
  }
  out.log.append_event(event, droppable);
  queued_bytes_ += out.log.bytes() - before;
  ++out.events_sent;
  ++topic.sent;
}

void Node::stay_close(Lock& lock, const LinkPtr& link) {
  const Outbound& out = link->out;
  if (out.stream == nullptr || event::LoopCore::on_loop_thread()) return;
  write_some(lock, link);
  ++waiting_;
  changed_.wait_for(lock, kAheadWait, [&] {
    return out.log.unsent_bytes() <= kAhead / 2 || out.stream == nullptr || closing_;
  });
  --waiting_;
}

bool Node::takes(const Link& link, std::size_t bytes) {
  return link.peer.max_message == 0 || bytes <= link.peer.max_message;
}

bool Node::is_full(const Link& link, std::size_t bytes) const {
  const std::size_t mine = link.out.log.bytes();
  if (mine == 0) return false;  // one message always fits
  // A callback may go beyond its peer's queue, up to the memory of the process: were it to wait
  // while the peer's callback waits for us, neither would ever read again.
  const std::size_t limit =
      event::LoopCore::on_loop_thread() ? options_.memory_bytes : options_.queue_bytes;
  return mine + bytes > limit || queued_bytes_ + bytes > options_.memory_bytes;
}

// Ok(true): there is room. Ok(false): this event is dropped (and counted). Waits under kBlock.
Result<bool> Node::make_space(Lock& lock, const LinkPtr& link, OutTopic& topic, std::size_t bytes,
                              Policy policy) {
  Outbound& out = link->out;
  const auto count_dropped = [&](std::size_t events) {
    out.dropped += events;
    topic.dropped += events;
  };
  const auto drop_queued = [&](bool only_oldest) {
    const std::size_t before = out.log.bytes();
    const std::size_t events = out.log.drop_unsent(topic.name, only_oldest);
    queued_bytes_ -= before - out.log.bytes();
    count_dropped(events);
    return events;
  };
  if (policy == Policy::kLatestOnly) {
    drop_queued(false);
    return true;  // one of each name may go beyond the bound
  }
  if (policy == Policy::kDropOldest) {
    // What was sent already cannot be replaced: then one of each name goes beyond the bound.
    while (is_full(*link, bytes) && drop_queued(true) > 0) {
    }
    return true;
  }
  if (!is_full(*link, bytes)) return true;
  if (out.lost) {
    count_dropped(1);
    ++out.gap;
    return false;
  }
  if (policy == Policy::kError) {
    return failure(Code::kWouldBlock, "event '{}': the queue to node {} is full ({} bytes)",
                   topic.name, link->peer.node, out.log.bytes());
  }
  const auto deadline = deadline_after(options_.send_timeout);
  while (is_full(*link, bytes) && !out.lost && !out.left && !closing_) {
    request_flush();
    ++waiting_;
    const auto woken = changed_.wait_until(lock, deadline);
    --waiting_;
    if (woken == std::cv_status::timeout && is_full(*link, bytes) && !out.lost && !out.left) {
      return failure(Code::kTimeout,
                     "event '{}': node {} took nothing for {:.1f} s, {} bytes wait for it; is its "
                     "callback blocked? (send_timeout)",
                     topic.name, link->peer.node,
                     std::chrono::duration<double>(options_.send_timeout).count(), out.log.bytes());
    }
  }
  if (out.lost && is_full(*link, bytes)) {
    count_dropped(1);
    ++out.gap;
    return false;
  }
  return true;
}

// Whether nobody has sent for a while. Looked at by every send that finds no flush under way.
bool Node::was_idle() {
  const auto now = reactor_.now();
  return now - std::exchange(last_send_, now) >= kIdle;
}

void Node::written_or_flush_later(Lock& lock, const LinkPtr& link, bool at_once) {
  Outbound& out = link->out;
  if (out.stream == nullptr || out.writing || out.waiting_writable) return;
  if (out.log.unsent_bytes() == 0) return;
  if (at_once || out.log.unsent_bytes() >= kWriteYourself) return write_some(lock, link);
  request_flush();
}

void Node::request_flush() {
  if (std::exchange(flush_requested_, true)) return;
  reactor_.post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) flush_links();
  });
}

// Writes what has collected. While emitters go on it comes back by itself every kFlushEvery, so
// that a stream of events wakes the loop neither for each of them nor for each batch.
void Node::flush_links() {
  Lock lock(mutex_);
  const bool busy = sends_ - sends_flushed_ > kBusySends;
  sends_flushed_ = sends_;
  if (!busy) flush_requested_ = false;
  const std::vector<LinkPtr> links = link_list_;
  for (const LinkPtr& link : links) write_some(lock, link);
  if (busy) flush_timer_ = reactor_.after(kFlushEvery, [this] { flush_links(); });
}

void Node::subscribe(std::string_view topic, std::string_view event, const LoopPtr& loop) {
  const std::lock_guard changing(subscribe_mutex_);
  if (routes_.subscribe(topic, event, loop))
    broadcast_names(Kind::kSubscribe, {std::string(topic)});
}

void Node::unsubscribe(std::string_view topic, const event::LoopCore* loop) {
  const std::lock_guard changing(subscribe_mutex_);
  if (routes_.unsubscribe(topic, loop)) broadcast_names(Kind::kUnsubscribe, {std::string(topic)});
}

void Node::unsubscribe_all(const event::LoopCore* loop) {
  const std::lock_guard changing(subscribe_mutex_);
  const auto gone = routes_.unsubscribe_all(loop);
  if (!gone.empty()) broadcast_names(Kind::kUnsubscribe, gone);
}

void Node::broadcast_names(Kind kind, const std::vector<std::string>& names) {
  Lock lock(mutex_);
  for (const LinkPtr& link : std::vector<LinkPtr>(link_list_)) {
    if (link->out.stream == nullptr) continue;  // the next connection begins with the whole list
    add_names(link->out, kind, 0, names);
    write_some(lock, link);
  }
}

bool Node::listens(int node, std::string_view topic) const {
  const Lock lock(mutex_);
  const auto found = links_.find(node);
  return found != links_.end() && wants(found->second->out, topic);
}

void Node::ready() {
  {
    Lock lock(mutex_);
    if (std::exchange(is_ready_, true)) return;
    for (const LinkPtr& link : std::vector<LinkPtr>(link_list_)) {
      // The leaves of a relaying hub must send everything: what one of them listens to may be
      // known to the hub later than to the program.
      if (link->out.stream == nullptr || options_.relay) continue;
      add_control(link->out, Kind::kReady, 0, 0, {});
      write_some(lock, link);
    }
  }
  routes_.stop_holding();
}

void Node::announce_role(std::string role) {
  std::vector<std::string> roles;
  {
    const Lock lock(mutex_);
    if (!own_roles_.insert(std::move(role)).second) return;
    roles.assign(own_roles_.begin(), own_roles_.end());
  }
  broadcast_names(Kind::kRoles, roles);
}

void Node::announce_labels(std::set<std::string> labels) {
  Lock lock(mutex_);
  if (task_labels_ == labels) return;
  task_labels_ = std::move(labels);
  labels_announced_ = true;
  for (const LinkPtr& link : std::vector<LinkPtr>(link_list_)) {
    if (link->out.stream == nullptr) continue;
    // The newest: writing lets go of the lock, and another task may have begun.
    add_names(link->out, Kind::kLabels, 0, own_labels());
    write_some(lock, link);
  }
}

bool Node::flushed() const {
  const auto now = reactor_.now();
  return std::ranges::all_of(link_list_, [&](const LinkPtr& link) {
    const Outbound& out = link->out;
    // A node that ends does not wait for a peer that has been away this long, dead most likely.
    const bool away = closing_ && out.stream == nullptr && now - out.disconnected_at > kAwayAtEnd;
    return out.lost || away || out.log.all_acknowledged();
  });
}

void Node::wake_waiters() const {
  {
    const Lock lock(mutex_);
  }  // nobody is between asking and waiting
  changed_.notify_all();
}

bool Node::flush(std::chrono::milliseconds deadline, const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] { wake_waiters(); });
  Lock lock(mutex_);
  request_flush();
  const auto over = [&] { return closed_ || flushed() || stop.stop_requested(); };
  ++waiting_;
  changed_.wait_until(lock, deadline_after(deadline), over);
  --waiting_;
  return flushed();
}

std::vector<PeerInfo> Node::peers() const {
  const Lock lock(mutex_);
  std::vector<PeerInfo> all;
  for (const auto& [id, link] : links_) all.push_back(info(*link));
  return all;
}

bool Node::wait_for_peers(std::size_t count, std::chrono::milliseconds timeout,
                          const std::stop_token& stop) const {
  const std::stop_callback wake(stop, [this] { wake_waiters(); });
  Lock lock(mutex_);
  const auto enough = [&] {
    std::size_t connected = 0;
    for (const auto& [id, link] : links_) connected += link->out.stream != nullptr ? 1 : 0;
    return connected >= count;
  };
  const auto over = [&] { return closed_ || stop.stop_requested() || enough(); };
  ++waiting_;
  changed_.wait_until(lock, deadline_after(timeout), over);
  --waiting_;
  return !closed_ && enough();
}

PeerInfo Node::info(const Link& link) const {
  std::set<std::string> labels = link.peer.labels;
  labels.insert(link.out.task_labels.begin(), link.out.task_labels.end());
  return {link.peer.node,   link.peer.incarnation,      std::move(labels), link.out.roles,
          link.peer.listen, link.out.stream != nullptr, link.out.lost,     link.out.ready};
}

NodeStats Node::stats() const {
  NodeStats all;
  all.unlistened = routes_.unlistened();
  all.held = routes_.held();
  const Lock lock(mutex_);
  all.undelivered = undelivered_;
  const auto now = reactor_.now();
  std::map<std::string, TopicStats> topics;
  for (const auto& [name, topic] : topics_) {
    TopicStats& row = topics[topic->name];
    row.sent += topic->sent;
    row.dropped += topic->dropped;
  }
  for (const auto& [name, count] : topics_received_) topics[name].received += count;
  for (auto& [name, row] : topics) {
    row.topic = name;
    all.topics.push_back(std::move(row));
  }
  for (const auto& [id, link] : links_) {
    const Outbound& out = link->out;
    PeerStats row;
    row.node = id;
    row.sent = out.events_sent;
    row.received = out.events_received;
    row.resent = out.resent;
    row.dropped = out.dropped;
    row.lost = out.undelivered;
    row.gaps = out.gaps_told;
    row.refused = out.refused;
    row.reconnects = out.reconnects;
    row.queued_bytes = out.log.bytes();
    row.unacknowledged = out.log.unacknowledged();
    if (out.log.bytes() > 0) {
      row.oldest = std::chrono::duration_cast<std::chrono::milliseconds>(now - out.oldest_since);
    }
    all.peers.push_back(row);
  }
  return all;
}

void Node::close(std::chrono::milliseconds deadline) {
  {
    const Lock lock(mutex_);
    if (std::exchange(closing_, true)) return;
    changed_.notify_all();
  }
  if (deadline.count() > 0 && !flush(deadline)) {
    log::warning("closing with unacknowledged events after {} ms", deadline.count());
  }
  reactor_.run_on_loop([this, deadline] { say_goodbye(deadline.count() > 0); });
  if (deadline.count() > 0) {  // let the peers close first, so that nothing on the wire is cut off
    Lock lock(mutex_);
    ++waiting_;
    changed_.wait_for(lock, std::min(deadline, std::chrono::milliseconds(1'000)),
                      [this] { return open_connections_ == 0; });
    --waiting_;
  }
  reactor_.run_on_loop([this] { stop_on_loop(); });
  const Lock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace divisi::mesh
