// Whom we speak to: what a peer's certificate must say, and why it was refused.
#pragma once

#include <string>

struct ssl_st;

namespace divisi::io {

// Verification of one connection. Lives as long as the handshake.
class TlsPeerCheck {
 public:
  // `name`: a host name or an address that the certificate must be for; empty: any.
  void start(ssl_st* session, bool client, bool verify, std::string name);

  // "the certificate of CN=a expired on Jan 1 ..."; empty when nothing was wrong with it.
  const std::string& refused() const { return refused_; }

  // Called by OpenSSL for each problem of a chain; for tls_peer.cc.
  void note(int error, void* certificate);

 private:
  std::string name_;
  std::string refused_;
};

}  // namespace divisi::io
