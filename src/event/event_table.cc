#include "event/event_table.h"

#include "event/reclaim.h"

#include <algorithm>
#include <fnmatch.h>
#include <utility>

namespace divisi::event {

namespace {

constexpr std::size_t kFirstSize = 64;

// A backslash is an ordinary character, as in Python's fnmatch.
bool matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
}

std::shared_ptr<const ListenerList> make_list(std::vector<std::shared_ptr<Listener>> items) {
  if (items.empty()) return nullptr;
  auto list = std::make_shared<ListenerList>();
  for (const auto& item : items) (item->runs_inline ? list->any_inline : list->any_queued) = true;
  list->items = std::move(items);
  return list;
}

}  // namespace

void HeldListeners::replace(const EventEntry& entry) {
  list_.reset();
  {
    const ReadSection reading;
    const ListenerList* list = entry.listeners.load();
    if (list != nullptr) list_ = list->shared_from_this();
  }
}

EventTable::EventTable() : owned_slots_(std::make_shared<Slots>(kFirstSize)) {
  slots_.store(owned_slots_.get());
}

EventTable::~EventTable() = default;

EventEntry& EventTable::entry_locked(std::string_view event, std::size_t hash) {
  if (EventEntry* entry = find(event, hash)) return *entry;
  if (2 * (entries_.size() + 1) > owned_slots_->mask + 1) {
    rebuild_locked(2 * (owned_slots_->mask + 1));
  }
  entries_.push_back(std::make_shared<EventEntry>(std::string(event), hash));
  insert(*owned_slots_, *entries_.back());
  return *entries_.back();
}

void EventTable::insert(Slots& slots, EventEntry& entry) noexcept {
  std::size_t i = entry.hash & slots.mask;
  while (slots.entries[i].load(std::memory_order_relaxed) != nullptr) i = (i + 1) & slots.mask;
  slots.entries[i].store(&entry, std::memory_order_release);  // pairs with find()
}

void EventTable::rebuild_locked(std::size_t size) {
  auto next = std::make_shared<Slots>(size);
  for (const auto& entry : entries_) insert(*next, *entry);
  slots_.store(next.get());
  retire(std::exchange(owned_slots_, std::move(next)));
}

void EventTable::replace_locked(EventEntry& entry, std::shared_ptr<const ListenerList> next) {
  const bool was_listened = entry.owned != nullptr;
  const bool is_listened = next != nullptr;
  entry.listeners.store(next.get());
  if (was_listened) retire(std::move(entry.owned));
  entry.owned = std::move(next);
  if (was_listened == is_listened) return;
  live_ += is_listened ? 1 : std::size_t(-1);
  if (interest_hook_) interest_hook_(entry.name, is_listened);
}

void EventTable::add(std::string_view event, std::shared_ptr<Listener> listener) {
  {
    const std::lock_guard lock(mutex_);
    EventEntry& entry = entry_locked(event, hash(event));
    std::vector<std::shared_ptr<Listener>> items;
    if (entry.owned != nullptr) items = entry.owned->items;
    items.push_back(std::move(listener));
    replace_locked(entry, make_list(std::move(items)));
  }
  reclaim();
}

template <class Keep>
void EventTable::filter_locked(EventEntry& entry, Keep keep) {
  if (entry.owned == nullptr) return;
  std::vector<std::shared_ptr<Listener>> items;
  std::ranges::copy_if(entry.owned->items, std::back_inserter(items), keep);
  if (items.size() != entry.owned->items.size()) replace_locked(entry, make_list(std::move(items)));
}

void EventTable::remove(std::string_view pattern, const Predicate& which, bool first_only) {
  {
    const std::string glob(pattern);
    const std::lock_guard lock(mutex_);
    for (const auto& entry : entries_) {
      if (entry->owned == nullptr || !matches(glob, entry->name)) continue;
      bool removed = false;
      filter_locked(*entry, [&](const std::shared_ptr<Listener>& listener) {
        if ((first_only && removed) || !which(*listener)) return true;
        removed = true;
        return false;
      });
    }
  }
  reclaim();
}

void EventTable::remove(EventEntry& entry, const Listener& listener) {
  const std::lock_guard lock(mutex_);
  filter_locked(entry,
                [&](const std::shared_ptr<Listener>& item) { return item.get() != &listener; });
}

void EventTable::remove_exact(std::string_view event, ListenerId listener) {
  {
    const ReadSection reading;
    if (EventEntry* entry = find(event, hash(event))) {
      const std::lock_guard lock(mutex_);
      filter_locked(*entry,
                    [&](const std::shared_ptr<Listener>& item) { return item->id != listener; });
    }
  }
  reclaim();
}

void EventTable::clear() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& entry : entries_) {
      if (entry->owned != nullptr) replace_locked(*entry, nullptr);
    }
  }
  reclaim();
}

std::vector<std::string> EventTable::events() const {
  std::vector<std::string> names;
  const std::lock_guard lock(mutex_);
  for (const auto& entry : entries_) {
    if (entry->owned != nullptr) names.push_back(entry->name);
  }
  std::ranges::sort(names);
  return names;
}

std::size_t EventTable::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

void EventTable::set_interest_hook(InterestHook hook) {
  const std::lock_guard lock(mutex_);
  interest_hook_ = std::move(hook);
  if (!interest_hook_) return;
  for (const auto& entry : entries_) {
    if (entry->owned != nullptr) interest_hook_(entry->name, true);
  }
}

void EventTable::forget_unused(const Pause& pause) {
  {
    const std::lock_guard lock(mutex_);
    if (entries_.size() < kFirstSize || entries_.size() < 2 * live_) return;
    pause([this] {
      const auto unused = std::ranges::partition(
          entries_, [](const auto& entry) { return entry->owned != nullptr; });
      std::vector<std::shared_ptr<EventEntry>> forgotten(std::make_move_iterator(unused.begin()),
                                                         std::make_move_iterator(unused.end()));
      entries_.erase(unused.begin(), unused.end());
      std::size_t size = kFirstSize;
      while (size < 4 * (entries_.size() + 1)) size *= 2;
      rebuild_locked(size);
      for (auto& entry : forgotten) {
        entry->forgotten = true;
        retire(std::move(entry));  // out of reach only now
      }
    });
  }
  reclaim();
}

}  // namespace divisi::event
