// ServerConnection: requests of one client, one after the other.
//
// All on the loop. States: idle (between requests), head, body (of the request that is read),
// answering (a ServerCall is out), lingering (all is said; what the client still sends is thrown
// away, because closing on unread bytes would destroy the answer on its way).
#pragma once

#include "http/parser.h"
#include "http/server.h"
#include "http/wire.h"

#include <memory>
#include <optional>
#include <string>

namespace divisi::http {

class ServerConnection final : public std::enable_shared_from_this<ServerConnection> {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual const ServerOptions& options() const = 0;
    virtual void on_request(std::shared_ptr<ServerCall> call) = 0;
    virtual void on_closed(ServerConnection& connection) = 0;
  };

  ServerConnection(io::Reactor& reactor, std::weak_ptr<Owner> owner, const ServerOptions& options,
                   const std::shared_ptr<io::Stream>& stream);

  void start();
  void drain();  // closes now, or behind the answer that is being given
  void close();  // at once

  // --- for the call that is out ---
  void send_head(const ResponseHead& head, std::optional<std::size_t> length);
  void send_piece(std::string piece);  // as a chunk where chunks are understood
  void send_body(std::string body);
  void end_answer();
  // The answer stays a torso: the client must not take it for whole.
  void abort_answer();
  void upgrade(const Headers& headers,
               std::function<void(std::shared_ptr<io::Stream>, std::string)> then);
  void set_gone(std::function<void()> gone);
  std::size_t unsent() const { return wire_->unsent(); }

 private:
  enum class State { kIdle, kHead, kBody, kAnswering, kUpgrading, kLingering, kClosed };

  bool reads_requests() const;
  bool waits_for_client() const;
  void on_input();
  void on_progress();
  void advance();
  bool read_request();
  bool on_head();
  void dispatch();
  void refuse(const ParseError& why);
  void hand_over();
  void linger();
  void tell_gone();
  void arm(io::Duration wait, void (ServerConnection::*action)());
  void watch_output();
  void on_idle_too_long();
  void on_head_too_late();
  void on_body_silent();
  void on_output_stuck();

  io::Reactor& reactor_;
  const std::weak_ptr<Owner> owner_;
  const ServerOptions options_;
  const std::shared_ptr<Wire> wire_;
  const std::string peer_;
  State state_ = State::kIdle;
  std::unique_ptr<Parser> parser_;  // none while idle
  std::string body_;
  std::unique_ptr<io::Timer> timer_;
  std::function<void()> gone_;
  std::function<void(std::shared_ptr<io::Stream>, std::string)> upgraded_;
  bool advancing_ = false;
  bool closing_ = false;  // no request after this one
  bool head_request_ = false;
  bool http_1_0_ = false;
  bool chunked_ = false;  // the answer that is being given
  bool client_gone_ = false;
  bool output_watched_ = false;
  bool progressed_ = false;  // since the output was last looked at
};

}  // namespace divisi::http
