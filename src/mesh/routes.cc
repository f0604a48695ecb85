#include "mesh/routes.h"

#include "base/log.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace divisi::mesh {

void FlowGauge::consumed(std::uint64_t bytes) {
  queued.fetch_sub(bytes);
  if (consumed_since_told.fetch_add(bytes) + bytes < tell_after) return;
  consumed_since_told.exchange(0);
  const std::lock_guard lock(mutex);
  if (on_drained) on_drained();
}

void FlowGauge::stop_telling() {
  const std::lock_guard lock(mutex);
  on_drained = nullptr;
}

namespace {

struct Entry {
  InEvent event;
  const std::string* name;  // of the batch
};

// Lists of entries for reuse: a full read makes one of some 200 KB, which malloc would map and
// unmap each time.
class EntryLists {
 public:
  static EntryLists& instance() {
    static auto* const lists = new EntryLists;  // batches may outlive static objects
    return *lists;
  }
  std::vector<Entry> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return {};
    auto list = std::move(free_.back());
    free_.pop_back();
    return list;
  }
  void give(std::vector<Entry> list) {
    if (list.capacity() == 0 || list.capacity() > kMostEntries) return;
    list.clear();
    const std::lock_guard lock(mutex_);
    if (free_.size() < kMostLists) free_.push_back(std::move(list));
  }

 private:
  static constexpr std::size_t kMostLists = 8;
  static constexpr std::size_t kMostEntries = 64 * 1024;

  std::mutex mutex_;
  std::vector<std::vector<Entry>> free_;  // by mutex_
};

}  // namespace

// The events of one read for one loop. Decoding happens where the callbacks run.
class Routes::EventBatch final : public event::Batch {
 public:
  // What a batch with one event of that length takes.
  static constexpr std::uint64_t cost(std::uint64_t length) {
    return kBatchBytes + kEventBytes + length;
  }

  // `listener`: for that one alone.
  EventBatch(int from_node, std::shared_ptr<FlowGauge> gauge, bool trace,
             std::optional<ListenerId> listener = {})
      : from_node_(from_node), gauge_(std::move(gauge)), trace_(trace), listener_(listener) {
    if (trace_) arrived_ = std::chrono::steady_clock::now();
  }

  // Also a batch that is never delivered (its loop was stopped) gives its bytes back.
  ~EventBatch() override {
    if (gauge_) gauge_->consumed(bytes_);
    EntryLists::instance().give(std::move(entries_));
  }

  void deliver(event::Dispatcher& sink) noexcept override {
    event::RemoteEvent remote;
    remote.from_node = from_node_;
    std::vector<Buffer> buffers;
    for (const Entry& entry : entries_) {
      const InEvent& event = entry.event;
      remote.event = *entry.name;
      remote.sequence = event.sequence;
      PayloadView& payload = remote.payload;
      payload.codec = static_cast<Codec>(event.codec);
      payload.has_kwargs = (event.flags & kFlagKwargs) != 0;
      payload.body = event.body();
      const Buffer& owner = owners_[event.owner];
      // Sharing the block with a small argument would keep the whole of it alive.
      const bool share = payload.body.size() >= kShareAtLeast;
      if (share) {
        payload.owner = owner;
      } else if (!payload.owner.empty()) {
        payload.owner = Buffer();
      }
      if (event.buffers > 0) {
        read_buffers(event, owner, buffers);
        payload.buffers = buffers;
      } else {
        payload.buffers = {};
      }
      if (trace_ && event.trace() != 0) [[unlikely]]
        log_delivery(entry);
      if (listener_) [[unlikely]] {
        sink.dispatch_to(*listener_, remote);
      } else {
        sink.dispatch(remote);
      }
    }
  }

  void add(const InEvent& event, const Buffer& owner, const Name& name) {
    if (names_.empty() || names_.back() != name) names_.push_back(name);
    entries_.push_back({event, name.get()});
    if (owners_.empty() || owners_.back().data() != owner.data()) owners_.push_back(owner);
    entries_.back().event.owner = static_cast<std::uint16_t>(owners_.size() - 1);
    bytes_ += kEventBytes + event.length;
  }

  void reserve(std::size_t events) {
    if (events > 1) entries_ = EntryLists::instance().take();
    entries_.reserve(events);
  }
  std::size_t size() const { return entries_.size(); }
  int from_node() const { return from_node_; }
  static constexpr std::size_t kMostEvents = 0xffff;  // InEvent::owner has 16 bits

  void count_bytes() {
    if (gauge_) gauge_->queued.fetch_add(bytes_);
  }

 private:
  static constexpr std::size_t kShareAtLeast = 32 * 1024;
  // Besides the message: its header in the block that was read, and its entry; and the batch itself
  // with what it and the loop's queue allocate for it.
  static constexpr std::uint64_t kEventBytes = kHeaderBytes + sizeof(Entry);
  static constexpr std::uint64_t kBatchBytes = 320;

  void log_delivery(const Entry& entry) const {
    const auto queued = std::chrono::steady_clock::now() - arrived_;
    log::info("trace deliver event={} id={:016x} peer={} bytes={} queued_us={}", *entry.name,
              entry.event.trace(), from_node_, entry.event.length,
              std::chrono::duration_cast<std::chrono::microseconds>(queued).count());
  }

  const int from_node_;
  std::shared_ptr<FlowGauge> gauge_;
  const bool trace_;
  const std::optional<ListenerId> listener_;
  std::chrono::steady_clock::time_point arrived_;  // with trace_ only
  std::vector<Buffer> owners_;
  std::vector<Name> names_;  // of the entries; one again when another came between
  std::vector<Entry> entries_;
  std::uint64_t bytes_ = kBatchBytes;
};

bool Routes::subscribe(std::string_view topic, std::string_view event, const LoopPtr& loop) {
  bool drain = false;
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    Route& route = routes_[std::string(topic)];
    first = route.sinks.empty();
    for (const Sink& sink : route.sinks) {
      if (sink.loop == loop) return false;
    }
    route.sinks.push_back({loop, std::make_shared<const std::string>(event)});
    loop->count_unheard_in(unheard_);
    ++version_;
    drain = post_held(topic, route.sinks.back().event, loop, std::nullopt);
  }
  if (drain) loop->wake();
  return first;
}

// True: somebody must wake the loop.
bool Routes::post_held(std::string_view topic, const Name& name, const LoopPtr& loop,
                       std::optional<ListenerId> listener) {
  const auto found = held_.find(std::string(topic));
  if (found == held_.end()) return false;
  Held& held = found->second;
  bool drain = false;
  std::unique_ptr<EventBatch> batch;
  const auto post = [&] {
    if (batch != nullptr) drain |= loop->post(std::move(batch));
  };
  const auto unheard = held.events.end() - static_cast<std::ptrdiff_t>(held.unheard);
  // A loop as a whole gets each event once, also if it comes back.
  for (auto at = listener ? held.events.begin() : unheard; at != held.events.end(); ++at) {
    const HeldEvent& each = *at;
    if (batch == nullptr || batch->from_node() != each.from_node ||
        batch->size() == EventBatch::kMostEvents) {
      post();
      batch = std::make_unique<EventBatch>(each.from_node, nullptr, trace_, listener);
    }
    batch->add(each.event, each.message, name);
  }
  post();
  for (auto at = unheard; at != held.events.end(); ++at) {
    heard_bytes_ += EventBatch::cost(at->event.length);
  }
  held_events_ -= std::exchange(held.unheard, 0);
  return drain;
}

// Posted behind what was held for a listener.
class Routes::CaughtUp final : public event::Batch {
 public:
  CaughtUp(ListenerId listener, Name event) : listener_(listener), event_(std::move(event)) {}
  void deliver(event::Dispatcher& sink) noexcept override { sink.caught_up(listener_, *event_); }

 private:
  const ListenerId listener_;
  const Name event_;
};

bool Routes::begin_catch_up() {
  const std::lock_guard lock(mutex_);
  if (!holding_) return false;
  ++catching_up_;
  return true;
}

void Routes::catch_up(std::string_view topic, std::string_view event, const LoopPtr& loop,
                      ListenerId id) {
  bool drain = false;
  {
    const std::lock_guard lock(mutex_);
    const auto name = std::make_shared<const std::string>(event);
    drain = post_held(topic, name, loop, id);
    drain |= loop->post(std::make_unique<CaughtUp>(id, name));
    end_catch_up();
  }
  if (drain) loop->wake();
}

void Routes::cancel_catch_up() {
  const std::lock_guard lock(mutex_);
  end_catch_up();
}

void Routes::end_catch_up() {
  --catching_up_;
  if (!keeps()) forget_held();
}

void Routes::forget_held() {
  unlistened_ += std::exchange(held_events_, 0);
  held_bytes_ = 0;
  heard_bytes_ = 0;
  held_.clear();
}

bool Routes::unsubscribe(std::string_view topic, const event::LoopCore* loop) {
  const std::lock_guard lock(mutex_);
  const auto found = routes_.find(std::string(topic));
  if (found == routes_.end()) return false;
  std::erase_if(found->second.sinks, [&](const Sink& sink) { return sink.loop.get() == loop; });
  ++version_;
  if (!found->second.sinks.empty()) return false;
  routes_.erase(found);
  return true;
}

std::vector<std::string> Routes::unsubscribe_all(const event::LoopCore* loop) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> gone;
  for (auto& [topic, route] : routes_) {
    std::erase_if(route.sinks, [&](const Sink& sink) { return sink.loop.get() == loop; });
    if (route.sinks.empty()) gone.push_back(topic);
  }
  for (const auto& topic : gone) routes_.erase(topic);
  ++version_;
  return gone;
}

std::vector<std::string> Routes::topics() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  names.reserve(routes_.size());
  for (const auto& [topic, route] : routes_) names.push_back(topic);
  return names;
}

void Routes::stop_holding() {
  const std::lock_guard lock(mutex_);
  holding_ = false;
  if (!keeps()) forget_held();
}

const Routes::Route* Routes::find(InTopic& topic) {
  if (topic.route_version != version_) {
    const auto found = routes_.find(topic.name);
    topic.route = found == routes_.end() ? nullptr : &found->second;
    topic.route_version = version_;
  }
  return static_cast<const Route*>(topic.route);
}

// What somebody got goes before what nobody did.
bool Routes::make_room(std::size_t bytes) {
  if (held_bytes_ + bytes <= hold_bytes_) return true;
  if (held_bytes_ + bytes > hold_bytes_ + heard_bytes_) return false;
  for (auto& [topic, held] : held_) {
    while (held.events.size() > held.unheard) {
      held_bytes_ -= EventBatch::cost(held.events.front().event.length);
      held.events.pop_front();
    }
  }
  heard_bytes_ = 0;
  return true;
}

// A copy of its own for each held event: the block it came in must not wait with it.
void Routes::hold(const InEvent& event, const Buffer& owner, int from_node, bool is_heard) {
  const auto size = static_cast<std::size_t>(event.length);
  const std::size_t cost = EventBatch::cost(size);
  const bool fits =
      is_heard ? keeps() && held_bytes_ + cost <= hold_bytes_ : holding_ && make_room(cost);
  if (!fits) {
    if (!is_heard) ++unlistened_;
    return;
  }
  // A message in a buffer of its own is kept as it is.
  HeldEvent kept{event, owner.size() == size ? owner : Buffer::copy_of({event.message, size}),
                 from_node};
  kept.event.message = kept.message.data();
  Held& held = held_[event.topic->name];
  held.events.push_back(std::move(kept));
  held_bytes_ += cost;
  if (is_heard) {
    heard_bytes_ += cost;
  } else {
    ++held.unheard;
    ++held_events_;
  }
}

void Routes::deliver(Received& received, int from_node, const std::shared_ptr<FlowGauge>& gauge,
                     std::vector<LoopPtr>& idle) {
  // Loops with a batch under construction; nearly always one.
  std::vector<std::pair<event::LoopCore*, std::unique_ptr<EventBatch>>> open;
  std::vector<LoopPtr> loops;
  const std::lock_guard lock(mutex_);
  for (const InEvent& event : received.events) {
    const Buffer& owner = received.owners[event.owner];
    const Route* const route = find(*event.topic);
    if (route == nullptr) {
      hold(event, owner, from_node, false);
      continue;
    }
    if (keeps()) hold(event, owner, from_node, true);
    for (const Sink& sink : route->sinks) {
      auto found = std::ranges::find_if(
          open, [&](const auto& item) { return item.first == sink.loop.get(); });
      if (found == open.end()) {
        open.emplace_back(sink.loop.get(), std::make_unique<EventBatch>(from_node, gauge, trace_));
        loops.push_back(sink.loop);
        found = std::prev(open.end());
        found->second->reserve(received.events.size());
      }
      found->second->add(event, owner, sink.event);
    }
  }
  for (std::size_t i = 0; i < open.size(); ++i) {
    open[i].second->count_bytes();
    if (loops[i]->post(std::move(open[i].second))) idle.push_back(loops[i]);
  }
}

namespace {

class LocalBatch final : public event::Batch {
 public:
  LocalBatch(std::shared_ptr<const std::string> name, Payload payload, int self)
      : name_(std::move(name)), payload_(std::move(payload)), self_(self) {}
  void deliver(event::Dispatcher& sink) noexcept override {
    sink.dispatch({*name_, payload_.view(), self_, 0});
  }

 private:
  const std::shared_ptr<const std::string> name_;
  const Payload payload_;
  const int self_;
};

}  // namespace

void Routes::post_local(std::string_view topic, const Payload& payload, int self) {
  std::vector<Sink> sinks;
  {
    const std::lock_guard lock(mutex_);
    const auto found = routes_.find(std::string(topic));
    if (found != routes_.end()) sinks = found->second.sinks;
  }
  for (const Sink& sink : sinks) {
    if (sink.loop->post(std::make_unique<LocalBatch>(sink.event, payload, self))) sink.loop->wake();
  }
}

std::uint64_t Routes::unlistened() const {
  const std::lock_guard lock(mutex_);
  return unlistened_ + unheard_->load();
}

std::uint64_t Routes::held() const {
  const std::lock_guard lock(mutex_);
  return held_events_;
}

}  // namespace divisi::mesh
