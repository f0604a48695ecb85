#include "event/early_events.h"

#include <utility>

namespace divisi::event {

namespace {

constexpr std::size_t kMostOfAName = 64;
constexpr std::size_t kMostBytes = std::size_t{16} << 20;

// Where the calling thread emitted last, and how much had come until then.
struct LastEmit {
  std::uint64_t where = 0;
  std::uint64_t number = 0;
};
thread_local constinit LastEmit last_emit;

std::atomic<std::uint64_t> last_id{0};

}  // namespace

EarlyEvents::EarlyEvents(Unheard& unheard) : unheard_(unheard), id_(last_id.fetch_add(1) + 1) {}

void EarlyEvents::note_emit_slowly() const noexcept {
  last_emit = {id_, numbers_.load()};
}

bool EarlyEvents::keep(const RemoteEvent& event, const std::function<bool()>& is_heard) {
  if (!is_used_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(mutex_);
  const auto found = by_name_.find(event.event);
  if (found == by_name_.end() || is_heard()) return false;
  std::size_t size = event.payload.body.size();
  for (const Buffer& buffer : event.payload.buffers) size += buffer.size();
  std::deque<Kept>& kept = found->second->kept;
  kept.push_back({numbers_.fetch_add(1) + 1, Payload::copy_of(event.payload), size});
  bytes_ += size;
  while (!kept.empty() && (kept.size() > kMostOfAName || bytes_ > kMostBytes)) {
    bytes_ -= kept.front().size;
    kept.pop_front();
    unheard_.add(1);
  }
  return true;
}

std::optional<Payload> EarlyEvents::take(std::string_view event) {
  const std::lock_guard lock(mutex_);
  is_used_.store(true);
  const auto found = by_name_.find(event);
  if (found == by_name_.end()) {
    names_.push_front({std::string(event), {}});
    by_name_.emplace(names_.front().name, names_.begin());
    if (names_.size() > kMostNames) forget_oldest();
    return std::nullopt;
  }
  names_.splice(names_.begin(), names_, found->second);
  std::deque<Kept>& kept = found->second->kept;
  std::optional<Payload> answer;
  while (!kept.empty() && !answer) {
    Kept& oldest = kept.front();
    bytes_ -= oldest.size;
    if (last_emit.where == id_ && oldest.number > last_emit.number) {
      answer = std::move(oldest.payload);
    } else {
      unheard_.add(1);
    }
    kept.pop_front();
  }
  return answer;
}

void EarlyEvents::forget_oldest() {
  const Name& oldest = names_.back();
  for (const Kept& kept : oldest.kept) bytes_ -= kept.size;
  unheard_.add(oldest.kept.size());
  by_name_.erase(oldest.name);
  names_.pop_back();
}

std::size_t EarlyEvents::names() const {
  const std::lock_guard lock(mutex_);
  return names_.size();
}

void EarlyEvents::clear() {
  const std::lock_guard lock(mutex_);
  for (const Name& name : names_) unheard_.add(name.kept.size());
  by_name_.clear();
  names_.clear();
  bytes_ = 0;
}

}  // namespace divisi::event
