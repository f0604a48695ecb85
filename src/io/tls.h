// TLS over any Stream: who we are, whom we trust, and the handshake.
//
//   DIVISI_TRY(auto trust, TlsContext::client({.ca_pem = ca, .identity = TlsIdentity{cert, key}}));
//   handshake_ = start_tls(reactor, trust, stream, "api.example.org", 10s, [](auto secured) {...});
//
// A context is immutable and shared by many connections and threads; to use new certificates,
// make a new one. TLS 1.2 and later only.
#pragma once

#include "base/status.h"
#include "io/reactor.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace divisi::io {

struct TlsIdentity {
  std::string certificate_pem{};  // the chain, own certificate first
  std::string key_pem{};
};

struct TlsClientOptions {
  std::string ca_pem{};  // one or more certificates; empty: those of the system
  bool verify = true;    // false takes any certificate: only when the user says so
  std::optional<TlsIdentity> identity{};
};

struct TlsServerOptions {
  TlsIdentity identity{};
  std::string client_ca_pem{};  // not empty: clients must show a certificate of it
};

class TlsContext {
 public:
  // Fails for text that is no certificate or key, a key that does not fit its certificate.
  static Result<std::shared_ptr<const TlsContext>> client(const TlsClientOptions& options);
  static Result<std::shared_ptr<const TlsContext>> server(const TlsServerOptions& options);

  virtual ~TlsContext() = default;
};

// Makes the handshake over `plain`. `on_done` runs once, unless the returned handle is destroyed
// first: with the stream that encrypts, or why there is none (which certificate, who signed it,
// when it expired). The secured stream is for the loop only, write() too. Its read() tells an end
// that the peer announced (0) from one that somebody may have forced (-ECONNRESET); -EACCES means
// that the peer refused our certificate. Loop only. `server_name`: the name or address to verify,
// for a client; also sent (SNI) when it is a name. Empty for a server.
[[nodiscard]] std::unique_ptr<Timer> start_tls(
    Reactor& reactor, std::shared_ptr<const TlsContext> context, std::shared_ptr<Stream> plain,
    const std::string& server_name, Duration timeout,
    std::function<void(Result<std::shared_ptr<Stream>>)> on_done);

}  // namespace divisi::io
