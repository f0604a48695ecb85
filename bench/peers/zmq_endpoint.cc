// libzmq PUSH/PULL, C API: one socket pair for each direction.
//
// ZmqCopied hands a message over by zmq_send, as users do. ZmqShared sends the number in a part of
// its own and the body by zmq_msg_init_data over one block, libzmq's way to send large data that
// nobody writes to any more: the peer of a Buffer, which is shared as well.
#include "endpoint.h"

#include <cstring>
#include <stdexcept>
#include <zmq.h>

namespace divisi::bench {
namespace {

constexpr int kHighWater = 1000;  // libzmq's default, in messages

void check(int result) {
  if (result < 0) throw std::runtime_error(zmq_strerror(zmq_errno()));
}

class ZmqSockets {
 public:
  ZmqSockets(bool tcp, Side side, const std::string& address) : context_(zmq_ctx_new()) {
    out_ = open(ZMQ_PUSH);
    in_ = open(ZMQ_PULL);
    const bool server = side == Side::kServer;
    const auto down = url(tcp, address, "down", 0);  // server to client
    const auto up = url(tcp, address, "up", 1);      // client to server
    check(zmq_bind(out_, server ? down.c_str() : up.c_str()));
    check(zmq_connect(in_, server ? up.c_str() : down.c_str()));
    zmq_msg_init(&message_);
  }
  ZmqSockets(const ZmqSockets&) = delete;
  ZmqSockets& operator=(const ZmqSockets&) = delete;

  ~ZmqSockets() {
    zmq_msg_close(&message_);
    zmq_close(out_);
    zmq_close(in_);
    zmq_ctx_term(context_);
  }

  void* out() { return out_; }

  // The view stays valid until the next call.
  Bytes receive() {
    check(zmq_msg_recv(&message_, in_, 0));
    return {static_cast<const std::byte*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
  }

 private:
  static std::string url(bool tcp, const std::string& address, const char* suffix, int offset) {
    return tcp ? "tcp://127.0.0.1:" + std::to_string(tcp_port(address, offset))
               : "ipc://" + ipc_path(address, suffix);
  }

  void* open(int type) {
    void* socket = zmq_socket(context_, type);
    const int linger = 0;
    zmq_setsockopt(socket, ZMQ_SNDHWM, &kHighWater, sizeof kHighWater);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &kHighWater, sizeof kHighWater);
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
    return socket;
  }

  void* context_;
  void* out_ = nullptr;
  void* in_ = nullptr;
  zmq_msg_t message_;
};

class ZmqCopied final : public ByteEndpoint {
 public:
  ZmqCopied(bool tcp, Side side, std::size_t size, const std::string& address)
      : ByteEndpoint(size), sockets_(tcp, side, address) {}

 private:
  void send_bytes(Bytes message) override {
    check(zmq_send(sockets_.out(), message.data(), message.size(), 0));
  }
  Bytes receive_bytes() override { return sockets_.receive(); }

  ZmqSockets sockets_;
};

class ZmqShared final : public Endpoint {
 public:
  ZmqShared(bool tcp, Side side, std::size_t size, const std::string& address)
      : body_(size, std::byte{0x5a}), sockets_(tcp, side, address) {}

  void send(std::uint64_t number) override {
    check(zmq_send(sockets_.out(), &number, sizeof number, ZMQ_SNDMORE));
    zmq_msg_t shared;
    check(zmq_msg_init_data(&shared, body_.data(), body_.size(), [](void*, void*) {}, nullptr));
    const int sent = zmq_msg_send(&shared, sockets_.out(), 0);
    if (sent < 0) zmq_msg_close(&shared);
    check(sent);
  }

  void listen(Sink sink) override { sink_ = std::move(sink); }

  void run() override {
    for (;;) {
      std::uint64_t number = 0;
      std::memcpy(&number, sockets_.receive().data(), sizeof number);
      if (!sink_(number, sockets_.receive())) return;
    }
  }

 private:
  std::vector<std::byte> body_;
  ZmqSockets sockets_;
  Sink sink_;
};

}  // namespace

std::unique_ptr<Endpoint> make_zmq(bool tcp, bool copy, Side side, std::size_t size,
                                   const std::string& address) {
  if (copy) return std::make_unique<ZmqCopied>(tcp, side, size, address);
  return std::make_unique<ZmqShared>(tcp, side, size, address);
}

}  // namespace divisi::bench
