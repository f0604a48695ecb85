// WebSocket (RFC 6455) over an upgraded connection, either side.
//
//   request.headers = WebSocket::request_headers(key, {"v5.channel.k8s.io"});
//   on_head: check_answer(head, key); on_upgrade: socket_ = WebSocket::attach(reactor, ...)
//
// All on the loop. Pings are answered and sent by itself; messages arrive whole.
#pragma once

#include "base/status.h"
#include "http/message.h"
#include "io/reactor.h"

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::http {

class WebSocket {
 public:
  enum class Role { kClient, kServer };
  struct Handlers {
    std::function<void(std::string message, bool binary)> on_message{};
    // unsent() is less than before: a sender that waits may go on.
    std::function<void()> on_progress{};
    // Once, last: ok after a close handshake with a normal code.
    std::function<void(Status)> on_closed{};
  };
  struct Options {
    std::size_t max_message_bytes = std::size_t{16} << 20;
    io::Duration ping_every = std::chrono::seconds(20);  // no pong for two of them: lost
  };

  // The headers of a client's request (Upgrade, Connection, key, version, protocols), and the check
  // of the server's answer to them; with `protocols` it must have chosen one of them.
  static Headers request_headers(std::string& key, const std::vector<std::string>& protocols);
  static Status check_answer(const ResponseHead& head, std::string_view key,
                             const std::vector<std::string>& protocols = {});
  // The headers of a server's 101, or why the request is no WebSocket's.
  static Result<Headers> answer_headers(const Request& request, std::string_view protocol);

  static std::unique_ptr<WebSocket> attach(io::Reactor& reactor, Role role,
                                           std::shared_ptr<io::Stream> stream, std::string rest,
                                           Handlers handlers, Options options);
  virtual ~WebSocket() = default;  // closes at once, no callbacks; loop only
  virtual void send(std::string message, bool binary) = 0;
  virtual std::size_t unsent() const = 0;
  virtual void close() = 0;  // says goodbye, then on_closed
};

}  // namespace divisi::http
