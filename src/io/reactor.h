// Reactor: time, deferred work and byte streams, as the link layer sees them.
//
// There are two: the real one over epoll (make_reactor), and the simulated one that tests drive
// from a seed (mesh/testing). Unless said otherwise a member may be called from any thread, and
// every callback runs on the loop, one at a time.
#pragma once

#include "base/status.h"
#include "io/address.h"

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <sys/uio.h>

namespace divisi::io {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

// A connected, non-blocking byte stream.
class Stream {
 public:
  virtual ~Stream() = default;

  // From now on `on_readable` runs when bytes (or the end, or an error) can be read, until it
  // returns false. Loop only.
  virtual void start_reading(std::function<bool()> on_readable) = 0;

  // `on_writable` runs once when write() can take bytes again. Loop only.
  virtual void wait_writable(std::function<void()> on_writable) = 0;

  // Bytes moved; 0 from read() is the end of the stream. Negative is -errno, -EAGAIN when
  // nothing can be moved now. read() on the loop only; write() by one thread at a time.
  virtual ssize_t read(std::span<const iovec> parts) = 0;
  virtual ssize_t write(std::span<const iovec> parts) = 0;

  // The peer sees the end of what was written; reading goes on. Loop only.
  virtual void shutdown_write() = 0;

  // No callback runs after this; a concurrent write() fails. Loop only.
  virtual void close() = 0;

  // Who is at the other end, "127.0.0.1:41234"; empty where that has no meaning.
  virtual std::string peer() const { return {}; }

  // A peer that acknowledges nothing for so long is gone: reads and writes fail with ETIMEDOUT.
  // For streams over a network; the others know at once.
  virtual void set_dead_after(Duration) {}
};

class Listener {
 public:
  virtual ~Listener() = default;        // stops listening, removes the socket file
  virtual Address address() const = 0;  // with the port the kernel chose
};

// Cancels its timer when destroyed. Loop only.
class Timer {
 public:
  virtual ~Timer() = default;
};

class Reactor {
 public:
  virtual ~Reactor() = default;

  virtual TimePoint now() const = 0;
  virtual void post(std::function<void()> work) = 0;

  // Runs `work` on the loop and returns when it is done. Not from the loop itself.
  virtual void run_on_loop(std::function<void()> work) = 0;

  // Loop only.
  [[nodiscard]] virtual std::unique_ptr<Timer> after(Duration delay,
                                                     std::function<void()> work) = 0;

  virtual Result<std::unique_ptr<Listener>> listen(
      const Address& where, std::function<void(std::shared_ptr<Stream>)> on_accept) = 0;

  // Loop only. `on_done` runs once unless the returned handle is destroyed first.
  [[nodiscard]] virtual std::unique_ptr<Timer> dial(
      const Address& where, Duration timeout,
      std::function<void(Result<std::shared_ptr<Stream>>)> on_done) = 0;

  // Loop only. Runs `work` on the calling thread once the current turn is over, after another
  // thread has taken the loop; where no other thread is free it runs `otherwise` instead. This is
  // how a received batch reaches its callback with a single wake-up and the loop never waits. With
  // `heavy` the other thread takes the loop at once, otherwise when the work turns out to last.
  virtual void hand_off(std::function<void()> work, std::function<void()> otherwise,
                        bool heavy) = 0;
};

// The real loop with its threads, started; the destructor stops and joins them.
std::unique_ptr<Reactor> make_reactor();

}  // namespace divisi::io
