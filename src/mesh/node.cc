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
// in the cache costs half. It does not wait for one that takes nothing: that fills the queue to its
// bound.
constexpr std::size_t kAhead = 4 << 20;
constexpr auto kAheadWait = std::chrono::microseconds(500);

// Callbacks of two nodes that wait for each other so long, and nothing moves: none ever will.
constexpr auto kEachOther = std::chrono::seconds(1);
// How often a callback that waits looks whether that is so.
constexpr auto kLook = std::chrono::milliseconds(100);

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
  close({.total = std::chrono::milliseconds(0)});
}

// A dialler has its link half a round trip before the acceptor has. What the acceptor emits in
// between would not reach it, so a link counts from the acceptor's first frame on.
bool Node::has_joined() const {
  std::size_t connected = 0;
  for (const auto& [id, link] : links_) {
    if (!link->out.heard && !link->out.lost) return false;
    connected += link->out.stream != nullptr ? 1 : 0;
  }
  const auto present = [&](int id) { return links_.contains(id) || departed_.contains(id); };
  return unjoined_dialers_ == 0 &&
         connected + departed_.size() >= static_cast<std::size_t>(options_.expected_peers) &&
         std::ranges::all_of(options_.expected_nodes, present);
}

bool Node::joined() const {
  const Lock lock(mutex_);
  return has_joined();
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
  while (!has_joined()) {
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
  if (before == 0) out.oldest_since = out.progress_at = reactor_.now();
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
  count_queued(out, before);
  ++out.events_sent;
  ++topic.sent;
}

void Node::append_gap(Outbound& out) {
  const std::size_t before = out.log.bytes();
  if (before == 0) out.oldest_since = out.progress_at = reactor_.now();
  out.log.append_gap(std::exchange(out.gap, 0));
  count_queued(out, before);
}

void Node::stay_close(Lock& lock, const LinkPtr& link) {
  Outbound& out = link->out;
  if (out.stream == nullptr || event::LoopCore::on_loop_thread()) return;
  write_some(lock, link);
  // Without credit, or if nothing has gone out since somebody waited in vain, the socket is stuck.
  if (out.sent >= out.credit || out.sent == out.paced_at) return;
  const std::uint64_t sent = out.sent;
  ++waiting_;
  changed_.wait_for(lock, kAheadWait, [&] {
    return out.log.unsent_bytes() <= kAhead / 2 || out.stream == nullptr || closing_;
  });
  --waiting_;
  if (out.sent == sent) out.paced_at = sent;
}

bool Node::takes(const Link& link, std::size_t bytes) {
  return link.peer.max_message == 0 || bytes <= link.peer.max_message;
}

bool Node::is_full(const Link& link, std::size_t bytes) const {
  const std::size_t mine = link.out.log.bytes();
  if (mine == 0) return false;  // one message always fits
  // A callback may go beyond its peer's queue, up to the memory of the process: were it to wait
  // while the peer's callback waits for us, neither would ever read again.
  if (link.out.lost) return mine + bytes > options_.queue_bytes;  // nobody waits for it
  const std::size_t limit =
      event::LoopCore::on_loop_thread() ? options_.memory_bytes : options_.queue_bytes;
  return mine + bytes > limit || queued_bytes_ + bytes > options_.memory_bytes;
}

// For the policies that drop: what is older goes first, of the same name or of any.
bool Node::make_space_by_dropping(Link& link, OutTopic& topic, std::size_t bytes, Policy policy) {
  Outbound& out = link.out;
  const std::size_t before = out.log.bytes();
  std::size_t events = 0;
  if (policy == Policy::kLatestOnly) {
    events = out.log.drop_unsent(topic.name, false);
    count_queued(out, before);
  }
  for (std::size_t length = out.log.bytes(); is_full(link, bytes); length = out.log.bytes()) {
    if (out.log.drop_unsent(topic.name, true) == 0) break;
    count_queued(out, length);
    ++events;
  }
  out.dropped += events;
  topic.dropped += events;
  for (std::size_t length = out.log.bytes(); is_full(link, bytes); length = out.log.bytes()) {
    const auto other = out.log.drop_oldest();
    if (!other) {
      // All of it is on its way. The newest is worth more than the bound, by two messages at most.
      return out.log.bytes() <= options_.queue_bytes + bytes &&
             queued_bytes_ <= options_.memory_bytes + bytes;
    }
    count_queued(out, length);
    ++out.dropped;
    if (const auto found = topics_.find(*other); found != topics_.end()) ++found->second->dropped;
  }
  return true;
}

// Ok(true): there is room. Ok(false): this event is dropped (and counted). Waits under kBlock.
Result<bool> Node::make_space(Lock& lock, const LinkPtr& link, OutTopic& topic, std::size_t bytes,
                              Policy policy) {
  Outbound& out = link->out;
  const bool may_drop = policy == Policy::kLatestOnly || policy == Policy::kDropOldest;
  if (may_drop && make_space_by_dropping(*link, topic, bytes, policy)) return true;
  if (!may_drop) {
    if (!is_full(*link, bytes)) return true;
    if (!out.lost && policy == Policy::kError) {
      return failure(Code::kWouldBlock, "event '{}': the queue to node {} is full ({} bytes)",
                     topic.name, link->peer.node, out.log.bytes());
    }
    if (Status waited = wait_for_space(lock, link, topic, bytes); !waited.ok()) {
      return failure(std::move(waited));
    }
    if (!out.lost || !is_full(*link, bytes)) return true;
  }
  ++out.dropped;
  ++topic.dropped;
  ++out.gap;
  return false;
}

// Until there is room, or nobody waits for the peer any more.
Status Node::wait_for_space(Lock& lock, const LinkPtr& link, const OutTopic& topic,
                            std::size_t bytes) {
  Outbound& out = link->out;
  const auto in_the_way = [&] {
    return is_full(*link, bytes) && !out.lost && !out.left && !closing_;
  };
  if (!in_the_way()) return {};
  using Clock = std::chrono::steady_clock;
  const bool in_callback = event::LoopCore::on_loop_thread();
  const auto deadline = deadline_after(options_.send_timeout);
  if (in_callback && ++out.callbacks_waiting == 1) say_whether_waiting(lock, link);
  Status status;
  while (in_the_way()) {
    request_flush();
    ++waiting_;
    changed_.wait_until(lock, in_callback ? std::min(deadline, Clock::now() + kLook) : deadline);
    --waiting_;
    if (!in_the_way()) break;
    if (in_callback && wait_for_each_other(*link)) {
      status = make_status(Code::kTimeout,
                           "event '{}': callbacks of node {} and node {} wait for each other, {} "
                           "bytes from here; each emits more to the other than memory_bytes ({}) "
                           "before it takes anything: emit less, or outside of callbacks",
                           topic.name, options_.self.node, link->peer.node, out.log.bytes(),
                           options_.memory_bytes);
      break;
    }
    if (Clock::now() < deadline) continue;
    status =
        make_status(Code::kTimeout,
                    "event '{}': node {} took nothing for {:.1f} s, {} bytes wait for it; is its "
                    "callback blocked? (send_timeout)",
                    topic.name, link->peer.node,
                    std::chrono::duration<double>(options_.send_timeout).count(), out.log.bytes());
    break;
  }
  if (in_callback && --out.callbacks_waiting == 0) say_whether_waiting(lock, link);
  return status;
}

void Node::say_whether_waiting(Lock& lock, const LinkPtr& link) {
  Outbound& out = link->out;
  if (out.stream == nullptr) return;
  add_control(out, Kind::kPing, out.callbacks_waiting > 0 ? kFlagWaiting : kFlagWaitingNoMore, 0,
              {});
  write_some(lock, link);
}

// A callback of the peer waits for us, one of ours for it, it has all that it grants, and nothing
// moves. One of the two gives up; then the other one goes on.
bool Node::wait_for_each_other(const Link& link) const {
  const Outbound& out = link.out;
  return out.peer_waits && out.stream != nullptr && out.sent >= out.credit &&
         options_.self.node < link.peer.node && reactor_.now() - out.progress_at >= kEachOther;
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

bool Node::has_flushed() const {
  return std::ranges::all_of(link_list_, [](const LinkPtr& link) {
    return link->out.lost || link->out.log.all_acknowledged();
  });
}

bool Node::flushed() const {
  const Lock lock(mutex_);
  return has_flushed();
}

// Whether a node that ends, and has waited since then, waits no longer for this peer.
bool Node::settled(const Outbound& out, io::TimePoint since,
                   std::chrono::milliseconds silence) const {
  if (out.lost || out.log.all_acknowledged()) return true;
  return reactor_.now() - std::max(out.progress_at, since) >= silence;
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
  const auto over = [&] { return closed_ || has_flushed() || stop.stop_requested(); };
  ++waiting_;
  changed_.wait_until(lock, deadline_after(deadline), over);
  --waiting_;
  return has_flushed();
}

bool Node::flush(const EndLimits& limits) {
  const std::stop_callback wake(limits.hurry, [this] { wake_waiters(); });
  Lock lock(mutex_);
  request_flush();
  const auto since = reactor_.now();
  auto deadline = deadline_after(limits.total);
  bool hurried = false;
  while (!closed_ && !std::ranges::all_of(link_list_, [&](const LinkPtr& link) {
    return settled(link->out, since, limits.silence);
  })) {
    if (limits.hurry.stop_requested() && !std::exchange(hurried, true)) {
      deadline = std::min(deadline, deadline_after(limits.hurried));
    }
    ++waiting_;
    const auto woken = changed_.wait_until(lock, deadline);  // tick() wakes it, too
    --waiting_;
    if (woken == std::cv_status::timeout) break;
  }
  return has_flushed();
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
  all.gaps = gaps_of_past_;
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
    all.gaps += out.gaps_told;
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

void Node::welcome_newcomers(bool welcome) {
  const Lock lock(mutex_);
  welcoming_ = welcome;
}

std::vector<GivenUp> Node::close(const EndLimits& limits) {
  {
    const Lock lock(mutex_);
    if (std::exchange(closing_, true)) return {};
    changed_.notify_all();
  }
  const bool politely = limits.total.count() > 0;
  if (politely) flush(limits);
  std::vector<GivenUp> given_up;
  {
    const Lock lock(mutex_);
    for (const LinkPtr& link : link_list_) {
      const Outbound& out = link->out;
      const std::uint64_t events = out.log.unacknowledged_events();
      if (politely && events > 0) {
        given_up.push_back({link->peer.node, events, out.lost, out.dead});
      }
    }
  }
  for (const GivenUp& peer : given_up) {
    log::warning("closing with {} events that node {} has not acknowledged{}", peer.events,
                 peer.node, peer.lost ? ": it is lost" : "");
  }
  reactor_.run_on_loop([this, politely] { say_goodbye(politely); });
  if (politely) {  // let the peers close first, so that nothing on the wire is cut off
    Lock lock(mutex_);
    ++waiting_;
    changed_.wait_for(lock, std::min(limits.total, std::chrono::milliseconds(1'000)),
                      [this] { return open_connections_ == 0; });
    --waiting_;
  }
  reactor_.run_on_loop([this] { stop_on_loop(); });
  const Lock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
  return given_up;
}

}  // namespace divisi::mesh
