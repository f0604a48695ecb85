// Server: di-server, the HTTP API of DIJobs on its two ports.
//
//   DIVISI_TRY(auto server, Server::start(reactor, client, {}));
//
// Loop only, from start() to the destructor, which closes all connections. Every route is answered
// on both ports: clients of the first generation use 8080, those of the second 8081.
#pragma once

#include "base/status.h"
#include "io/address.h"
#include "io/reactor.h"
#include "kube/client.h"
#include "kube/metrics.h"
#include "server/auth.h"
#include "server/first/operation.h"

#include <functional>
#include <memory>
#include <string>

namespace divisi::server {

struct ServerOptions {
  io::Address api{io::Address::Scheme::kTcp, "0.0.0.0", 8081, {}};
  io::Address probe{io::Address::Scheme::kTcp, "0.0.0.0", 8080, {}};
  std::string space{};  // the only name space that is followed; empty: all
  std::string service_domain = "svc.cluster.local";
  AuthOptions auth{};
  first::Options first{};  // of the v1alpha1 API
  // Null: the server has its own. Otherwise it outlives the server.
  kube::Metrics* metrics = nullptr;
  // Of each port. A worker that follows its peers holds one all the time.
  std::size_t max_connections = 8192;
};

class Server {
 public:
  static Result<std::unique_ptr<Server>> start(io::Reactor& reactor, kube::Client& client,
                                               ServerOptions options);
  virtual ~Server() = default;

  virtual io::Address api_address() const = 0;
  virtual io::Address probe_address() const = 0;
  virtual bool ready() const = 0;  // the caches are in step; requests are answered before, too
  // Takes no more requests; streams end. `done` runs when the running requests are answered and
  // what engines reported is written.
  virtual void stop(std::function<void()> done) = 0;
};

}  // namespace divisi::server
