#include "http/wire.h"

#include "base/status.h"

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

namespace divisi::http {

namespace {

// One read moves this much; a turn reads until the socket is empty, but lets others have their turn
// after kTurnBytes.
constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr std::size_t kTurnBytes = std::size_t{256} << 10;

// Pieces up to this size are copied behind each other, so that many small ones are few parts.
constexpr std::size_t kSmallPiece = 4096;
constexpr std::size_t kPartsPerWrite = 32;

// An idle connection keeps no more room than this.
constexpr std::size_t kKeptRoom = 4096;

}  // namespace

std::shared_ptr<Wire> Wire::make(io::Reactor& reactor, std::shared_ptr<io::Stream> stream) {
  std::shared_ptr<Wire> wire(new Wire(reactor, std::move(stream)));
  wire->set_reading(true);
  return wire;
}

Wire::~Wire() {
  if (stream_) stream_->close();
}

void Wire::set_user(std::function<void()> on_input, std::function<void()> on_progress) {
  on_input_ = std::move(on_input);
  on_progress_ = std::move(on_progress);
}

void Wire::consume(std::size_t bytes) {
  used_ += bytes;
  DIVISI_CHECK(used_ <= input_.size(), "only what was read is consumed");
  if (used_ < input_.size()) return;
  used_ = 0;
  if (input_.capacity() > kKeptRoom) {
    input_ = {};
  } else {
    input_.clear();
  }
}

void Wire::set_reading(bool wanted) {
  if (wanted == reading_ || ended_ || !stream_) return;
  reading_ = wanted;
  if (!wanted) return;  // on_readable() says so when it is next asked
  start_reading();
  // A stream whose peer vanished while nobody read has closed itself: look once in any case.
  reactor_.post([weak = weak_from_this()] {
    if (const auto self = weak.lock(); self && self->reading_) self->on_readable();
  });
}

void Wire::start_reading() {
  stream_->start_reading([weak = weak_from_this()] {
    const auto self = weak.lock();
    return self && self->on_readable();
  });
}

bool Wire::on_readable() {
  if (!reading_ || !stream_) return false;
  const std::size_t before = input_.size();
  read_some();
  if (input_.size() == before && !ended_) return true;
  if (ended_) reading_ = false;
  if (const auto run = on_input_) run();  // a copy: it may change the user
  return reading_ && stream_;
}

void Wire::read_some() {
  if (used_ > 0) {
    input_.erase(0, used_);
    used_ = 0;
  }
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): is read into
  std::array<char, kReadBytes> bytes;
  const iovec part{bytes.data(), bytes.size()};
  for (std::size_t total = 0; total < kTurnBytes;) {
    const ssize_t n = stream_->read({&part, 1});
    if (n == -EINTR) continue;
    if (n == -EAGAIN) return;
    if (n <= 0) {
      ended_ = true;
      error_ = static_cast<int>(-n);
      return;
    }
    input_.append(bytes.data(), static_cast<std::size_t>(n));
    total += static_cast<std::size_t>(n);
    // Less than asked for: the socket was empty, or what follows makes a turn of its own.
    if (static_cast<std::size_t>(n) < bytes.size()) return;
  }
}

void Wire::write(std::string bytes) {
  if (bytes.empty() || !stream_ || broken_ != 0) return;
  unsent_ += bytes.size();
  if (!output_.empty() && bytes.size() <= kSmallPiece && output_.back().size() < kReadBytes) {
    output_.back().append(bytes);
  } else {
    output_.push_back(std::move(bytes));
  }
  flush_later();
}

void Wire::flush_later() {
  if (flush_posted_ || waits_writable_) return;
  flush_posted_ = true;
  reactor_.post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->flush_posted_ = false;
    self->flush();
  });
}

void Wire::flush() {
  const std::size_t before = unsent_;
  while (stream_ && !output_.empty()) {
    std::vector<iovec> parts;
    for (auto& piece : output_) {
      const std::size_t skip = parts.empty() ? sent_ : 0;
      parts.push_back({piece.data() + skip, piece.size() - skip});
      if (parts.size() == kPartsPerWrite) break;
    }
    const ssize_t n = stream_->write(parts);
    if (n == -EINTR) continue;
    if (n == -EAGAIN) {
      waits_writable_ = true;
      stream_->wait_writable([weak = weak_from_this()] {
        const auto self = weak.lock();
        if (!self) return;
        self->waits_writable_ = false;
        self->flush();
      });
      break;
    }
    if (n < 0) {
      broken_ = static_cast<int>(-n);
      output_.clear();
      sent_ = unsent_ = 0;
      break;
    }
    auto left = static_cast<std::size_t>(n);
    unsent_ -= left;
    while (left > 0) {
      const std::size_t rest = output_.front().size() - sent_;
      if (left < rest) {
        sent_ += left;
        break;
      }
      left -= rest;
      sent_ = 0;
      output_.pop_front();
    }
  }
  if (shuts_ && stream_ && output_.empty()) stream_->shutdown_write();
  if (unsent_ == before && broken_ == 0) return;
  if (const auto run = on_progress_) run();
}

void Wire::shutdown_write() {
  shuts_ = true;
  flush_later();
}

void Wire::close() {
  set_user(nullptr, nullptr);
  reading_ = false;
  ended_ = true;
  output_.clear();
  sent_ = unsent_ = 0;
  if (const auto stream = std::exchange(stream_, nullptr)) stream->close();
}

std::shared_ptr<io::Stream> Wire::release(std::string& rest) {
  DIVISI_CHECK(stream_ && unsent_ == 0, "a wire is given away whole");
  set_user(nullptr, nullptr);
  rest = input();
  input_.clear();
  used_ = 0;
  reading_ = false;
  ended_ = true;
  stream_->start_reading(nullptr);
  return std::exchange(stream_, nullptr);
}

}  // namespace divisi::http
