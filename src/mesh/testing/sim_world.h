// SimWorld: time, chance and a network inside one thread, all from a seed.
//
// Nothing waits for the real clock: run_for() takes the next piece of work and moves the clock to
// it. The same seed gives the same run.
#pragma once

#include "io/reactor.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace divisi::mesh::testing {

class SimWire;

// SplitMix64: small, good enough, the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  // From `low` to `high`, both included.
  std::uint64_t between(std::uint64_t low, std::uint64_t high);
  bool chance(double probability);
  io::Duration duration(io::Duration longest);

 private:
  std::uint64_t state_;
};

class SimWorld {
 public:
  explicit SimWorld(std::uint64_t seed) : random_(seed) {}

  Random& random() { return random_; }
  io::TimePoint now() const { return now_; }

  // Any thread: a callback that moved to its loop's own thread may still post.
  void at(io::TimePoint when, std::function<void()> work);
  void after(io::Duration delay, std::function<void()> work) { at(now_ + delay, std::move(work)); }

  // Runs what is due in this time, then stands at its end.
  void run_for(io::Duration time);

  // How the network behaves; the tests change it as they go.
  struct Weather {
    io::Duration longest_delay = std::chrono::milliseconds(2);
    std::size_t least_moved = 1;  // by a read or write; large messages in small bites take long
    double refused_dials = 0;
    double resets = 0.3;  // closes that lose what is on the way
  };
  Weather weather;

  // --- used by SimReactor ---
  using OnAccept = std::function<void(std::shared_ptr<io::Stream>)>;
  std::map<std::string, OnAccept> listeners;
  void add_wire(const std::shared_ptr<SimWire>& wire) { wires_.push_back(wire); }

  // The connections that somebody still holds.
  std::vector<std::shared_ptr<SimWire>> wires();

 private:
  Random random_;
  io::TimePoint now_{std::chrono::seconds(1'000)};
  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::pair<io::TimePoint, std::uint64_t>, std::function<void()>> due_;
  std::uint64_t next_ = 0;
  // The simulation's thread only.
  std::vector<std::weak_ptr<SimWire>> wires_;
};

}  // namespace divisi::mesh::testing
