#include "mesh/testing/sim_wire.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace divisi::mesh::testing {

namespace {

// From byte by byte (seldom: it is slow) to more than anybody sends.
std::size_t pick_size(Random& random, std::size_t least) {
  constexpr std::size_t kSizes[] = {7, 100, 1'500, 9'000, 64'000, 300'000, 4'000'000};
  return std::max(least,
                  random.chance(0.02) ? 1 : kSizes[random.between(0, std::size(kSizes) - 1)]);
}

}  // namespace

SimWire::SimWire(SimWorld& world)
    : world_(world),
      capacity_(pick_size(world.random(), 1'500)),
      grain_(pick_size(world.random(), world.weather.least_moved)) {}

std::array<std::shared_ptr<SimStream>, 2> SimWire::connect(SimWorld& world) {
  auto wire = std::make_shared<SimWire>(world);
  std::array<std::shared_ptr<SimStream>, 2> ends = {std::make_shared<SimStream>(wire, 0),
                                                    std::make_shared<SimStream>(wire, 1)};
  wire->ends_ = {ends[0], ends[1]};
  world.add_wire(wire);
  return ends;
}

void SimWire::add_end(Pipe& pipe, io::Duration at_least) {
  const auto when =
      std::max(world_.now() + at_least + world_.random().duration(world_.weather.longest_delay),
               pipe.last_arrival);
  if (!pipe.end) pipe.end = when;
}

void SimWire::poll_both() {
  for (const auto& end : ends_) {
    if (const auto stream = end.lock()) stream->poll();
  }
}

void SimWire::cut(bool reset) {
  dead_ = true;
  for (Pipe& pipe : pipes_) {
    pipe.swallows = true;
    if (reset) {
      pipe.chunks.clear();
      pipe.bytes = 0;
      pipe.reader_failed = true;
    } else {
      add_end(pipe, {});
    }
  }
  poll_both();
}

void SimWire::cut_after(std::size_t bytes) {
  dead_ = true;
  cut_after_ = bytes;
  cut_resets_ = world_.random().chance(0.5);
}

void SimWire::fail_one_side(int side, io::Duration delay) {
  dead_ = true;
  Pipe& towards = pipes_[static_cast<std::size_t>(1 - side)];
  towards.chunks.clear();
  towards.bytes = 0;
  towards.reader_failed = true;
  towards.swallows = true;
  add_end(pipes_[static_cast<std::size_t>(side)], delay);
  poll_both();
}

void SimWire::vanish() {
  dead_ = true;
  vanished_ = true;
}

void SimWire::stall(io::Duration time) {
  stalled_until_ = std::max(stalled_until_, world_.now() + time);
}

void SimStream::start_reading(std::function<bool()> on_readable) {
  on_readable_ = std::move(on_readable);
  poll();
}

void SimStream::wait_writable(std::function<void()> on_writable) {
  on_writable_ = std::move(on_writable);
  poll();
}

std::optional<io::TimePoint> SimStream::readable_at() {
  const SimWire::Pipe& pipe = in();
  if (pipe.reader_failed) return wire_->world_.now();
  if (wire_->vanished_) return std::nullopt;
  std::optional<io::TimePoint> when;
  if (!pipe.chunks.empty()) {
    when = pipe.chunks.front().arrives;
  } else if (pipe.end) {
    when = pipe.end;
  }
  if (when) when = std::max(*when, wire_->stalled_until_);
  return when;
}

bool SimStream::writable() {
  return out().swallows || in().reader_failed || out().bytes < wire_->capacity_;
}

void SimStream::poll() {
  if (closed_) return;
  std::optional<io::TimePoint> when;
  if (on_readable_) when = readable_at();
  if (on_writable_ && writable()) when = wire_->world_.now();
  if (!when || (poll_at_ && *poll_at_ <= *when)) return;
  poll_at_ = when;
  wire_->world_.at(*when, [weak = weak_from_this(), at = *when] {
    const auto self = weak.lock();
    if (!self || self->closed_ || self->poll_at_ != at) return;
    self->poll_at_.reset();
    if (self->on_writable_ && self->writable()) std::exchange(self->on_writable_, nullptr)();
    if (self->closed_ || !self->on_readable_) return self->poll();
    const auto ready = self->readable_at();
    if (ready && *ready <= self->wire_->world_.now()) {
      const auto run = self->on_readable_;
      if (!run()) self->on_readable_ = nullptr;
    }
    self->poll();
  });
}

ssize_t SimStream::read(std::span<const iovec> parts) {
  SimWire::Pipe& pipe = in();
  if (closed_) return -EBADF;
  if (pipe.reader_failed) return -ECONNRESET;
  const auto when = readable_at();
  const auto now = wire_->world_.now();
  if (!when || *when > now) return -EAGAIN;
  std::size_t left = static_cast<std::size_t>(wire_->world_.random().between(1, wire_->grain_));
  std::size_t moved = 0;
  for (const iovec& part : parts) {
    std::size_t filled = 0;
    while (filled < part.iov_len && left > 0 && !pipe.chunks.empty() &&
           pipe.chunks.front().arrives <= now) {
      SimWire::Chunk& chunk = pipe.chunks.front();
      const std::size_t take =
          std::min({part.iov_len - filled, left, chunk.bytes.size() - chunk.read});
      std::memcpy(static_cast<std::byte*>(part.iov_base) + filled, chunk.bytes.data() + chunk.read,
                  take);
      chunk.read += take;
      filled += take;
      left -= take;
      if (chunk.read == chunk.bytes.size()) pipe.chunks.pop_front();
    }
    moved += filled;
    if (filled < part.iov_len) break;
  }
  pipe.bytes -= moved;
  if (const auto writer = wire_->ends_[static_cast<std::size_t>(1 - side_)].lock()) writer->poll();
  return static_cast<ssize_t>(moved);  // nothing: the end
}

ssize_t SimStream::write(std::span<const iovec> parts) {
  SimWire::Pipe& pipe = out();
  SimWorld& world = wire_->world_;
  if (closed_ || shut_) return -EPIPE;
  if (in().reader_failed) return -ECONNRESET;
  std::size_t total = 0;
  for (const iovec& part : parts) total += part.iov_len;
  if (pipe.swallows) return static_cast<ssize_t>(total);
  if (pipe.bytes >= wire_->capacity_) return -EAGAIN;
  std::size_t n = std::min({total, wire_->capacity_ - pipe.bytes,
                            static_cast<std::size_t>(world.random().between(1, wire_->grain_))});
  // The fault comes with the last byte before the cut.
  const bool cuts = wire_->cut_after_ && *wire_->cut_after_ <= n;
  if (cuts) n = std::max<std::size_t>(1, *wire_->cut_after_);
  if (wire_->cut_after_) *wire_->cut_after_ -= std::min(*wire_->cut_after_, n);
  SimWire::Chunk chunk;
  chunk.arrives = std::max(world.now() + world.random().duration(world.weather.longest_delay),
                           pipe.last_arrival);
  pipe.last_arrival = chunk.arrives;
  for (const iovec& part : parts) {
    const auto* const at = static_cast<const std::byte*>(part.iov_base);
    const std::size_t take = std::min(part.iov_len, n - chunk.bytes.size());
    chunk.bytes.insert(chunk.bytes.end(), at, at + take);
  }
  pipe.bytes += n;
  pipe.chunks.push_back(std::move(chunk));
  if (const auto reader = wire_->ends_[static_cast<std::size_t>(1 - side_)].lock()) reader->poll();
  if (cuts) {
    wire_->cut_after_.reset();
    wire_->cut(wire_->cut_resets_);
  }
  return static_cast<ssize_t>(n);
}

void SimStream::shutdown_write() {
  if (std::exchange(shut_, true)) return;
  wire_->add_end(out(), {});
  wire_->poll_both();
}

void SimStream::close() {
  if (std::exchange(closed_, true)) return;
  on_readable_ = nullptr;
  on_writable_ = nullptr;
  SimWorld& world = wire_->world_;
  // As TCP does it when bytes were left unread, and sometimes anyway.
  if (!shut_ && world.random().chance(world.weather.resets)) {
    out().chunks.clear();
    out().bytes = 0;
    world.after(world.random().duration(world.weather.longest_delay), [wire = wire_, side = side_] {
      wire->pipes_[static_cast<std::size_t>(side)].reader_failed = true;
      wire->poll_both();
    });
  } else {
    wire_->add_end(out(), {});
  }
  in().chunks.clear();
  in().bytes = 0;
  in().swallows = true;
  wire_->poll_both();
}

}  // namespace divisi::mesh::testing
