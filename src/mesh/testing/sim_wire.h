// SimWire: one simulated connection, with everything that can go wrong on it.
#pragma once

#include "mesh/testing/sim_world.h"

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace divisi::mesh::testing {

class SimStream;

class SimWire : public std::enable_shared_from_this<SimWire> {
 public:
  // A wire and its two ends.
  static std::array<std::shared_ptr<SimStream>, 2> connect(SimWorld& world);

  explicit SimWire(SimWorld& world);

  // --- faults ---
  // Both ends see the end; with `reset` at once, what is on the way is lost.
  void cut(bool reset);
  // The same when `bytes` more have been written in one direction.
  void cut_after(std::size_t bytes);
  // `side` sees an error now. The other goes on reading what is on the way, and what it writes
  // disappears, until it sees the end after `delay`: a stale connection beside its successor.
  void fail_one_side(int side, io::Duration delay);
  // Nothing arrives any more, no end either: a half-open connection.
  void vanish();
  // Nothing arrives for this time.
  void stall(io::Duration time);

  bool dead() const { return dead_; }

 private:
  friend class SimStream;

  struct Chunk {
    io::TimePoint arrives;
    std::vector<std::byte> bytes;
    std::size_t read = 0;
  };
  // One direction; its index is the side that writes.
  struct Pipe {
    std::deque<Chunk> chunks;
    std::size_t bytes = 0;  // in chunks
    io::TimePoint last_arrival{};
    std::optional<io::TimePoint> end;  // when the reader sees the end
    bool reader_failed = false;        // the reader sees an error
    bool swallows = false;             // what is written disappears
  };

  void add_end(Pipe& pipe, io::Duration at_least);
  void poll_both();

  SimWorld& world_;
  const std::size_t capacity_;  // of each direction
  const std::size_t grain_;     // one call moves at most this much
  std::array<Pipe, 2> pipes_;
  std::array<std::weak_ptr<SimStream>, 2> ends_;
  std::optional<std::size_t> cut_after_;
  bool cut_resets_ = false;
  bool vanished_ = false;
  bool dead_ = false;  // had its fault
  io::TimePoint stalled_until_{};
};

class SimStream final : public io::Stream, public std::enable_shared_from_this<SimStream> {
 public:
  SimStream(std::shared_ptr<SimWire> wire, int side) : wire_(std::move(wire)), side_(side) {}
  ~SimStream() override { close(); }

  void start_reading(std::function<bool()> on_readable) override;
  void wait_writable(std::function<void()> on_writable) override;
  ssize_t read(std::span<const iovec> parts) override;
  ssize_t write(std::span<const iovec> parts) override;
  void shutdown_write() override;
  void close() override;

  // Runs the callbacks that have become possible, later.
  void poll();

 private:
  SimWire::Pipe& in() { return wire_->pipes_[static_cast<std::size_t>(1 - side_)]; }
  SimWire::Pipe& out() { return wire_->pipes_[static_cast<std::size_t>(side_)]; }
  std::optional<io::TimePoint> readable_at();
  bool writable();

  const std::shared_ptr<SimWire> wire_;
  const int side_;
  std::function<bool()> on_readable_;
  std::function<void()> on_writable_;
  std::optional<io::TimePoint> poll_at_;
  bool shut_ = false;
  bool closed_ = false;
};

}  // namespace divisi::mesh::testing
