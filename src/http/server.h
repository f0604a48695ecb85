// HTTP/1.1 server on the loop.
//
//   DIVISI_TRY(auto server, Server::listen(reactor, {.address = where}, [](auto call) {
//     call->respond({.status = 200, .body = "ok\n"});
//   }));
//
// The handler runs on the loop and must not block; it may answer later, from the loop. Requests of
// one connection are answered in order, one at a time.
#pragma once

#include "base/status.h"
#include "http/message.h"
#include "io/reactor.h"
#include "io/tls.h"

#include <functional>
#include <memory>
#include <string>

namespace divisi::http {

// One request and its answer. Held by who answers; if the last holder lets it go unanswered, the
// client gets 500. Loop only.
class ServerCall {
 public:
  virtual ~ServerCall() = default;
  virtual const Request& request() const = 0;  // with its whole body
  virtual std::string peer() const = 0;        // "127.0.0.1:41234"

  virtual void respond(Response response) = 0;

  // Or in pieces, until finish(): chunked. What is written in one turn of the loop leaves in one
  // write.
  virtual void start(ResponseHead head) = 0;
  virtual void write(std::string piece) = 0;
  virtual void finish() = 0;
  virtual std::size_t unsent() const = 0;  // bytes that the client has not taken yet

  // Runs once when the client goes away before the answer is complete; at once if it already has.
  virtual void on_gone(std::function<void()> gone) = 0;

  // Answers 101 with these headers; `then` gets the connection, and what was read beyond the
  // request, when that is sent. It never runs if the client is gone.
  virtual void upgrade(Headers headers,
                       std::function<void(std::shared_ptr<io::Stream>, std::string rest)> then) = 0;
};

struct ServerOptions {
  io::Address address{};                        // port 0: the kernel chooses
  std::shared_ptr<const io::TlsContext> tls{};  // null: plain
  Limits limits{};                              // 413 and 431 beyond
  std::size_t max_connections = 1024;
  io::Duration header_timeout = std::chrono::seconds(10);  // to send a whole request head
  // Longest silence inside a request's body; longest time in which nothing of an answer is taken.
  io::Duration body_timeout = std::chrono::seconds(30);
  io::Duration keep_alive = std::chrono::seconds(75);
  // How a request that cannot be read is answered; null: its status and one line of text.
  std::function<Response(int status, std::string_view why)> refusal{};
};

class Server {
 public:
  using Handler = std::function<void(std::shared_ptr<ServerCall>)>;
  static Result<std::unique_ptr<Server>> listen(io::Reactor& reactor, ServerOptions options,
                                                Handler handler);
  virtual ~Server() = default;  // closes all connections; loop only
  virtual io::Address address() const = 0;
  // New connections only.
  virtual void set_tls(std::shared_ptr<const io::TlsContext> tls) = 0;
  // Takes no more requests; `done` runs when the running ones are answered.
  virtual void drain(std::function<void()> done) = 0;
};

}  // namespace divisi::http
