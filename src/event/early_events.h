// EarlyEvents: answers that were faster than the wait for them.
//
//   task.emit("ping", only_remote); task.wait_for("pong");
//
// The pong may be here before the wait is. So remote events that nobody listens to are kept for a
// while if their name has been waited for before, and a wait takes one that came after the calling
// thread's last emit. Not older ones: a wait is for what comes next.
#pragma once

#include "divisi/payload.h"
#include "event/remote_event.h"
#include "event/unheard.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

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

 private:
  struct Kept {  // NOLINT(cppcoreguidelines-pro-type-member-init): made whole
    std::uint64_t number;
    Payload payload;
    std::size_t size;
  };

  void note_emit_slowly() const noexcept;

  Unheard& unheard_;
  const std::uint64_t id_;            // no other one ever had it, as it may have had the address
  std::atomic<bool> is_used_{false};  // somebody has waited
  std::atomic<std::uint64_t> numbers_{0};

  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::string, std::deque<Kept>, std::less<>> by_name_;  // names that were waited for
  std::size_t bytes_ = 0;
};

}  // namespace divisi::event
