// Proxy: stands between two nodes and spoils their connections.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace divisi::mesh::testing {

class Proxy {
 public:
  // Listens on an address of the same kind as `target` and connects to it for each client.
  explicit Proxy(std::string target);
  ~Proxy();

  std::string address() const { return address_; }

  // Closes all connections.
  void cut();
  // Closes all connections each time this many bytes have passed; 0: no longer.
  void cut_every(std::size_t bytes);
  // Takes no bytes, as a receiver that is stopped.
  void stall(bool on);
  // Takes all bytes and passes none on, also no end: a half-open connection.
  void swallow(bool on);

  std::uint64_t cuts() const { return cuts_; }

 private:
  struct Pair {
    int fds[2];
    std::vector<std::byte> towards[2];  // waiting to be written to fds[i]
    bool ended = false;                 // one of them has
  };

  void run();
  void wake();
  void accept_one();
  void move(Pair& pair, int from);
  void flush(Pair& pair, int to);
  void close_all();

  const std::string target_;
  std::string address_;
  int listener_;
  int event_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> cut_now_{false};
  std::atomic<bool> stalled_{false};
  std::atomic<bool> swallows_{false};
  std::atomic<std::size_t> cut_every_{0};
  std::atomic<std::uint64_t> cuts_{0};
  // The thread's own.
  std::size_t passed_ = 0;
  std::list<Pair> pairs_;
  std::thread thread_;
};

}  // namespace divisi::mesh::testing
