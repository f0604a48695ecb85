#include "event/loop_core.h"

#include "base/deadline.h"
#include "base/log.h"
#include "event/reclaim.h"

#include <algorithm>
#include <utility>

namespace divisi::event {

using divisi::detail::ArgRef;
using divisi::detail::Emission;
using divisi::detail::LocalCall;
using divisi::detail::StoredOps;

namespace {

constexpr int kMaxThreads = 64;
constexpr std::size_t kMaxEventName = 255;  // one byte on the wire

std::atomic<std::uint64_t> next_listener_id{1};

void check_name(std::string_view event) {
  if (event.empty() || event.size() > kMaxEventName) {
    throw UsageError(fmt::format("an event name has 1 to {} bytes, this one has {}", kMaxEventName,
                                 event.size()));
  }
}

thread_local int inline_depth = 0;  // listeners that run inside an emit of this thread

std::string error_text(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace

thread_local constinit std::uint64_t LoopCore::step_of_trigger = 0;

// Runs the events of a batch on the strand that delivers it.
class LoopCore::Sink final : public Dispatcher {
 public:
  Sink(LoopCore& core, HeldListeners& held) : core_(core), held_(held) {}

  void dispatch(const RemoteEvent& event) noexcept override {
    if (entry_ == nullptr || entry_->name != event.event) {
      // The entry stays while the strand runs (EventTable::forget_unused).
      const ReadSection reading;
      entry_ = core_.table_.find(event.event, EventTable::hash(event.event));
    }
    const ListenerList* list = entry_ != nullptr ? held_.hold(*entry_) : nullptr;
    if (list == nullptr) {
      if (keep_early(event)) return;
      if (entry_ != nullptr) list = held_.hold(*entry_);  // somebody has come meanwhile
      if (list == nullptr) return unheard(event);
    }
    const bool any_behind = core_.behind_count_.load() > 0;
    for (const auto& listener : list->items) {
      if (any_behind && core_.is_behind(listener->id)) continue;
      core_.run_one(*listener, *entry_, event.payload);
    }
  }

  void dispatch_to(ListenerId id, const RemoteEvent& event) noexcept override {
    {
      const ReadSection reading;
      entry_ = core_.table_.find(event.event, EventTable::hash(event.event));
    }
    const ListenerList* const list = entry_ != nullptr ? held_.hold(*entry_) : nullptr;
    if (list == nullptr) return;
    for (const auto& listener : list->items) {
      if (listener->id != id) continue;
      return core_.run_one(*listener, *entry_, event.payload);
    }
  }
  void caught_up(ListenerId id, std::string_view) noexcept override { core_.forget_behind(id); }

 private:
  // The table may have forgotten a name that is waited for now and then.
  bool keep_early(const RemoteEvent& event) {
    const ReadSection reading;
    return core_.early_.keep(event, [&] {
      if (entry_ == nullptr) entry_ = core_.table_.find(event.event, EventTable::hash(event.event));
      return entry_ != nullptr && entry_->listeners.load() != nullptr;
    });
  }
  void unheard(const RemoteEvent& event) {
    core_.unheard_.add(1);
    log::debug("no listener event={} from={}", event.event, event.from_node);
  }

  LoopCore& core_;
  HeldListeners& held_;
  EventEntry* entry_ = nullptr;
};

// One remote event on its way to the strand of its name, in a loop with several.
class LoopCore::ForwardedEvent final : public Batch {
 public:
  ForwardedEvent(const RemoteEvent& event, std::optional<ListenerId> listener)
      : name_(event.event),
        payload_(Payload::copy_of(event.payload)),
        from_node_(event.from_node),
        sequence_(event.sequence),
        listener_(listener) {}

  void deliver(Dispatcher& sink) noexcept override {
    const RemoteEvent event{name_, payload_.view(), from_node_, sequence_};
    if (listener_) return sink.dispatch_to(*listener_, event);
    sink.dispatch(event);
  }

 private:
  const std::string name_;
  const Payload payload_;
  const int from_node_;
  const std::uint64_t sequence_;
  const std::optional<ListenerId> listener_;
};

// That a listener has caught up, behind the events that were forwarded to it.
class LoopCore::ForwardedNews final : public Batch {
 public:
  ForwardedNews(ListenerId listener, std::string_view event) : listener_(listener), event_(event) {}
  void deliver(Dispatcher& sink) noexcept override { sink.caught_up(listener_, event_); }

 private:
  const ListenerId listener_;
  const std::string event_;
};

class LoopCore::Router final : public Dispatcher {
 public:
  explicit Router(LoopCore& core) : core_(core) {}

  void dispatch(const RemoteEvent& event) noexcept override {
    core_.strand_of(EventTable::hash(event.event))
        .post_and_wake(std::make_unique<ForwardedEvent>(event, std::nullopt));
  }
  void dispatch_to(ListenerId listener, const RemoteEvent& event) noexcept override {
    core_.strand_of(EventTable::hash(event.event))
        .post_and_wake(std::make_unique<ForwardedEvent>(event, listener));
  }
  void caught_up(ListenerId listener, std::string_view event) noexcept override {
    core_.strand_of(EventTable::hash(event))
        .post_and_wake(std::make_unique<ForwardedNews>(listener, event));
  }

 private:
  LoopCore& core_;
};

// A trigger of an event that had no entry when it was emitted, because something in the queue
// before it may register a listener. Rare, so it takes the slow way.
class LoopCore::UnknownTrigger final : public Batch {
 public:
  UnknownTrigger(LoopCore& core, std::string_view event, Emission& emission, void* stored)
      : core_(core), call_(event, emission, stored, 0) {}

  void deliver(Dispatcher&) noexcept override {
    EventEntry* const entry = core_.find(call_.event);
    HeldListeners held;
    if (entry != nullptr) {
      core_.run_stored(*entry, call_.ops, call_.stored, call_.kwargs.get(), held);
    }
  }

 private:
  LoopCore& core_;
  StoredCall call_;
};

// A trigger of a step: a wait may look at its arguments while other listeners run.
class LoopCore::ChainTrigger final : public Batch {
 public:
  ChainTrigger(LoopCore& core, std::shared_ptr<const StoredCall> call)
      : core_(core), call_(std::move(call)) {}

  void deliver(Dispatcher&) noexcept override {
    core_.chain_.keep(call_);
    EventEntry* const entry = core_.find(call_->event);
    HeldListeners held;
    const ListenerList* const list = entry != nullptr ? held.hold(*entry) : nullptr;
    if (list == nullptr) return;
    ArgRef refs[divisi::detail::kMaxArguments];
    call_->refer(refs);
    const LocalCall call{{refs, call_->ops.count}, call_->kwargs.get()};
    const std::uint64_t outer = std::exchange(step_of_trigger, call_->step);
    for (const auto& listener : list->items) {
      if (listener->runs_inline) continue;  // has run in emit()
      // What cannot be packed is of no use to a wait, and may have no copy.
      if (listener == list->items.back()) {
        for (ArgRef& ref : std::span(refs, call_->ops.count))
          ref.movable = ref.ops->pack == nullptr;
      }
      core_.run_one(*listener, *entry, call);
    }
    step_of_trigger = outer;
  }

 private:
  LoopCore& core_;
  const std::shared_ptr<const StoredCall> call_;
};

std::shared_ptr<LoopCore> LoopCore::create(std::string name, EventLoopOptions options) {
  if (options.threads < 1 || options.threads > kMaxThreads) {
    throw UsageError(fmt::format("event loop {}: {} threads asked for, 1 to {} are possible", name,
                                 options.threads, kMaxThreads));
  }
  return std::shared_ptr<LoopCore>(new LoopCore(std::move(name), options));
}

LoopCore::LoopCore(std::string name, EventLoopOptions options)
    : name_(std::move(name)), options_(options) {
  const int count = options_.threads == 1 ? 1 : options_.threads + 1;
  StrandOwner& owner = *this;
  for (int i = 0; i < count; ++i) {
    strands_.push_back(std::make_unique<Strand>(
        owner, name_, [this]() -> std::shared_ptr<void> { return weak_from_this().lock(); }));
  }
}

LoopCore::~LoopCore() = default;

ListenerId LoopCore::add(std::string_view event, std::unique_ptr<Listener> listener,
                         bool is_behind) {
  check_name(event);
  const auto id = ListenerId(next_listener_id.fetch_add(1));
  listener->id = id;
  table_.forget_unused([this](const std::function<void()>& forget) {
    std::vector<std::unique_lock<std::mutex>> locks;
    for (auto& strand : strands_) {
      locks.push_back(strand->lock());
      if (!strand->idle_locked()) return;
    }
    forget();
  });
  if (is_behind) {
    const std::lock_guard lock(behind_mutex_);
    behind_.insert(id);
    behind_count_.store(behind_.size());
  }
  table_.add(event, std::move(listener));
  return id;
}

bool LoopCore::is_behind(ListenerId id) {
  const std::lock_guard lock(behind_mutex_);
  return behind_.contains(id);
}

void LoopCore::forget_behind(ListenerId id) {
  const std::lock_guard lock(behind_mutex_);
  behind_.erase(id);
  behind_count_.store(behind_.size());
}

void LoopCore::remove(std::string_view pattern) {
  table_.remove(pattern, [](const Listener&) { return true; }, false);
}

void LoopCore::remove(std::string_view pattern, ListenerId id) {
  table_.remove(pattern, [id](const Listener& listener) { return listener.id == id; }, true);
}

void LoopCore::remove_function(std::string_view pattern, const void* function) {
  const auto same = [function](const Listener& listener) { return listener.is(function); };
  table_.remove(pattern, same, true);
}

// The entry stays while a strand runs (EventTable::forget_unused).
EventEntry* LoopCore::find(std::string_view event) const {
  const ReadSection reading;
  return table_.find(event, EventTable::hash(event));
}

bool LoopCore::listened(std::string_view event) const {
  const ReadSection reading;
  const EventEntry* entry = table_.find(event, EventTable::hash(event));
  return entry != nullptr && entry->listeners.load() != nullptr;
}

std::vector<std::string> LoopCore::events() const {
  return table_.events();
}

void LoopCore::set_interest_hook(InterestHook hook) {
  table_.set_interest_hook(std::move(hook));
}

Strand& LoopCore::strand_of(std::size_t hash) noexcept {
  if (strands_.size() == 1) return *strands_.front();
  // The upper half: the table's slots use the lower one.
  return *strands_[1 + (hash >> 32) % (strands_.size() - 1)];
}

void LoopCore::emit(std::string_view event, Emission& emission) {
  if (errors_.has_error() && raises_in_emit_.load() && !is_current() && inline_depth == 0)
      [[unlikely]]
    errors_.raise();
  if (stopped_.load(std::memory_order_relaxed)) return;
  const std::size_t hash = EventTable::hash(event);
  Strand& strand = strand_of(hash);
  const ReadSection reading;
  EventEntry* entry = table_.find(event, hash);
  const ListenerList* list = entry != nullptr ? entry->listeners.load() : nullptr;
  if (list != nullptr && list->any_inline) {
    run_inline(*entry, *list, emission, !list->any_queued);
  }
  if (list != nullptr && !list->any_queued) return;
  if (list == nullptr) {
    check_name(event);
    // Whoever could still register a listener before this trigger runs is in the queue.
    if (strand.idle()) return;
  }
  void* stored = emission.store();
  if (entry == nullptr || strand.post(*entry, emission, stored) == Strand::Posted::kStale) {
    strand.post_and_wake(std::make_unique<UnknownTrigger>(*this, event, emission, stored));
  }
}

void LoopCore::emit(std::string_view event, Emission& emission, std::uint64_t step) {
  errors_.raise();
  if (stopped_.load(std::memory_order_relaxed)) return;
  check_name(event);
  const std::size_t hash = EventTable::hash(event);
  {
    const ReadSection reading;
    EventEntry* const entry = table_.find(event, hash);
    const ListenerList* const list = entry != nullptr ? entry->listeners.load() : nullptr;
    if (list != nullptr && list->any_inline) run_inline(*entry, *list, emission, false);
  }
  auto call = std::make_shared<const StoredCall>(event, emission, emission.store(), step);
  strand_of(hash).post_and_wake(std::make_unique<ChainTrigger>(*this, std::move(call)));
}

void LoopCore::run_inline(EventEntry& entry, const ListenerList& list, Emission& emission,
                          bool may_move) {
  ArgRef refs[divisi::detail::kMaxArguments];
  const std::size_t count = emission.ops->count;
  emission.borrow(refs, false);
  const LocalCall call{{refs, count}, emission.kwargs.get()};
  ++inline_depth;  // run_one throws nothing
  for (const auto& listener : list.items) {
    if (!listener->runs_inline) continue;
    if (may_move && listener == list.items.back()) emission.borrow(refs, true);
    run_one(*listener, entry, call);
  }
  --inline_depth;
}

void LoopCore::run_trigger(Record& trigger, HeldListeners& held) noexcept {
  run_stored(*trigger.entry, *trigger.ops, trigger.stored(), trigger.kwargs.get(), held);
}

void LoopCore::run_stored(EventEntry& entry, const StoredOps& ops, void* stored,
                          const Kwargs* kwargs, HeldListeners& held) noexcept {
  const ListenerList* list = held.hold(entry);
  if (list == nullptr) {
    log::debug("no listener event={}", entry.name);
    return;
  }
  ArgRef refs[divisi::detail::kMaxArguments];
  ops.refer(stored, refs, false);
  const LocalCall call{{refs, ops.count}, kwargs};
  for (const auto& listener : list->items) {
    if (listener->runs_inline) continue;  // has run in emit()
    if (listener == list->items.back()) ops.refer(stored, refs, true);
    run_one(*listener, entry, call);
  }
}

void LoopCore::run_batch(Batch& batch, HeldListeners& held) noexcept {
  if (strands_.size() > 1 && strands_.front()->is_current()) {
    Router router(*this);
    batch.deliver(router);
  } else {
    Sink sink(*this, held);
    batch.deliver(sink);
  }
}

template <class Call>
void LoopCore::run_one(Listener& listener, EventEntry& entry, const Call& call) noexcept {
  if (listener.once) {
    if (listener.spent.exchange(true)) return;
    table_.remove(entry, listener);
  }
  try {
    listener.call(call);
  } catch (const PayloadError& error) {
    // One that an emit in the listener has thrown names its event already.
    if (std::string_view(error.what()).starts_with("event \"")) {
      return report(std::current_exception(), entry.name);
    }
    report(std::make_exception_ptr(
               PayloadError(fmt::format("event \"{}\": {}", entry.name, error.what()))),
           entry.name);
  } catch (...) {
    report(std::current_exception(), entry.name);
  }
}

bool LoopCore::post(std::unique_ptr<Batch> batch) {
  return strands_.front()->post(std::move(batch));
}

void LoopCore::drain_here(std::chrono::nanoseconds budget) {
  strands_.front()->drain_here(budget);
}

void LoopCore::wake() {
  strands_.front()->wake();
}

bool LoopCore::dispatch_inline(const RemoteEvent& event) {
  if (stopped_.load(std::memory_order_relaxed)) return false;
  const ReadSection reading;
  EventEntry* entry = table_.find(event.event, EventTable::hash(event.event));
  const ListenerList* list = entry != nullptr ? entry->listeners.load() : nullptr;
  if (list == nullptr || list->any_queued) return false;
  for (const auto& listener : list->items) run_one(*listener, *entry, event.payload);
  return true;
}

bool LoopCore::in_listener() noexcept {
  return inline_depth > 0 || on_loop_thread();
}

bool LoopCore::on_loop_thread() noexcept {
  return Strand::any_current();
}

bool LoopCore::is_current() const noexcept {
  return std::ranges::any_of(strands_, [](const auto& strand) { return strand->is_current(); });
}

void LoopCore::report(const std::exception_ptr& error, std::string_view event) noexcept {
  if (options_.on_error == OnError::kRaise && errors_.store(error)) {
    wake_waiters(WakeReason::kError);
    return;
  }
  log::error("listener failed loop={} event={} error={}", name_, event, error_text(error));
}

// Posted last: ends a loop that one of its own listeners has stopped.
class LoopCore::LastBatch final : public Batch {
 public:
  LastBatch(LoopCore& core, std::size_t strand, std::shared_ptr<std::atomic<std::size_t>> left)
      : core_(core), strand_(strand), left_(std::move(left)) {}

  void deliver(Dispatcher&) noexcept override {
    if (strand_ == 0) {
      // Only now have all batches been spread over the other strands.
      for (std::size_t i = 1; i < core_.strands_.size(); ++i) {
        core_.strands_[i]->post_and_wake(std::make_unique<LastBatch>(core_, i, left_));
        core_.strands_[i]->close();
      }
    }
    core_.strands_[strand_]->end();
    if (left_->fetch_sub(1) == 1) core_.table_.clear();
  }

 private:
  LoopCore& core_;
  const std::size_t strand_;
  const std::shared_ptr<std::atomic<std::size_t>> left_;
};

void LoopCore::stop_from_inside() {
  auto left = std::make_shared<std::atomic<std::size_t>>(strands_.size());
  strands_.front()->post_and_wake(std::make_unique<LastBatch>(*this, 0, std::move(left)));
  strands_.front()->close();
}

Status LoopCore::stop() {
  const bool is_first = !stopped_.exchange(true);
  if (is_first) wake_waiters(WakeReason::kStopped);
  if (is_current()) {
    if (is_first) stop_from_inside();
    return {};
  }
  // Also if another call was first: whoever stops a loop, or destroys it, may rely on that no
  // listener runs any more.
  const std::lock_guard lock(stop_mutex_);
  const auto deadline = deadline_after(options_.stop_timeout);
  bool quiet = true;
  for (auto& strand : strands_) {
    // In this order: the first strand still hands batches to the others.
    strand->close();
    quiet = strand->drain(deadline) && quiet;
  }
  table_.clear();
  early_.clear();
  chain_.clear();
  for (auto& strand : strands_) strand->end_and_join();
  if (quiet || !is_first) return {};
  return make_status(
      Code::kTimeout,
      "stopping event loop {}: listeners did not finish within {} ms; what was still "
      "queued is dropped",
      name_, std::chrono::duration_cast<std::chrono::milliseconds>(options_.stop_timeout).count());
}

}  // namespace divisi::event
