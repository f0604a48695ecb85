// FaultProxy: an HTTP proxy in front of a real API server that spoils what passes through it.
#pragma once

#include "http/client.h"
#include "http/server.h"
#include "kube/transport.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>

namespace divisi::kube::suite {

// Each is a chance between 0 and 1.
struct Storm {
  double refuse = 0;    // 429 with Retry-After, 500, 502 with HTML, 503: the server never sees it
  double conflict = 0;  // of a write: 409
  double expire = 0;    // of a watch: 410, as an answer or as an event
  double drop = 0;      // the connection ends without an answer, before or after the server had it
  double cut = 0;       // of a stream: after a piece, sometimes in its middle
  double half_close = 0;  // of a stream: ends as if it were complete, in the middle of a piece
  double repeat = 0;      // of a stream: a piece twice
  double slow = 0;        // of a piece: byte by byte
};

// Loop only. Listens on loopback without TLS; the real server is behind `real`.
class FaultProxy {
 public:
  static Result<std::unique_ptr<FaultProxy>> listen(io::Reactor& reactor, Transport& real,
                                                    std::uint64_t seed);
  ~FaultProxy();

  std::string url() const;
  void set_storm(const Storm& storm) { storm_ = storm; }
  std::uint64_t faults() const noexcept { return faults_; }
  void cut_streams();

 private:
  class Passing;

  FaultProxy(io::Reactor& reactor, Transport& real, std::uint64_t seed);
  void handle(const std::shared_ptr<http::ServerCall>& call);
  bool spoil(const std::shared_ptr<http::ServerCall>& call, bool watch);
  bool chance(double probability);

  io::Reactor& reactor_;
  Transport& real_;
  std::mt19937_64 random_;
  Storm storm_;
  std::uint64_t faults_ = 0;
  std::set<std::shared_ptr<Passing>> passing_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace divisi::kube::suite
