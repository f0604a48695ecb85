// EventLoop: named events inside a process, with typed arguments.
//
//   divisi::EventLoop loop("trainer");
//   loop.on("loss", [](int step, double loss) { print(step, loss); });
//   loop.emit("loss", 7, 0.25);               // returns at once; the listener runs on the loop
//   loop.stop();                              // runs what is queued, then ends
//
// Arguments are moved into the queue and reach the listeners without serialisation. A listener's
// parameters are deduced from the callable; where an argument has another type it is converted
// under the rules of coder.h (numbers keep their value, any text is a string, else through
// MessagePack). What cannot be converted is an error that names the event, the expected and
// the received type. A parameter of type Kwargs, as the last one, gets the keyword arguments;
// a callable that takes Args gets everything. The last listener may be moved into.
//
// Threads: every member may be called from any thread, also from inside a listener. Triggers of a
// loop run one after another in the order of their emit, on one thread at a time (threads > 1:
// in order for each event name). A listener is called by no more than one thread at a time,
// except an inline one, which runs at once in whatever thread emits.
//
// Errors: what a listener throws is stored; other listeners still run. The first error stays (later
// ones are logged) until it is thrown once, by the next emit (not inside a listener), wait_for or
// raise_stored, or taken by take_error. stop throws it after its work is done.
#pragma once

#include "divisi/detail/emission.h"
#include "divisi/detail/listener.h"
#include "divisi/error.h"
#include "divisi/export.h"
#include "divisi/payload.h"

#include <chrono>
#include <concepts>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace divisi {

namespace event {
class LoopCore;
}

// The time-out of a wait that has none.
inline constexpr std::chrono::nanoseconds kForever = std::chrono::nanoseconds::max();

// What happens to an error of a listener.
enum class OnError {
  kRaise,  // store it, see above
  kLog,    // log it and go on
};

// How a loop runs its listeners.
struct EventLoopOptions {
  int threads = 1;                     // 1 to 64
  OnError on_error = OnError::kRaise;  // default: the next emit throws it
  std::chrono::nanoseconds stop_timeout = std::chrono::seconds(30);  // for what is queued at stop
};

// How one listener is called.
struct ListenOptions {
  // Run at once in the emitting thread, for remote events on the I/O thread, before anything
  // that is queued. For listeners that are quick and never block.
  bool inline_ = false;  // NOLINT(readability-identifier-naming): `inline` is a keyword
};

// How a wait ends without its event.
struct WaitOptions {
  bool ignore_timeout = true;  // false: throw TimeoutError instead of returning nothing
  std::stop_token stop = {};   // a requested stop makes the wait return nothing
};

class DIVISI_API EventLoop {
 public:
  // The name is for logs and error texts. Throws UsageError for options out of range.
  explicit EventLoop(std::string name = "default", EventLoopOptions options = {});
  ~EventLoop();  // as stop_noexcept
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // The loop registered under this name; made on first use, forgotten by its stop.
  static std::shared_ptr<EventLoop> get_event_loop(const std::string& name = "default");

  // As given to the constructor.
  const std::string& name() const noexcept;

  // Appends a listener; the same one may be added twice and is then called twice. `event` is any
  // UTF-8 of 1 to 255 bytes.
  template <class F>
  ListenerId on(std::string_view event, F&& fn, ListenOptions options = {}) {
    return add(event, detail::make_listener(std::forward<F>(fn)), options, false);
  }

  // As on, for the first trigger only: called exactly once however many come at a time.
  template <class F>
  ListenerId once(std::string_view event, F&& fn, ListenOptions options = {}) {
    return add(event, detail::make_listener(std::forward<F>(fn)), options, true);
  }

  // `pattern` is a glob (* ? [a-z] [!a-z]) over the names that have listeners. Removes all of
  // them, or one registration, or for each name the first registration of a plain function.
  // What is not there is ignored. Triggers that are queued do not reach removed listeners.
  void off(std::string_view pattern);
  void off(std::string_view pattern, ListenerId id);
  template <class R, class... P>
  void off(std::string_view pattern, R (*function)(P...)) {
    off_function(pattern, reinterpret_cast<const void*>(function));
  }

  // Queues a trigger; keyword arguments are made by kw("name", value). Ignored once stopped.
  template <class... A>
  void emit(std::string_view event, A&&... args) {
    detail::with_emission([&](detail::Emission& emission) { emit_erased(event, emission); },
                          std::forward<A>(args)...);
  }

  // True while the event has at least one listener.
  bool listened(std::string_view event) const;
  // The events that have one, in alphabetical order.
  std::vector<std::string> events() const;

  // Blocks until the event is triggered and returns its arguments; nothing after the timeout, after
  // stop, or when options.stop asks for it. Throws a stored error, also one that comes while
  // it waits. Not from inside a listener of the same loop, which could never be called again.
  std::optional<Args> wait_for(std::string_view event, std::chrono::nanoseconds timeout = kForever,
                               WaitOptions options = {});

  // Refuses new triggers, runs the queued ones (up to stop_timeout) and removes all listeners, then
  // throws: TimeoutError if triggers had to be dropped, else a stored error nobody has seen. When
  // it returns no listener runs any more; only from inside a listener of the loop it returns at
  // once, and the loop ends after what is queued. May be called again.
  void stop();
  void stop_noexcept() noexcept;  // the same; logs instead of throwing

  bool has_error() const noexcept;   // whether an error is stored
  std::exception_ptr error() const;  // the stored error, or null
  std::exception_ptr take_error();   // and forgets it
  void raise_stored();               // throws it, if there is one, and forgets it

  // For the parts of the library built on top:
  const std::shared_ptr<event::LoopCore>& core() const noexcept { return core_; }
  ListenerId add(std::string_view event, std::unique_ptr<detail::Listener> listener,
                 ListenOptions options, bool once);
  void emit_erased(std::string_view event, detail::Emission& emission);

 private:
  void off_function(std::string_view pattern, const void* function);

  const std::shared_ptr<event::LoopCore> core_;
};

}  // namespace divisi
