// EventTable: which listeners an event name has. Looking up takes no lock: names lead to entries
// that stay where they are, and an entry's list of listeners is replaced whole.
#pragma once

#include "divisi/detail/listener.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace divisi::event {

using divisi::detail::Listener;

// Never changed once published.
struct ListenerList : std::enable_shared_from_this<ListenerList> {
  std::vector<std::shared_ptr<Listener>> items;  // in the order of registration, never empty
  bool any_inline = false;
  bool any_queued = false;
};

struct EventEntry {
  EventEntry(std::string event, std::size_t event_hash)
      : name(std::move(event)), hash(event_hash) {}

  const std::string name;
  const std::size_t hash;
  // Null: no listeners. Written under the table's mutex, read in a ReadSection (reclaim.h).
  std::atomic<const ListenerList*> listeners{nullptr};
  // The table forgot this entry. Guarded by the mutex of every strand of the loop together: one
  // is enough to read it.
  bool forgotten = false;

  std::shared_ptr<const ListenerList>
      owned;  // guarded by the table's mutex; what `listeners` shows
};

// The listeners that a running strand calls, held so that they outlive the call. Events of one name
// in a row share one look-up and one reference.
class HeldListeners {
 public:
  const ListenerList* hold(const EventEntry& entry) {
    // Same pointer, same list: ours is alive, so its address was not given to another.
    if (entry.listeners.load() != list_.get()) [[unlikely]]
      replace(entry);
    return list_.get();
  }
  void clear() noexcept { list_.reset(); }

 private:
  void replace(const EventEntry& entry);

  std::shared_ptr<const ListenerList> list_;
};

class EventTable {
 public:
  EventTable();
  ~EventTable();
  EventTable(const EventTable&) = delete;
  EventTable& operator=(const EventTable&) = delete;

  static std::size_t hash(std::string_view event) noexcept {
    return std::hash<std::string_view>()(event);
  }

  // Inside a ReadSection. Null: never registered.
  EventEntry* find(std::string_view event, std::size_t hash) const noexcept {
    const Slots& slots = *slots_.load();
    for (std::size_t i = hash & slots.mask;; i = (i + 1) & slots.mask) {
      EventEntry* entry = slots.entries[i].load(std::memory_order_acquire);
      if (entry == nullptr) return nullptr;
      if (entry->hash == hash && entry->name == event) return entry;
    }
  }

  void add(std::string_view event, std::shared_ptr<Listener> listener);

  // Removes the listeners for which `which` is true, at most one a name if `first_only`.
  using Predicate = std::function<bool(const Listener&)>;
  void remove(std::string_view pattern, const Predicate& which, bool first_only);
  void remove(EventEntry& entry, const Listener& listener);
  void remove_exact(std::string_view event, ListenerId listener);
  void clear();

  std::vector<std::string> events() const;
  // Of all entries, with listeners or without.
  std::size_t size() const;

  using InterestHook = std::function<void(std::string_view event, bool listened)>;
  void set_interest_hook(InterestHook hook);

  // Names come and go (a wait for "reply_17"): forgets those without listeners when they are the
  // most. `pause` must keep every strand of the loop idle and call its argument, or do nothing.
  using Pause = std::function<void(const std::function<void()>&)>;
  void forget_unused(const Pause& pause);

 private:
  // Open addressing, at most half full, insert-only: readers see an entry or not yet.
  struct Slots {
    explicit Slots(std::size_t size) : mask(size - 1), entries(size) {}
    const std::size_t mask;
    std::vector<std::atomic<EventEntry*>> entries;
  };

  EventEntry& entry_locked(std::string_view event, std::size_t hash);
  void rebuild_locked(std::size_t size);
  static void insert(Slots& slots, EventEntry& entry) noexcept;
  void replace_locked(EventEntry& entry, std::shared_ptr<const ListenerList> next);
  template <class Keep>
  void filter_locked(EventEntry& entry, Keep keep);

  std::atomic<const Slots*> slots_;  // read in a ReadSection; shows owned_slots_

  mutable std::mutex mutex_;
  // All below: guarded by mutex_.
  std::shared_ptr<Slots> owned_slots_;
  std::vector<std::shared_ptr<EventEntry>> entries_;
  std::size_t live_ = 0;  // entries with listeners
  InterestHook interest_hook_;
};

}  // namespace divisi::event
