// HTTP/1.1 client on the loop: a pool of kept connections to one server.
//
//   DIVISI_TRY(auto url, Url::parse("https://10.0.0.1:6443"));
//   auto client = Client::make(reactor, {.server = url, .tls = trust});
//   call_ = client->send({.method = "GET", .target = "/version"}, {}, handler);
//
// All members on the loop only. Calls run side by side, one connection each, at most
// `max_connections`; the rest wait in order. A request that fails on a kept connection before any
// byte of its answer is sent once more on a new connection if its method is idempotent (the server
// may have closed the kept one). An error names the method, the server and the target. Bodies in
// gzip are asked for and decoded.
#pragma once

#include "base/status.h"
#include "http/message.h"
#include "io/reactor.h"
#include "io/tls.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace divisi::http {

struct Url {
  bool tls = false;    // https
  std::string host{};  // without brackets
  std::uint16_t port = 0;
  std::string path{};  // in front of every target; without a '/' at its end; "" for the root
  std::string user{};  // of a proxy's URL: "user:password", decoded; never printed
  static Result<Url> parse(std::string_view text);
  std::string host_header() const;  // with brackets and port where they belong
  std::string authority() const;    // host:port, always
  std::string origin() const;       // "https://host:port", without path and user
};

struct ClientOptions {
  Url server{};
  // For https. Asked for each new connection, so that rotated certificates are picked up.
  std::function<Result<std::shared_ptr<const io::TlsContext>>()> tls{};
  std::string server_name{};   // to verify instead of the host
  std::optional<Url> proxy{};  // http proxy; https goes through it with CONNECT
  // Where the server listens, if not at its host and port: a Unix socket.
  std::optional<io::Address> place{};
  std::size_t max_connections = 64;
  io::Duration connect_timeout = std::chrono::seconds(10);  // name, TCP, proxy and TLS together
  io::Duration keep_alive = std::chrono::seconds(60);       // an unused connection is closed then
  // A connection whose peer acknowledges nothing for so long is dead (TCP_USER_TIMEOUT, keepalive).
  io::Duration dead_after = std::chrono::seconds(30);
};

struct CallOptions {
  io::Duration deadline = std::chrono::seconds(30);  // from send() to the last byte; 0: none
  io::Duration idle_timeout{0};  // 0: none. Longest silence of the server once the call is sent
  Limits limits{};
  bool upgrade = false;  // ask for `Upgrade`: on 101 the stream is given to on_upgrade
};

// What becomes of a call. All on the loop; after on_done nothing more.
class ResponseHandler {
 public:
  virtual ~ResponseHandler() = default;
  virtual void on_head(ResponseHead head) = 0;
  // A piece of the body, decoded (chunks, gzip); what arrived in one turn of the loop comes as one
  // piece. False ends the call (on_done(kCancelled) follows).
  virtual bool on_body(std::string_view piece) = 0;
  // The connection is the caller's from here; `rest` was read beyond the head. on_done follows.
  virtual void on_upgrade(std::shared_ptr<io::Stream> stream, std::string rest);
  // Once, last. Ok when the body was complete.
  virtual void on_done(Status status) = 0;
};

// Destroying it cancels the call: no callback afterwards.
class Call {
 public:
  virtual ~Call() = default;
  // While paused nothing is read, so the server is held back.
  virtual void pause() = 0;
  virtual void resume() = 0;
  // A body in pieces (the request had "Transfer-Encoding: chunked" and no body).
  virtual void write(std::string piece) = 0;
  virtual void finish_body() = 0;
  virtual std::size_t unsent() const = 0;  // bytes that the server has not taken yet
};

class Client {
 public:
  static std::unique_ptr<Client> make(io::Reactor& reactor, ClientOptions options);
  virtual ~Client() = default;  // ends all calls, without callbacks

  [[nodiscard]] virtual std::unique_ptr<Call> send(Request request, CallOptions options,
                                                   std::shared_ptr<ResponseHandler> handler) = 0;
  // The same with the body collected, at most limits.max_body_bytes.
  [[nodiscard]] std::unique_ptr<Call> fetch(Request request, CallOptions options,
                                            std::function<void(Result<Response>)> on_done);

  // Connections that wait for their next call are closed, the others when their call ends: after a
  // change of credentials.
  virtual void close_idle() = 0;
};

}  // namespace divisi::http
