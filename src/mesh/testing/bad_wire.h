// BadWire: stands between two nodes and spoils their connections, for as many as come.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <poll.h>
#include <string>
#include <thread>
#include <vector>

namespace divisi::mesh::testing {

class BadWire {
 public:
  // Listens beside `target` (tcp://127.0.0.1:PORT or ipc://PATH) and connects to it for each
  // client.
  explicit BadWire(std::string target);
  ~BadWire();
  BadWire(const BadWire&) = delete;
  BadWire& operator=(const BadWire&) = delete;

  const std::string& address() const { return address_; }

  // Closes all connections after so many more bytes, at exactly that byte, again and again; 0: no
  // longer.
  void cut_every(std::size_t bytes) {
    set([&] { cut_every_ = bytes; });
  }
  // Closes all connections now.
  void cut() {
    set([&] { cut_requested_ = true; });
  }
  // Takes no bytes, as a receiver that is stopped.
  void stall(bool on) {
    set([&] { stalled_ = on; });
  }
  // Takes all bytes and passes none on, also no end of a connection: a half-open one.
  void swallow(bool on) {
    set([&] { swallows_ = on; });
  }
  // What the dialling side sends arrives this much later than what it is sent.
  void delay_forward(std::chrono::milliseconds delay) {
    set([&] { delay_ = delay.count(); });
  }

  std::uint64_t cuts() const { return cuts_; }
  std::uint64_t swallowed() const { return swallowed_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Parcel {
    Clock::time_point due;
    std::vector<char> bytes;
    std::size_t written = 0;
  };
  struct Pair {
    int fds[2];                     // the dialling side, the target
    std::deque<Parcel> towards[2];  // waiting to be written to fds[i]
    bool ended = false;
  };

  template <class Change>
  void set(Change change) {
    change();
    wake();
  }
  void wake() const;
  void run();
  std::vector<pollfd> poll_all() const;
  void accept_one();
  void read(Pair& pair, int from);
  void write(Pair& pair, int to);
  void close_ended();
  void close_all();

  const std::string target_;
  std::string address_;
  int listener_ = -1;
  int event_ = -1;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> cut_requested_{false};
  std::atomic<bool> stalled_{false};
  std::atomic<bool> swallows_{false};
  std::atomic<std::size_t> cut_every_{0};
  std::atomic<std::int64_t> delay_{0};
  std::atomic<std::uint64_t> cuts_{0};
  std::atomic<std::uint64_t> swallowed_{0};
  // The thread's own.
  std::size_t passed_ = 0;
  bool cut_now_ = false;
  std::list<Pair> pairs_;
  std::thread thread_;
};

}  // namespace divisi::mesh::testing
