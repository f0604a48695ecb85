// How events from other processes enter a loop.
#pragma once

#include "divisi/detail/listener.h"
#include "divisi/payload.h"

#include <cstdint>
#include <string_view>

namespace divisi::event {

struct RemoteEvent {
  std::string_view event;
  PayloadView payload;
  int from_node = -1;
  std::uint64_t sequence = 0;
};

class Dispatcher {
 public:
  // Calls the listeners of one event. A Batch may change and reuse one RemoteEvent for all its
  // events; events of one name in a row are looked up once.
  virtual void dispatch(const RemoteEvent& event) noexcept = 0;
  // The same for one listener of the event, which is behind the others (LoopCore::add).
  virtual void dispatch_to(ListenerId listener, const RemoteEvent& event) noexcept = 0;
  // That listener has got what was kept for it: it hears all that follows.
  virtual void caught_up(ListenerId listener, std::string_view event) noexcept = 0;

 protected:
  ~Dispatcher() = default;
};

// Some remote events that arrived together.
class Batch {
 public:
  virtual ~Batch() = default;
  // Called once, on the strand: calls sink.dispatch for each event, in order.
  virtual void deliver(Dispatcher& sink) noexcept = 0;
};

}  // namespace divisi::event
