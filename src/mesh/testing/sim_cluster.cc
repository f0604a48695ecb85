#include "mesh/testing/sim_cluster.h"

#include "mesh/testing/sim_wire.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <span>

namespace divisi::mesh::testing {

namespace {

using namespace std::chrono_literals;

std::string address_of(int id) {
  return fmt::format("tcp://node{}:1", id);
}

std::byte pattern(std::uint64_t number, std::size_t at) {
  return static_cast<std::byte>(number * 31 + at * 7);
}

// Tells when the strand has come to it.
class Marker final : public event::Batch {
 public:
  struct Flag {
    std::mutex mutex;
    std::condition_variable changed;
    bool passed = false;
  };
  explicit Marker(std::shared_ptr<Flag> flag) : flag_(std::move(flag)) {}
  ~Marker() override {
    const std::lock_guard lock(flag_->mutex);
    flag_->passed = true;
    flag_->changed.notify_all();
  }
  void deliver(event::Dispatcher&) noexcept override {}

 private:
  std::shared_ptr<Flag> flag_;
};

}  // namespace

SimCluster::Tally& SimCluster::Tally::operator+=(const Tally& other) {
  accepted += other.accepted;
  delivered += other.delivered;
  refused += other.refused;
  dropped += other.dropped;
  resent += other.resent;
  reconnects += other.reconnects;
  lost += other.lost;
  back += other.back;
  left += other.left;
  restarts += other.restarts;
  gone += other.gone;
  parting += other.parting;
  relayed += other.relayed;
  return *this;
}

std::size_t SimCluster::Traffic::missing() const {
  const auto rest = std::span(expected).subspan(next);
  return skipped + static_cast<std::size_t>(std::ranges::count_if(rest, &Sent::due));
}

SimCluster::SimCluster(std::uint64_t seed) : world_(seed), count_(2) {
  if (chance(0.5)) count_ = static_cast<int>(between(3, 4));
  relay_ = count_ > 2 && chance(0.4);
  // A random tree keeps them together; more pairs, and pairs that dial each other, on top.
  dials_.resize(static_cast<std::size_t>(count_));
  for (int id = 1; id < count_; ++id) {
    const int other = relay_ ? 0 : static_cast<int>(between(0, static_cast<std::uint64_t>(id) - 1));
    const bool back = chance(0.5);
    dials_[static_cast<std::size_t>(back ? other : id)].insert(back ? id : other);
    if (chance(0.3)) dials_[static_cast<std::size_t>(back ? id : other)].insert(back ? other : id);
  }
  for (int id = 0; id < count_ && !relay_; ++id) {
    const int other = static_cast<int>(between(0, static_cast<std::uint64_t>(count_) - 1));
    if (chance(0.3)) dials_[static_cast<std::size_t>(id)].insert(other);  // perhaps itself
  }
  constexpr std::size_t kQueues[] = {4'000, 20'000, 100'000, 600'000, 2'000'000};
  options_.queue_bytes = kQueues[between(0, std::size(kQueues) - 1)];
  options_.memory_bytes = options_.queue_bytes * between(2, 8);
  options_.secret = chance(0.5) ? "secret" : "";
  options_.self.job = "sim";
  largest_ = chance(0.2) ? 700'000 : chance(0.5) ? 20'000 : 300;
  world_.weather.least_moved = largest_ / 500;
  late_ = !relay_ && chance(0.15);
  topics_ = late_ ? 1 : static_cast<int>(between(1, 3));
  droppable_ = chance(0.3);
  for (int id = 0; id < count_; ++id) {
    if (chance(0.7)) {
      start(id);
    } else {
      world_.after(world_.random().duration(2s), [this, id] { start(id); });
    }
  }
}

SimCluster::~SimCluster() {
  while (!processes_.empty()) kill(processes_.begin()->first);
}

void SimCluster::fail(const std::string& what) {
  if (failure_.empty()) {
    failure_ = fmt::format("{} (at {} ms)", what,
                           std::chrono::duration_cast<std::chrono::milliseconds>(
                               world_.now().time_since_epoch() - 1'000s)
                               .count());
  }
}

void SimCluster::start(int id) {
  Process& process = processes_[id];
  process.id = id;
  // Which of two is larger decides between connections: not always the later one.
  process.incarnation = (between(1, 1'000) << 32) + next_incarnation_++;
  process.reactor = std::make_unique<SimReactor>(world_);
  process.loop = std::make_unique<EventLoop>("sim");
  process.reactor->settle = [this, &process] { settle(process); };
  NodeOptions options = options_;
  options.self.node = id;
  options.self.incarnation = process.incarnation;
  options.listen = address_of(id);
  if (relay_ && id == 0) {
    options.relay = true;
    options.expected_peers = count_ - 1;
  } else if (relay_) {
    // What has not come to the hub yet may come to this leaf, too.
    for (const auto& [sender, events] : to_all_leaves_) {
      Traffic& traffic = traffic_[{sender, process.incarnation}];
      traffic.expected = events;
      traffic.relayed = true;
    }
  }
  for (const int other : dials_[static_cast<std::size_t>(id)])
    options.dial.push_back(address_of(other));
  auto node = Node::start(*process.reactor, options,
                          [this, &process](PeerChange change, const PeerInfo& peer) {
                            changed(process, change, peer);
                          });
  if (!node) return fail("start: " + node.error().message());
  process.node = *std::move(node);
  if (relay_ && id == 0) {
    for (const int other : gone_) tell_of_death(process, other);
  }
  if (!late_) {
    subscribe(process);
    if (chance(0.5)) process.node->ready();
  }
}

void SimCluster::subscribe(Process& process) {
  process.subscribed = true;
  for (int i = 0; i < topics_; ++i) {
    const std::string topic = fmt::format("t{}", i);
    process.loop->on(
        topic, [this, &process](std::uint64_t sender, std::uint64_t number, const Buffer& bytes) {
          delivered(process, sender, number, bytes);
        });
    process.node->subscribe(topic, topic, process.loop->core());
  }
  settle(process);
}

// As a kill -9: the kernel closes the sockets, nobody says goodbye.
void SimCluster::kill(int id) {
  Process& process = processes_[id];
  process.dead = true;
  process.node.reset();
  process.reactor->run_handed_off();
  process.loop.reset();
  process.reactor.reset();
  processes_.erase(id);
  if (!relay_ || id != 0) return;
  // What the hub had taken and not handed on is gone with it.
  for (auto& [pair, traffic] : traffic_) {
    if (!traffic.relayed) continue;
    traffic.skipped = 0;
    for (Sent& event : traffic.expected) event.due = false;
  }
}

// A loop whose real time is up goes on in its own thread: the simulation waits until that thread
// has let go of the strand.
void SimCluster::settle(Process& process) {
  const auto& core = process.loop->core();
  for (;;) {
    // Handed off and not yet due: nobody runs the strand, and there is nothing to wait for.
    if (process.reactor->handed_off()) return;
    auto flag = std::make_shared<Marker::Flag>();
    if (core->post(std::make_unique<Marker>(flag))) return core->drain_here();
    std::unique_lock lock(flag->mutex);
    flag->changed.wait(lock, [&] { return flag->passed; });
  }
}

void SimCluster::changed(Process& process, PeerChange change, const PeerInfo& peer) {
  const auto before = process.seen.find(peer.node);
  const bool known = before != process.seen.end() && before->second != PeerChange::kLeft;
  const bool is_lost = known && before->second == PeerChange::kLost;
  const bool fits = change == PeerChange::kJoined ? !known
                    : change == PeerChange::kBack ? is_lost
                                                  : known && !is_lost;
  if (!fits) {
    fail(fmt::format("node {} was told {} of node {} after {}", process.id, to_string(change),
                     peer.node,
                     before == process.seen.end() ? "nothing" : to_string(before->second)));
  }
  process.seen[peer.node] = change;
  if (change == PeerChange::kLost) ++tally_.lost;
  if (change == PeerChange::kBack) ++tally_.back;
  if (change == PeerChange::kLeft) ++tally_.left;
}

void SimCluster::delivered(Process& process, std::uint64_t sender, std::uint64_t number,
                           const Buffer& bytes) {
  if (process.dead) return;
  ++tally_.delivered;
  Traffic& traffic = traffic_[{sender, process.incarnation}];
  while (traffic.next < traffic.expected.size() &&
         traffic.expected[traffic.next].number != number) {
    traffic.skipped += traffic.expected[traffic.next].due ? 1 : 0;
    ++traffic.next;
  }
  if (traffic.next == traffic.expected.size()) {
    return fail(
        fmt::format("node {} got event {} twice, out of order, or unasked", process.id, number));
  }
  if (traffic.expected[traffic.next].size != bytes.size()) {
    return fail(fmt::format("event {} has {} bytes instead of {}", number, bytes.size(),
                            traffic.expected[traffic.next].size));
  }
  ++traffic.next;
  tally_.relayed += traffic.relayed ? 1 : 0;
  for (std::size_t i = 0; i < bytes.size(); i += bytes.size() < 100 ? 1 : 97) {
    if (bytes.data()[i] != pattern(number, i)) {
      return fail(fmt::format("event {} is damaged at byte {}", number, i));
    }
  }
}

std::map<int, SimCluster::Outcome> SimCluster::outcomes(const Process& process) const {
  std::map<int, Outcome> all;
  for (const PeerInfo& peer : process.node->peers()) all[peer.node].incarnation = peer.incarnation;
  for (const PeerStats& peer : process.node->stats().peers) {
    all[peer.node].sent = peer.sent;
    all[peer.node].dropped = peer.dropped;
  }
  return all;
}

void SimCluster::send(Process& process, std::size_t size, const SendOptions& options) {
  const std::uint64_t number = next_number_++;
  Buffer bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes.mutable_data()[i] = pattern(number, i);
  const auto topic = fmt::format("t{}", between(0, static_cast<std::uint64_t>(topics_) - 1));
  const auto before = outcomes(process);
  PackScratch scratch;
  const Status status =
      process.node->send(topic, pack_args(scratch, process.incarnation, number, bytes), options);
  if (!status.ok()) ++tally_.refused;
  for (const auto& [id, after] : outcomes(process)) {
    const Outcome& was = before.at(id);
    Traffic& traffic = traffic_[{process.incarnation, after.incarnation}];
    const bool accepted = after.sent > was.sent;
    const auto dropped = after.dropped - was.dropped;
    if (accepted) {
      ++tally_.accepted;
      traffic.expected.push_back({number, size});
      if (relay_ && process.id != 0 && options.to.kind == Target::Kind::kAll) {
        expect_relayed(process, after, {number, size});
      }
    }
    tally_.dropped += dropped;
    // Without having been accepted, this event is one of those.
    traffic.removed += dropped - (accepted || dropped == 0 ? 0 : 1);
    const bool meant = options.to.kind == Target::Kind::kNode && options.to.node == id;
    if (meant && status.ok() && !accepted && dropped == 0 && !late_) {
      fail(fmt::format("event {} from node {} to node {} vanished without a word", number,
                       process.id, id));
    }
  }
}

// An event that a leaf queued for its hub will come to the other leaves, too: for certain to those
// that the hub knows.
void SimCluster::expect_relayed(const Process& leaf, const Outcome& to_hub, const Sent& event) {
  const auto hub = processes_.find(0);
  const bool is_present = hub != processes_.end() && hub->second.incarnation == to_hub.incarnation;
  std::set<std::uint64_t> known;
  if (is_present) {
    for (const PeerInfo& peer : hub->second.node->peers()) known.insert(peer.incarnation);
  }
  to_all_leaves_[leaf.incarnation].push_back({event.number, event.size, false});
  for (const auto& [id, other] : processes_) {
    if (id == 0 || id == leaf.id) continue;
    Traffic& traffic = traffic_[{leaf.incarnation, other.incarnation}];
    traffic.relayed = true;
    traffic.expected.push_back({event.number, event.size, known.contains(other.incarnation)});
  }
}

std::size_t SimCluster::pick_size() {
  if (chance(0.7)) return between(0, 200);
  if (largest_ > 100'000 && chance(0.9)) return between(0, 9'000);
  return between(0, largest_);
}

void SimCluster::send_something() {
  if (processes_.empty()) return;
  auto chosen = processes_.begin();
  std::advance(chosen, between(0, processes_.size() - 1));
  Process& process = chosen->second;
  SendOptions options;
  options.policy = Policy::kError;
  if (chance(0.5))
    options.to =
        Target::to_node(static_cast<int>(between(0, static_cast<std::uint64_t>(count_) - 1)));
  if (droppable_ && chance(0.5)) {
    options.policy = chance(0.5) ? Policy::kDropOldest : Policy::kLatestOnly;
  }
  const auto burst = chance(0.2) ? between(1, 60) : between(1, 4);
  for (std::uint64_t i = 0; i < burst; ++i) send(process, pick_size(), options);
}

void SimCluster::do_harm() {
  const auto wires = world_.wires();
  const auto kind = between(0, 99);
  if (kind < 70) {
    if (wires.empty()) return;
    SimWire& wire = *wires[between(0, wires.size() - 1)];
    if (kind < 15) return wire.cut(true);
    if (kind < 25) return wire.cut(false);
    if (kind < 45) return wire.cut_after(between(1, chance(0.5) ? 300 : 20'000));
    if (kind < 55)
      return wire.fail_one_side(static_cast<int>(between(0, 1)), world_.random().duration(3s));
    if (kind < 62) return wire.stall(world_.random().duration(chance(0.3) ? 8s : 500ms));
    return wire.vanish();
  }
  if (kind < 80) {
    world_.weather.refused_dials = chance(0.5) ? 0.5 : 0;
    return;
  }
  if (kind < 92) {
    for (auto& [id, process] : processes_) {
      if (chance(0.5)) process.reactor->slowest_callback = chance(0.5) ? 0ms : 700ms;
    }
    return;
  }
  if (!processes_.empty() && chance(0.5)) harm_a_process();
}

// It dies and comes back, or stays away. Its launcher may tell the others, or they see nothing but
// its silence.
void SimCluster::harm_a_process() {
  const int id =
      std::next(processes_.begin(), static_cast<long>(between(0, processes_.size() - 1)))->first;
  // A host that dies takes the whole switch with it, and nobody hears of the end.
  if (chance(0.3)) {
    for (const auto& wire : world_.wires()) wire->vanish();
  }
  kill(id);
  if (processes_.size() >= 2 && chance(0.4)) return die_for_good(id);
  ++tally_.restarts;
  const auto away = world_.random().duration(4s);
  if (chance(0.3)) {
    world_.after(world_.random().duration(away), [this, id] {
      for (auto& [survivor, process] : processes_) process.node->peer_died(id);
    });
  }
  world_.after(away, [this, id] { start(id); });
}

void SimCluster::die_for_good(int id) {
  ++tally_.gone;
  gone_.insert(id);
  // A hub that waits for its leaves would never open.
  const auto hub = processes_.find(0);
  const bool must_know = relay_ && hub != processes_.end() && !hub->second.node->joined();
  if (!must_know && chance(0.5)) return;
  for (auto& [survivor, process] : processes_) tell_of_death(process, id);
}

void SimCluster::tell_of_death(Process& process, int id) {
  process.mourned.insert(id);
  process.node->peer_died(id, *io::Address::parse(address_of(id)));
}

void SimCluster::check_bounds() {
  // A message, and what every message has around it: frames of 16 bytes, alignment, its topic.
  const std::size_t slack = largest_ + 1'000;
  for (const auto& [id, process] : processes_) {
    for (const PeerStats& peer : process.node->stats().peers) {
      // Of latest_only one of each topic may be there beyond the bound; and at a hub the window of
      // each other leaf.
      const std::size_t sources =
          relay_ && id == 0 ? static_cast<std::size_t>(count_) - 1 : std::size_t{1};
      const std::size_t bound =
          sources *
          (options_.queue_bytes + slack * (droppable_ ? 1 + static_cast<std::size_t>(topics_) : 1));
      if (peer.queued_bytes > bound) {
        fail(fmt::format("node {} keeps {} bytes for node {}, more than {}", id, peer.queued_bytes,
                         peer.node, bound));
      }
      const auto other = processes_.find(peer.node);
      if (droppable_ || late_ || relay_ || other == processes_.end()) continue;
      // What has arrived and waits for its callback.
      const auto found = traffic_.find({other->second.incarnation, process.incarnation});
      if (found == traffic_.end()) continue;
      const Traffic& traffic = found->second;
      std::size_t waiting = 0;
      for (std::size_t i = traffic.next; i < peer.received && i < traffic.expected.size(); ++i) {
        waiting += traffic.expected[i].size;
      }
      if (waiting > options_.queue_bytes + slack) {
        fail(fmt::format("node {} holds {} bytes of node {}, more than {}", id, waiting, peer.node,
                         options_.queue_bytes + slack));
      }
    }
  }
}

std::size_t SimCluster::removed_between(const Process& from, const Process& to,
                                        const Traffic& traffic) const {
  if (!traffic.relayed) return traffic.removed;
  const auto hub = processes_.find(0);
  if (hub == processes_.end()) return 0;
  std::size_t removed = 0;
  const auto first_half = traffic_.find({from.incarnation, hub->second.incarnation});
  if (first_half != traffic_.end()) removed += first_half->second.removed;
  for (const PeerStats& peer : hub->second.node->stats().peers) {
    if (peer.node == to.id) removed += peer.dropped;
  }
  return removed;
}

bool SimCluster::delivered_all(std::string* missing) const {
  for (const auto& [pair, traffic] : traffic_) {
    const Process* from = nullptr;
    const Process* to = nullptr;
    for (const auto& [id, process] : processes_) {
      if (process.incarnation == pair.first) from = &process;
      if (process.incarnation == pair.second) to = &process;
    }
    if (from == nullptr || to == nullptr) continue;
    const std::size_t rest = traffic.missing();
    const std::size_t removed = removed_between(*from, *to, traffic);
    if (traffic.relayed ? rest <= removed : rest == removed) continue;
    // Held back for a listener that came too late, and counted.
    if (late_ && rest <= to->node->stats().unlistened + removed) continue;
    *missing = fmt::format("node {} to node {}: {} accepted, {} of them not delivered, {} dropped",
                           from->id, to->id, traffic.expected.size(), rest, removed);
    return false;
  }
  return true;
}

// With those that it dials, and those that are there.
bool SimCluster::linked(const Process& process, std::string* missing) const {
  bool waits_in_vain = relay_ && !gone_.empty();
  std::map<int, PeerInfo> peers;
  for (const PeerInfo& peer : process.node->peers()) peers[peer.node] = peer;
  for (const int other : dials_[static_cast<std::size_t>(process.id)]) {
    if (gone_.contains(other)) waits_in_vain = true;
    if (other == process.id || gone_.contains(other)) continue;
    const auto peer = peers.find(other);
    if (peer == peers.end() || !peer->second.connected || peer->second.lost) {
      *missing = fmt::format("node {} is not linked with node {}", process.id, other);
      return false;
    }
  }
  for (const auto& [other, peer] : peers) {
    if (gone_.contains(other) && (!peer.lost || process.mourned.contains(other))) {
      *missing = fmt::format("node {} still counts on node {}, which is dead", process.id, other);
      return false;
    }
  }
  if (!waits_in_vain && !process.node->joined()) {
    *missing = fmt::format("node {} has not joined", process.id);
    return false;
  }
  return true;
}

bool SimCluster::drained(std::string* missing) const {
  if (!delivered_all(missing)) return false;
  for (const auto& [id, process] : processes_) {
    if (!linked(process, missing)) return false;
    for (const PeerStats& peer : process.node->stats().peers) {
      if (gone_.contains(peer.node)) continue;  // kept for nobody, within its bound
      if (peer.queued_bytes == 0 && peer.unacknowledged == 0) continue;
      *missing = fmt::format("node {} waits for node {} to acknowledge {} frames, {} bytes", id,
                             peer.node, peer.unacknowledged, peer.queued_bytes);
      return false;
    }
  }
  return true;
}

void SimCluster::wait_until_drained(const char* when) {
  // Lost after 5 s, a second between dials, a few rounds of it.
  constexpr auto kLongest = 40s;
  std::string missing;
  const auto deadline = world_.now() + kLongest;
  while (failure_.empty() && !drained(&missing)) {
    if (world_.now() >= deadline) return fail(fmt::format("not drained {}: {}", when, missing));
    world_.run_for(50ms);
    check_bounds();
  }
}

// Both sides of a living pair tell of the same drops.
void SimCluster::check_counters() {
  for (const auto& [id, process] : processes_) {
    for (const PeerStats& peer : process.node->stats().peers) {
      tally_.resent += peer.resent;
      tally_.reconnects += peer.reconnects;
      const auto other = processes_.find(peer.node);
      if (other == processes_.end()) continue;
      const auto theirs = other->second.node->stats().peers;
      const auto mirror = std::find_if(theirs.begin(), theirs.end(),
                                       [&](const PeerStats& p) { return p.node == id; });
      if (mirror == theirs.end())
        return fail(fmt::format("node {} knows no node {}", peer.node, id));
      if (mirror->gaps != peer.dropped) {
        fail(fmt::format("node {} dropped {} events for node {}, which heard of {}", id,
                         peer.dropped, peer.node, mirror->gaps));
      }
    }
  }
}

// A clean end: it has a lot to say before, and waits as long as its listeners take something.
void SimCluster::leave_one() {
  if (processes_.size() < 2) return;
  const int id =
      std::next(processes_.begin(), static_cast<long>(between(0, processes_.size() - 1)))->first;
  Process& leaving = processes_[id];
  std::set<int> watchers;
  std::map<int, std::uint64_t> gaps;   // that the others knew of
  std::map<int, std::size_t> dropped;  // events of this one, for them
  for (const PeerInfo& peer : leaving.node->peers()) {
    if (!gone_.contains(peer.node)) watchers.insert(peer.node);
  }
  for (auto& [other, process] : processes_) {
    gaps[other] = process.node->stats().gaps;
    dropped[other] = traffic_[{leaving.incarnation, process.incarnation}].missing();
    process.reactor->slowest_callback = chance(0.5) ? 0ms : 700ms;
  }
  for (auto burst = between(0, 60); burst > 0; --burst) {
    send(leaving, pick_size(), {Target::all(), Policy::kError});
    ++tally_.parting;
  }
  const auto deadline = world_.now() + 200s;
  while (!leaving.node->flushed() && world_.now() < deadline) {
    world_.run_for(50ms);
    check_bounds();
  }
  for (const GivenUp& peer : leaving.node->close(1ms)) {
    if (!gone_.contains(peer.node)) fail(fmt::format("node {} gave up node {}", id, peer.node));
  }
  const std::uint64_t incarnation = leaving.incarnation;
  kill(id);
  for (auto& [other, process] : processes_) process.reactor->slowest_callback = 0ms;
  world_.run_for(3s);
  for (const auto& [other, process] : processes_) {
    const std::size_t missing = traffic_[{incarnation, process.incarnation}].missing();
    if (missing != dropped[other] && !late_) {
      fail(fmt::format("node {} left, and node {} misses {} of its events, before that {}", id,
                       other, missing, dropped[other]));
    }
    if (process.node->stats().gaps != gaps[other]) {
      fail(fmt::format("node {} heard of a gap when node {} left", other, id));
    }
  }
  for (const int watcher : watchers) {
    if (processes_[watcher].seen[id] != PeerChange::kLeft) {
      fail(fmt::format("node {} did not hear that node {} left", watcher, id));
    }
  }
}

std::string SimCluster::run() {
  const auto steps = between(50, 250);
  const double harm = chance(0.2) ? 0 : 0.15;
  for (std::uint64_t i = 0; i < steps && failure_.empty(); ++i) {
    if (chance(0.7)) send_something();
    if (chance(harm)) do_harm();
    for (auto& [id, process] : processes_) {
      if (!process.subscribed && chance(0.05)) subscribe(process);
    }
    world_.run_for(world_.random().duration(chance(0.1) ? 2s : 50ms));
    check_bounds();
  }
  world_.weather.refused_dials = 0;
  world_.weather.resets = 0;
  for (const auto& wire : world_.wires()) {
    if (wire->dead() && chance(0.5)) wire->cut(true);
  }
  world_.run_for(5s);  // those on their way back are there
  for (auto& [id, process] : processes_) {
    process.reactor->slowest_callback = 0ms;
    if (!process.subscribed) subscribe(process);
  }
  wait_until_drained("after the faults");
  // Nothing of the past may hold up what comes now.
  for (auto& [id, process] : processes_) {
    const auto refused = tally_.refused;
    for (int k = 0; k < 2; ++k) send(process, 10, {Target::all(), Policy::kError});
    if (tally_.refused != refused)
      fail(fmt::format("node {} cannot send although all is drained", id));
  }
  wait_until_drained("at the end");
  check_counters();
  if (failure_.empty()) leave_one();
  return failure_;
}

}  // namespace divisi::mesh::testing
