// ChainEvents: local events of one iteration in async mode, for waits of the same iteration.
//
//   task.use([](Context&) { task.wait_for("greeting"); });
//   task.use([](Context&) { task.emit("greeting", "Hi"); });
//
// In async mode both run at once, so the emit may come before the wait. What a middleware emits is
// therefore kept until the end of the iteration, and a wait of an earlier middleware takes the
// oldest one that it has not had yet. Middleware are known by their step: a number that rises
// along the chain and from one iteration to the next; 0 is outside of the chain.
#pragma once

#include "divisi/detail/emission.h"
#include "divisi/detail/listener.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace divisi::event {

// The arguments of one emit, away from the queue.
class StoredCall {
 public:
  StoredCall(std::string_view event, divisi::detail::Emission& emission, void* stored,
             std::uint64_t step);
  ~StoredCall();
  StoredCall(const StoredCall&) = delete;
  StoredCall& operator=(const StoredCall&) = delete;

  // For any number of threads at once.
  void refer(divisi::detail::ArgRef* out) const noexcept;

  // Constant.
  const std::string event;
  const divisi::detail::StoredOps& ops;
  void* const stored;
  const std::unique_ptr<Kwargs> kwargs;
  const std::uint64_t step;  // of the emitter
};

class ChainEvents {
 public:
  static constexpr std::size_t kMostOfAName = 1024;
  static constexpr std::size_t kMostNames = 1024;

  // Before the listeners run: a wait that is registered takes it from here, too.
  void keep(std::shared_ptr<const StoredCall> call);

  // The oldest `event` of a later step that `step` has not had. Null if there is none, or if
  // `taken` is set, the mark of a wait that is over; it is set otherwise.
  std::shared_ptr<const StoredCall> take(std::string_view event, std::uint64_t step,
                                         std::atomic<bool>& taken);

  void clear();  // the iteration is over

 private:
  struct Kept {
    std::uint64_t number;
    std::shared_ptr<const StoredCall> call;
  };
  struct Name {
    std::deque<Kept> kept;
    std::map<std::uint64_t, std::uint64_t> had;  // by step: the last number
  };

  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::string, Name, std::less<>> names_;
  std::uint64_t numbers_ = 0;
};

}  // namespace divisi::event
