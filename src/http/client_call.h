// ClientCall: one call of a client, from send() to on_done, over one or two connections.
//
// All on the loop. The pool gives it a connection and gets it back; the caller's handle can cancel
// it at any time.
#pragma once

#include "http/client.h"
#include "http/exchange.h"

#include <memory>
#include <string>
#include <utility>

namespace divisi::http {

class ClientCall final : public std::enable_shared_from_this<ClientCall> {
 public:
  // What a call needs of its pool.
  class Pool {
   public:
    virtual ~Pool() = default;
    virtual const ClientOptions& options() const = 0;
    // The call has ended, or was cancelled while it waited. `wire` can serve another one; null: its
    // connection, if it had one, is gone.
    virtual void on_ended(ClientCall& call, std::shared_ptr<Wire> wire) = 0;
  };

  ClientCall(io::Reactor& reactor, std::shared_ptr<Pool> pool, Request request, CallOptions options,
             std::shared_ptr<ResponseHandler> handler);

  // Fails (through on_done, later) for a request that cannot be sent.
  void start_clock();
  void connect();
  void run_on(std::shared_ptr<Wire> wire, bool kept);

  void set_paused(bool paused);
  void write(std::string piece);
  void finish_body();
  std::size_t unsent() const;
  // No callback afterwards.
  void cancel();
  // The connection it has, or is about to get, is not for others.
  void spoil_connection() { spoiled_ = true; }

  bool has_slot() const { return has_slot_; }  // counts as one of max_connections
  bool over() const { return handler_ == nullptr; }

 private:
  Exchange::Events events();
  void on_end(const Exchange::Ending& ending);
  void watch_silence(io::Duration wait);
  void fail(const Status& status);
  void finish(const Status& status, std::shared_ptr<Wire> reusable);
  std::string name() const;

  io::Reactor& reactor_;
  const std::shared_ptr<Pool> pool_;
  const Request request_;
  const CallOptions options_;
  std::shared_ptr<ResponseHandler> handler_;  // null once it is over
  std::unique_ptr<io::Timer> deadline_;
  std::unique_ptr<io::Timer> silence_;
  std::unique_ptr<io::Timer> connecting_;
  std::shared_ptr<Exchange> exchange_;
  // Pieces of the body that came before the connection; a call with one is never repeated.
  std::vector<std::string> early_;
  bool early_end_ = false;
  bool streamed_ = false;
  bool paused_ = false;
  bool has_slot_ = false;
  bool spoiled_ = false;
  bool kept_ = false;  // the connection has served another call
};

}  // namespace divisi::http
