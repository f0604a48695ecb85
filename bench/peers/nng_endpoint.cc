// nng pair0, which blocks when full. (Its bus, which drops when full, cannot be compared by rate.)
#include "endpoint.h"

#include <chrono>
#include <cstring>
#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <stdexcept>
#include <thread>

namespace divisi::bench {
namespace {

constexpr int kQueueSlots = 128;

class Nng final : public ByteEndpoint {
 public:
  Nng(bool tcp, Side side, std::size_t size, const std::string& address) : ByteEndpoint(size) {
    check(nng_pair0_open(&socket_));
    check(nng_socket_set_size(socket_, NNG_OPT_RECVMAXSZ, 0));
    check(nng_socket_set_int(socket_, NNG_OPT_SENDBUF, kQueueSlots));
    check(nng_socket_set_int(socket_, NNG_OPT_RECVBUF, kQueueSlots));
    const auto url = tcp ? "tcp://127.0.0.1:" + std::to_string(tcp_port(address, 0))
                         : "ipc://" + ipc_path(address, "nng");
    if (side == Side::kServer) {
      check(nng_listen(socket_, url.c_str(), nullptr, 0));
      return;
    }
    for (int attempt = 0; attempt < 500; ++attempt) {
      if (nng_dial(socket_, url.c_str(), nullptr, 0) == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    fail("nng dial");
  }

  ~Nng() override {
    if (message_ != nullptr) nng_msg_free(message_);
    nng_close(socket_);
  }

 private:
  void send_bytes(Bytes message) override {
    nng_msg* out = nullptr;
    check(nng_msg_alloc(&out, message.size()));
    std::memcpy(nng_msg_body(out), message.data(), message.size());
    check(nng_sendmsg(socket_, out, 0));
  }

  Bytes receive_bytes() override {
    if (message_ != nullptr) nng_msg_free(message_);
    message_ = nullptr;
    const int result = nng_recvmsg(socket_, &message_, 0);
    if (result == NNG_ECLOSED) return {};
    check(result);
    return {static_cast<const std::byte*>(nng_msg_body(message_)), nng_msg_len(message_)};
  }

  static void check(int result) {
    if (result != 0) throw std::runtime_error(nng_strerror(result));
  }

  nng_socket socket_ = NNG_SOCKET_INITIALIZER;
  nng_msg* message_ = nullptr;
};

}  // namespace

std::unique_ptr<Endpoint> make_nng(bool tcp, Side side, std::size_t size,
                                   const std::string& address) {
  return std::make_unique<Nng>(tcp, side, size, address);
}

}  // namespace divisi::bench
