// Slave: the worker's side of the interaction protocol. It serves /connect, /disconnect, /task/new,
// /ping and /shutdown, sends heartbeats to its master, and runs one task at a time.
//
//   DIVISI_TRY(auto slave, Slave::start(reactor, {.bind = where}, handler));
//
// Loop only, from start() to the destructor.
#pragma once

#include "base/status.h"
#include "dist/protocol.h"
#include "dist/task_handler.h"
#include "io/address.h"
#include "io/reactor.h"
#include "json/value.h"

#include <functional>
#include <memory>
#include <string>

namespace divisi::dist {

struct SlaveOptions {
  io::Address bind{io::Address::Scheme::kTcp, "0.0.0.0", kSlavePort, {}};
  int channel = 0;
  std::string self_token{};                          // for /ping and /shutdown; empty: one is made
  io::Duration heartbeat = std::chrono::seconds(3);  // at least 0.2 s
  RetryOptions retry{};                              // of heartbeats and results
  std::size_t max_body_bytes = kMaxBodyBytes;
  // False refuses a master (403/503); null: every master may connect. `data` is what it sent along.
  std::function<bool(const std::string& master, const json::Value& data)> accept_master{};
  // False refuses to leave the master (403/504); null: it may always disconnect.
  std::function<bool(const json::Value& data)> accept_disconnect{};
  // DELETE /shutdown was called with the self token; null: shutting down is all that happens.
  std::function<void()> on_shutdown{};
};

class Slave {
 public:
  // The handler is called on a thread of its own, which lives as long as the slave.
  static Result<std::unique_ptr<Slave>> start(io::Reactor& reactor, SlaveOptions options,
                                              std::shared_ptr<TaskHandler> handler);

  // Stops the handler and waits for the run() in progress.
  virtual ~Slave() = default;

  virtual io::Address address() const = 0;
  virtual const std::string& self_token() const = 0;
  virtual bool connected() const = 0;
  virtual const std::string& master() const = 0;  // its address; empty when not connected

  // From now on every request is answered 401/101. `done` runs when the handler has stopped.
  virtual void shutdown(std::function<void()> done) = 0;
};

}  // namespace divisi::dist
