#include "event/reclaim.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <mutex>
#include <pthread.h>
#include <utility>
#include <vector>

namespace divisi::event {

namespace detail {

thread_local constinit ReaderSlot* reader_slot = nullptr;
std::atomic<std::uint64_t> epoch{1};
std::atomic<bool> anything_retired{false};

namespace {

struct Retired {
  std::uint64_t epoch;
  std::shared_ptr<const void> object;
};

struct Domain {
  std::mutex mutex;
  std::deque<ReaderSlot> slots;  // guarded by mutex; elements never move
  std::vector<Retired> retired;  // guarded by mutex
};

// Never destroyed: threads may still read while static objects are.
Domain& domain() {
  static auto* instance = new Domain;
  return *instance;
}

struct GiveBack {
  ReaderSlot* slot = nullptr;
  ~GiveBack() {
    if (slot == nullptr) return;
    reader_slot = nullptr;
    const std::lock_guard lock(domain().mutex);
    slot->taken = false;
  }
};

// Nobody ends the sections of threads that are not here.
void forget_other_readers() {
  for (ReaderSlot& slot : domain().slots) {
    if (&slot == reader_slot) continue;
    slot.since.store(0);
    slot.depth = 0;
    slot.taken = false;
  }
}

// The forking thread holds the mutex over the fork: the child finds the lists whole. Before main,
// so that handlers of those who retire under a mutex of their own come first.
[[gnu::constructor(500)]] void hold_over_fork() {
  domain();
  ::pthread_atfork([] { domain().mutex.lock(); }, [] { domain().mutex.unlock(); },
                   [] {
                     forget_other_readers();
                     domain().mutex.unlock();
                   });
}

}  // namespace

ReaderSlot& register_reader() {
  static thread_local GiveBack give_back;
  Domain& all = domain();
  const std::lock_guard lock(all.mutex);
  auto free = std::ranges::find(all.slots, false, &ReaderSlot::taken);
  ReaderSlot& slot = free != all.slots.end() ? *free : all.slots.emplace_back();
  slot.taken = true;
  reader_slot = &slot;
  give_back.slot = &slot;
  return slot;
}

}  // namespace detail

void retire(std::shared_ptr<const void> object) {
  detail::Domain& all = detail::domain();
  const std::lock_guard lock(all.mutex);
  // Readers that announced an older epoch may hold the object.
  const std::uint64_t now = detail::epoch.fetch_add(1) + 1;
  all.retired.push_back({now, std::move(object)});
  detail::anything_retired.store(true);
}

void reclaim() noexcept {
  std::vector<detail::Retired> free;
  detail::Domain& all = detail::domain();
  {
    const std::lock_guard lock(all.mutex);
    std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();
    for (const detail::ReaderSlot& slot : all.slots) {
      if (const std::uint64_t since = slot.since.load(); since != 0) {
        oldest = std::min(oldest, since);
      }
    }
    const auto unreachable = std::ranges::partition(
        all.retired, [&](const detail::Retired& item) { return item.epoch > oldest; });
    free.assign(std::make_move_iterator(unreachable.begin()),
                std::make_move_iterator(unreachable.end()));
    all.retired.erase(unreachable.begin(), unreachable.end());
    detail::anything_retired.store(!all.retired.empty());
  }
}

}  // namespace divisi::event
