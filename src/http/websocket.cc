#include "http/websocket.h"

#include "base/log.h"
#include "http/websocket_frame.h"
#include "http/while_alive.h"
#include "http/wire.h"
#include "io/crypto.h"

#include <array>
#include <utility>

namespace divisi::http {

namespace {

// How long the other side may take to answer our goodbye.
constexpr auto kCloseTimeout = std::chrono::seconds(5);

class WireSocket final : public WebSocket, public std::enable_shared_from_this<WireSocket> {
 public:
  WireSocket(io::Reactor& reactor, Role role, std::shared_ptr<io::Stream> stream, std::string rest,
             Handlers handlers, Options options)
      : reactor_(reactor),
        role_(role),
        handlers_(std::move(handlers)),
        options_(options),
        wire_(Wire::make(reactor, std::move(stream))),
        reader_(role == Role::kServer, options.max_message_bytes),
        input_(std::move(rest)) {}

  void start() {
    wire_->set_user(while_alive(weak_from_this(), &WireSocket::on_input),
                    while_alive(weak_from_this(), &WireSocket::on_progress));
    ping_later();
    // What came with the handshake.
    reactor_.post(while_alive(weak_from_this(), &WireSocket::on_input));
  }

  void send(std::string message, bool binary) override {
    write(binary ? Opcode::kBinary : Opcode::kText, message);
  }

  std::size_t unsent() const override { return wire_->unsent(); }

  void close() override {
    if (over_ || said_goodbye_) return;
    say_goodbye(CloseCode::kNormal, "");
  }

  void stop() {
    over_ = true;
    timer_.reset();
    wire_->close();
  }

 private:
  // Masks keep a client's bytes from looking like another protocol to what stands in between.
  std::optional<std::array<char, 4>> mask() const {
    if (role_ == Role::kServer) return std::nullopt;
    std::array<char, 4> bytes{};
    io::fill_random(std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

  void write(Opcode opcode, std::string_view payload) {
    if (!over_ && !said_goodbye_) wire_->write(encode_frame(opcode, payload, mask()));
  }

  void say_goodbye(CloseCode code, std::string_view reason) {
    write(Opcode::kClose, encode_close(code, reason));
    said_goodbye_ = true;
    timer_ = reactor_.after(kCloseTimeout, [this] {
      end(goodbye_.ok() ? Status(Code::kTimeout, "WebSocket: the goodbye was not answered")
                        : goodbye_);
    });
  }

  void on_input() {
    const auto keep = shared_from_this();
    if (over_) return;
    const auto bytes = wire_->input();
    heard_ = heard_ || !bytes.empty();
    input_.append(bytes);
    wire_->consume(bytes.size());
    std::string_view left = input_;
    while (!over_) {
      auto message = reader_.next(left);
      if (!message) break;
      on_message(*std::move(message));
    }
    if (over_) return;
    input_.erase(0, input_.size() - left.size());
    if (const auto& failed = reader_.failed()) return on_failure(*failed);
    if (!wire_->ended()) return;
    if (wire_->error() != 0) {
      return end(make_status(Code::kUnavailable, "WebSocket: the connection broke: {}",
                             errno_text(wire_->error())));
    }
    end(got_goodbye_
            ? goodbye_
            : Status(Code::kUnavailable, "WebSocket: the connection ended without a goodbye"));
  }

  void on_message(FrameReader::Message message) {
    switch (message.opcode) {
      case Opcode::kPing: return write(Opcode::kPong, message.payload);
      case Opcode::kPong: return;  // being heard of is enough
      case Opcode::kClose: return on_goodbye(message);
      default:
        if (got_goodbye_) return;
        // A copy: the callback may let us go.
        if (const auto run = handlers_.on_message)
          run(std::move(message.payload), message.opcode == Opcode::kBinary);
    }
  }

  void on_goodbye(const FrameReader::Message& message) {
    got_goodbye_ = true;
    const bool normal = message.code == CloseCode::kNormal || message.code == CloseCode::kNoCode ||
                        static_cast<int>(message.code) == 1001;  // "going away"
    if (!normal) {
      goodbye_ = make_status(Code::kUnavailable, "WebSocket: closed with {}: {}",
                             static_cast<int>(message.code), log::printable(message.payload));
    }
    if (!said_goodbye_) say_goodbye(message.code, "");
    end_when_sent();
  }

  // Says what is wrong, and ends.
  void on_failure(const FrameReader::Failure& failed) {
    goodbye_ = make_status(Code::kUnavailable, "WebSocket: the other side sent {}", failed.text);
    input_.clear();
    wire_->set_reading(false);
    if (!said_goodbye_) say_goodbye(failed.code, failed.text);
    got_goodbye_ = true;
    end_when_sent();
  }

  void on_progress() {
    const auto keep = shared_from_this();
    if (wire_->broken() != 0 && !over_) {
      return end(make_status(Code::kUnavailable, "WebSocket: the connection broke: {}",
                             errno_text(wire_->broken())));
    }
    if (got_goodbye_ && said_goodbye_) end_when_sent();
    if (over_) return;
    if (const auto run = handlers_.on_progress) run();
  }

  void end_when_sent() {
    if (wire_->unsent() == 0) end(goodbye_);
  }

  void ping_later() {
    if (options_.ping_every <= io::Duration::zero()) return;
    timer_ = reactor_.after(options_.ping_every, [this] {
      const auto keep = shared_from_this();
      silent_ = std::exchange(heard_, false) ? 0 : silent_ + 1;
      if (silent_ >= 2) return end({Code::kTimeout, "WebSocket: the other side is silent"});
      write(Opcode::kPing, "");
      ping_later();
    });
  }

  void end(Status status) {
    if (over_) return;
    const auto keep = shared_from_this();
    stop();
    if (const auto run = handlers_.on_closed) run(std::move(status));
  }

  io::Reactor& reactor_;
  const Role role_;
  const Handlers handlers_;
  const Options options_;
  const std::shared_ptr<Wire> wire_;
  FrameReader reader_;
  std::string input_;
  std::unique_ptr<io::Timer> timer_;  // the next ping, or the wait for the goodbye
  Status goodbye_;                    // what on_closed will be told
  int silent_ = 0;                    // pings in a row that nothing followed
  bool heard_ = true;                 // anything since the last ping
  bool said_goodbye_ = false;
  bool got_goodbye_ = false;
  bool over_ = false;
};

// What users hold: its destructor ends the socket, whoever else is inside it at that moment.
class SocketHandle final : public WebSocket {
 public:
  explicit SocketHandle(std::shared_ptr<WireSocket> socket) : socket_(std::move(socket)) {}
  ~SocketHandle() override { socket_->stop(); }
  void send(std::string message, bool binary) override {
    socket_->send(std::move(message), binary);
  }
  std::size_t unsent() const override { return socket_->unsent(); }
  void close() override { socket_->close(); }

 private:
  const std::shared_ptr<WireSocket> socket_;
};

}  // namespace

std::unique_ptr<WebSocket> WebSocket::attach(io::Reactor& reactor, Role role,
                                             std::shared_ptr<io::Stream> stream, std::string rest,
                                             Handlers handlers, Options options) {
  auto socket = std::make_shared<WireSocket>(reactor, role, std::move(stream), std::move(rest),
                                             std::move(handlers), options);
  socket->start();
  return std::make_unique<SocketHandle>(std::move(socket));
}

}  // namespace divisi::http
