// libzmq PUB/SUB over ipc. The publisher is an XPUB, so that it can wait for the subscriptions,
// and blocks at its high-water mark (XPUB_NODROP) instead of dropping.
#include "fanout.h"

#include <array>
#include <cstring>
#include <stdexcept>
#include <zmq.h>

namespace divisi::bench {
namespace {

constexpr std::size_t kNumberAt = 8;  // byte 0 is the topic that subscriptions are matched with

void check(int result) {
  if (result < 0) throw std::runtime_error(zmq_strerror(zmq_errno()));
}

// A context with one socket.
class ZmqSocket {
 public:
  explicit ZmqSocket(int type) : context_(zmq_ctx_new()), socket_(zmq_socket(context_, type)) {
    const int linger = 0;
    check(zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof linger));
  }
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;
  ~ZmqSocket() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  void* get() { return socket_; }

 private:
  void* context_;
  void* socket_;
};

class Hub final : public FanoutHub {
 public:
  explicit Hub(const std::string& address) : socket_(ZMQ_XPUB) {
    const int one = 1;
    check(zmq_setsockopt(socket_.get(), ZMQ_XPUB_NODROP, &one, sizeof one));
    // Every subscription is passed up, not only the first of its topic, so that they can be
    // counted.
    check(zmq_setsockopt(socket_.get(), ZMQ_XPUB_VERBOSE, &one, sizeof one));
    check(zmq_bind(socket_.get(), ("ipc://" + ipc_path(address, "fan")).c_str()));
    message_.fill(std::byte{0x5a});
    message_[0] = std::byte{'m'};
  }

  void wait_for_leaves(int count) override {
    std::array<char, 16> subscription;
    for (int i = 0; i < count; ++i) {
      check(zmq_recv(socket_.get(), subscription.data(), subscription.size(), 0));
    }
  }

  void send(std::uint64_t number) override {
    std::memcpy(message_.data() + kNumberAt, &number, sizeof number);
    check(zmq_send(socket_.get(), message_.data(), message_.size(), 0));
  }

 private:
  ZmqSocket socket_;
  std::array<std::byte, kFanoutBytes> message_;
};

class Leaf final : public FanoutLeaf {
 public:
  explicit Leaf(const std::string& address)
      : socket_(ZMQ_SUB), url_("ipc://" + ipc_path(address, "fan")) {}

  void listen(Sink sink) override {
    sink_ = std::move(sink);
    subscribe("m");
  }

  void run() override {
    std::array<std::byte, kFanoutBytes> message;
    for (;;) {
      check(zmq_recv(socket_.get(), message.data(), message.size(), 0));
      std::uint64_t number = 0;
      std::memcpy(&number, message.data() + kNumberAt, sizeof number);
      if (!sink_(number, message)) return;
    }
  }

  void decline() override { subscribe("x"); }

 private:
  void subscribe(const char* topic) {
    check(zmq_setsockopt(socket_.get(), ZMQ_SUBSCRIBE, topic, 1));
    check(zmq_connect(socket_.get(), url_.c_str()));
  }

  ZmqSocket socket_;
  std::string url_;
  Sink sink_;
};

}  // namespace

std::unique_ptr<FanoutHub> make_zmq_hub(const std::string& address) {
  return std::make_unique<Hub>(address);
}

std::unique_ptr<FanoutLeaf> make_zmq_leaf(const std::string& address) {
  return std::make_unique<Leaf>(address);
}

}  // namespace divisi::bench
