// What tls.cc knows about a context and tls_stream.cc needs.
#pragma once

#include "io/tls.h"

#include <memory>
#include <string>

struct ssl_ctx_st;

namespace divisi::io {

class NativeTlsContext final : public TlsContext {
 public:
  struct Free {
    void operator()(ssl_ctx_st* native) const;
  };
  using Native = std::unique_ptr<ssl_ctx_st, Free>;

  NativeTlsContext(Native native, bool client, bool verify)
      : native_(std::move(native)), client_(client), verify_(verify) {}

  ssl_ctx_st* native() const { return native_.get(); }
  bool client() const { return client_; }
  bool verify() const { return verify_; }

 private:
  const Native native_;
  const bool client_;
  const bool verify_;
};

// The errors that OpenSSL has queued on this thread, as one line; empties the queue.
std::string tls_errors();

}  // namespace divisi::io
