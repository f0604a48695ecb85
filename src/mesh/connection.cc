#include "mesh/connection.h"

#include <array>
#include <cerrno>
#include <utility>

namespace divisi::mesh {

namespace {

// Reads of one turn: enough to keep up with a fast peer, few enough to serve the others.
constexpr int kReadsPerTurn = 8;

constexpr auto kLinger = std::chrono::seconds(1);

std::string without_port(const std::string& peer) {
  return peer.substr(0, peer.rfind(':'));
}

}  // namespace

Connection::Connection(Node& node, std::shared_ptr<io::Stream> stream,
                       std::shared_ptr<Node::Dialer> dialer, std::uint64_t number)
    : node_(node),
      stream_(std::move(stream)),
      dialer_(std::move(dialer)),
      number_(number),
      opened_after_(node.last_attachment_),
      source_(without_port(stream_->peer())) {}

void Connection::start() {
  const auto role = dialled() ? Handshake::Role::kDialler : Handshake::Role::kAcceptor;
  handshake_ = std::make_unique<Handshake>(
      role, node_.options_.self, node_.options_.secret,
      [this](const Identity& peer) { return node_.admit(*this, peer); });
  deadline_ = node_.reactor_.after(node_.options_.handshake_timeout, [this] {
    end(make_status(Code::kTimeout, "the peer did not finish its greeting"));
  });
  stream_->start_reading([self = weak_from_this()] {
    const auto connection = self.lock();
    return connection && connection->on_readable();
  });
  send_greeting();
}

void Connection::close() {
  if (std::exchange(closed_, true)) return;
  deadline_.reset();
  stream_->close();
}

void Connection::linger() {
  if (closed_) return;
  lingering_ = true;
  stream_->shutdown_write();
  deadline_ = node_.reactor_.after(kLinger, [this] { end({}); });
}

void Connection::send_greeting() {
  auto bytes = handshake_->take_output();
  unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
  while (!unsent_.empty()) {
    const iovec part{unsent_.data(), unsent_.size()};
    const ssize_t n = stream_->write({&part, 1});
    if (n == -EAGAIN) {
      stream_->wait_writable([self = weak_from_this()] {
        if (const auto connection = self.lock(); connection && !connection->link_) {
          connection->send_greeting();
        }
      });
      return;
    }
    if (n <= 0) return;  // the read side will see why
    unsent_.erase(unsent_.begin(), unsent_.begin() + n);
  }
}

Status Connection::read_preamble(bool& complete) {
  std::array<std::byte, kPreambleBytes> bytes{};
  const iovec part{bytes.data(), kPreambleBytes - preamble_.size()};
  const ssize_t n = stream_->read({&part, 1});
  complete = false;
  if (n == -EAGAIN) return {};
  if (n == 0) return make_status(Code::kUnavailable, "the peer closed during the greeting");
  if (n < 0) return make_status(Code::kUnavailable, "{}", errno_text(static_cast<int>(-n)));
  preamble_.insert(preamble_.end(), bytes.begin(), bytes.begin() + n);
  complete = preamble_.size() == kPreambleBytes;
  return complete ? handshake_->on_preamble(preamble_) : Status();
}

bool Connection::on_readable() {
  const auto keep = shared_from_this();  // end() may drop the last other owner
  if (preamble_.size() < kPreambleBytes) {
    bool complete = false;
    if (const Status status = read_preamble(complete); !status.ok()) {
      send_greeting();
      if (handshake_->state() == Handshake::State::kFailed) {
        greeting_moved();
      } else {
        end(status);
      }
      return !closed_;
    }
    if (!complete) return true;
  }
  for (int i = 0; i < kReadsPerTurn && !closed_; ++i) {
    const auto parts = reader_.prepare();
    std::size_t capacity = 0;
    for (const iovec& part : parts) capacity += part.iov_len;
    const ssize_t n = stream_->read(parts);
    if (n == -EAGAIN) return true;
    if (n == 0) {
      end(make_status(Code::kUnavailable, "the peer closed the connection"));
      return false;
    }
    if (n < 0) {
      end(make_status(Code::kUnavailable, "{}", errno_text(static_cast<int>(-n))));
      return false;
    }
    if (lingering_) continue;
    auto bytes = static_cast<std::size_t>(n);
    if (!link_) {
      const Status status = reader_.commit(bytes, *handshake_);
      send_greeting();
      if (handshake_->state() != Handshake::State::kRunning) {
        greeting_moved();
      } else if (!status.ok()) {
        end(status);
      }
      bytes = 0;  // what is left belongs to the link
    }
    if (link_ && !closed_ && !lingering_) {
      const LinkPtr link = link_;
      Status status = reader_.commit(bytes, link->in);
      Status taken = node_.received(link);
      if (status.ok()) status = std::move(taken);
      if (!status.ok()) {
        if (status.code() == Code::kInvalid) node_.say_why(link, status.message());
        end(status);
        return false;
      }
    }
    if (static_cast<std::size_t>(n) < capacity) break;
  }
  return !closed_;
}

void Connection::greeting_moved() {
  deadline_.reset();
  if (handshake_->state() == Handshake::State::kDone) {
    node_.greeted(shared_from_this());
  } else {
    node_.refused(shared_from_this());
  }
}

void Connection::end(const Status& why) {
  if (closed_) return;
  const auto keep = shared_from_this();
  close();
  node_.connection_ended(keep, why);
}

}  // namespace divisi::mesh
