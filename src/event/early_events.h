// EarlyEvents: answers that were faster than the wait for them.
//
//   task.emit("ping", only_remote); task.wait_for("pong");
//
// The pong may be here before the wait is. So remote events that nobody listens to are kept for a
// while if their name has been waited for before, and a wait takes one that came after the calling
// thread's last emit. Not older ones: a wait is for what comes next. Names may be made up as one
// goes (wait_for("reply_17")), so only those waited for last are remembered.
#pragma once

#include "divisi/payload.h"
#include "event/remote_event.h"
#include "event/unheard.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace divisi::event {

class EarlyEvents {
 public:
  // Events that no wait took count as unheard.
  explicit EarlyEvents(Unheard& unheard);

  // The calling thread is about to emit.
  void note_emit() const noexcept {
    if (is_used_.load(std::memory_order_relaxed)) note_emit_slowly();
  }

  // Keeps an event that found no listener. `is_heard` looks again, under the lock that take() has
  // after its listener is registered: an event is heard or kept. False: heard, or of no interest.
  bool keep(const RemoteEvent& event, const std::function<bool()>& is_heard);

  // What came for this wait already.
  std::optional<Payload> take(std::string_view event);

  void clear();

  // Names that are remembered: those waited for last, at most kMostNames.
  static constexpr std::size_t kMostNames = 1024;
  std::size_t names() const;

 private:
  struct Kept {  // NOLINT(cppcoreguidelines-pro-type-member-init): made whole
    std::uint64_t number;
    Payload payload;
    std::size_t size;
  };
  struct Name {
    std::string name;
    std::deque<Kept> kept;
  };

  void note_emit_slowly() const noexcept;
  void forget_oldest();  // with mutex_ held

  Unheard& unheard_;
  const std::uint64_t id_;            // no other one ever had it, as it may have had the address
  std::atomic<bool> is_used_{false};  // somebody has waited
  std::atomic<std::uint64_t> numbers_{0};

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::list<Name> names_;  // the one waited for last comes first
  std::unordered_map<std::string_view, std::list<Name>::iterator> by_name_;  // keys lie in names_
  std::size_t bytes_ = 0;
};

}  // namespace divisi::event
