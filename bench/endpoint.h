// One side of a two-way channel between two processes.
//
// Ours and every peer implement this interface, so that one harness (bench_burst, bench_pingpong)
// drives all of them with the same loop. To put another transport beside these, add one .cc with
// a make_*() function and name it in open_endpoint().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::bench {

using Bytes = std::span<const std::byte>;

// Which side of the channel this process is. kServer binds, kClient connects.
enum class Side { kServer, kClient };

// Called on every message that arrives, in the place where the transport hands it out: for a
// peer the thread in run(), for ours the event loop's callback. False ends run().
using Sink = std::function<bool(std::uint64_t number, Bytes body)>;

class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // Hands over one message of the endpoint's size that carries `number`. May wait for room;
  // delivery may wait for flush(). Callable from inside the sink.
  virtual void send(std::uint64_t number) = 0;

  // Pushes out whatever send() held back.
  virtual void flush() {}

  // Chooses what becomes of arriving messages. Only while nothing is under way to this side.
  virtual void listen(Sink sink) = 0;

  // Returns when the sink has said false. Throws when the channel ends before that.
  virtual void run() = 0;
};

// A transport that moves plain bytes and is read by calling it: every peer. The number is the
// first eight bytes of the message.
class ByteEndpoint : public Endpoint {
 public:
  explicit ByteEndpoint(std::size_t size);
  void send(std::uint64_t number) final;
  void listen(Sink sink) final { sink_ = std::move(sink); }
  void run() final;

 private:
  virtual void send_bytes(Bytes message) = 0;

  // Blocks for the next message. The view stays valid until the next call; empty means closed.
  virtual Bytes receive_bytes() = 0;

  std::vector<std::byte> message_;
  Sink sink_;
};

// `address` is unique to the run; each transport derives its path or port from it. Throws
// std::runtime_error for an unknown `transport`.
std::unique_ptr<Endpoint> open_endpoint(const std::string& transport, Side side, std::size_t size,
                                        const std::string& address);

// The names open_endpoint() knows, for the usage text.
std::vector<std::string> transports();

std::unique_ptr<Endpoint> make_ours(bool tcp, Side side, std::size_t size,
                                    const std::string& address);
std::unique_ptr<Endpoint> make_raw_socket(bool tcp, bool batch, Side side, std::size_t size,
                                          const std::string& address);
std::unique_ptr<Endpoint> make_zmq(bool tcp, bool copy, Side side, std::size_t size,
                                   const std::string& address);
std::unique_ptr<Endpoint> make_nng(bool tcp, Side side, std::size_t size,
                                   const std::string& address);

std::string ipc_path(const std::string& address, std::string_view suffix);
int tcp_port(const std::string& address, int offset);

// Throws std::runtime_error with the text of errno, if errno is set.
[[noreturn]] void fail(const std::string& what);

// Reads one byte of every cache line: a message counts as received when its reader could have
// used all of it.
void touch(Bytes body);

}  // namespace divisi::bench
