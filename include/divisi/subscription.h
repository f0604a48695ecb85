// Subscription: a listener of the router, for as long as this object lives.
//
//   std::set<int> gone;
//   const divisi::Subscription left = router.on("peer_left", [&](int node) { gone.insert(node); });
//
// Declared after what the listener refers to: it goes first.
#pragma once

#include "divisi/detail/listener.h"

#include <memory>
#include <string>
#include <string_view>

namespace divisi {

class Parallel;

namespace detail {
class ListenerGate;
}

// Not DIVISI_API: g++ 12 takes one form of attributes here.
class [[nodiscard, gnu::visibility("default")]] Subscription {
 public:
  Subscription() noexcept;  // of nothing
  Subscription(Subscription&& other) noexcept;
  Subscription& operator=(Subscription&& other) noexcept;  // ends the one that was here
  ~Subscription();

  // Unregisters the listener, and waits for a call of it that runs on another thread: afterwards
  // nothing calls it. From inside of the listener it waits for nobody else's sake. Hold no lock
  // that the listener takes.
  void end() noexcept;

  // Whether end() has something to do.
  explicit operator bool() const noexcept { return gate_ != nullptr; }

 private:
  friend class Parallel;
  Subscription(std::shared_ptr<detail::ListenerGate> gate, std::string_view event, ListenerId id);

  std::shared_ptr<detail::ListenerGate> gate_;
  std::string event_;
  ListenerId id_{};
};

}  // namespace divisi
