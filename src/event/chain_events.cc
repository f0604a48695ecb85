#include "event/chain_events.h"

#include <algorithm>
#include <new>

namespace divisi::event {

StoredCall::StoredCall(std::string_view name, divisi::detail::Emission& emission, void* given,
                       std::uint64_t emitter)
    : event(name),
      ops(*emission.ops),
      stored(::operator new(ops.size)),
      kwargs(std::move(emission.kwargs)),
      step(emitter) {
  ops.move(stored, given);
}

StoredCall::~StoredCall() {
  ops.destroy(stored);
  ::operator delete(stored);
}

void StoredCall::refer(divisi::detail::ArgRef* out) const noexcept {
  ops.refer(stored, out, false);
}

void ChainEvents::keep(std::shared_ptr<const StoredCall> call) {
  Kept dropped{};  // its arguments may be the user's objects: not destroyed under the lock
  const std::lock_guard lock(mutex_);
  auto found = names_.find(call->event);
  if (found == names_.end()) {
    if (names_.size() >= kMostNames) return;
    found = names_.emplace(call->event, Name()).first;
  }
  std::deque<Kept>& kept = found->second.kept;
  kept.push_back({++numbers_, std::move(call)});
  if (kept.size() <= kMostOfAName) return;
  dropped = std::move(kept.front());
  kept.pop_front();
}

std::shared_ptr<const StoredCall> ChainEvents::take(std::string_view event, std::uint64_t step,
                                                    std::atomic<bool>& taken) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(event);
  if (found == names_.end()) return nullptr;
  Name& name = found->second;
  const auto had = name.had.find(step);
  const std::uint64_t last = had == name.had.end() ? 0 : had->second;
  const auto next = std::ranges::find_if(
      name.kept, [&](const Kept& kept) { return kept.number > last && kept.call->step > step; });
  if (next == name.kept.end() || taken.exchange(true)) return nullptr;
  name.had[step] = next->number;
  return next->call;
}

void ChainEvents::clear() {
  std::map<std::string, Name, std::less<>> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(names_);
}

}  // namespace divisi::event
