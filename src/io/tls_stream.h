// TlsStream: an encrypted Stream over a plain one. start_tls() makes it.
//
// OpenSSL works on memory here: ciphertext is moved between it and the plain stream by feed() and
// flush(). Loop only.
#pragma once

#include "io/reactor.h"
#include "io/tls_context.h"
#include "io/tls_peer.h"

#include <functional>
#include <memory>
#include <string>

struct ssl_st;
struct bio_st;

namespace divisi::io {

class TlsStream final : public Stream, public std::enable_shared_from_this<TlsStream> {
 public:
  using OnDone = std::function<void(Result<std::shared_ptr<Stream>>)>;

  TlsStream(Reactor& reactor, std::shared_ptr<const NativeTlsContext> context,
            std::shared_ptr<Stream> plain);
  ~TlsStream() override;

  void handshake(const std::string& server_name, Duration timeout, OnDone on_done);
  // Gives up a handshake that is under way; nothing once it is done.
  void cancel_handshake();

  void start_reading(std::function<bool()> on_readable) override;
  void wait_writable(std::function<void()> on_writable) override;
  ssize_t read(std::span<const iovec> parts) override;
  ssize_t write(std::span<const iovec> parts) override;
  void shutdown_write() override;
  void close() override;
  std::string peer() const override { return plain_->peer(); }
  void set_dead_after(Duration time) override { plain_->set_dead_after(time); }

 private:
  struct Free {
    void operator()(ssl_st* session) const;
  };

  bool on_plain_readable();
  void watch_plain();
  bool buffered() const;
  void read_again_later();
  void read_later();
  ssize_t feed();
  ssize_t read_part(const iovec& part);
  ssize_t read_failed(int result);
  void flush();
  void flush_when_possible();
  void step();
  void finish(Result<std::shared_ptr<Stream>> result);
  Status why_no_handshake(int result);

  Reactor& reactor_;
  const std::shared_ptr<const NativeTlsContext> context_;
  const std::shared_ptr<Stream> plain_;
  const std::unique_ptr<ssl_st, Free> session_;
  bio_st* from_peer_ = nullptr;  // ciphertext; both owned by session_
  bio_st* to_peer_ = nullptr;

  OnDone on_done_;  // while the handshake is under way
  std::unique_ptr<Timer> deadline_;
  TlsPeerCheck check_;

  std::function<bool()> on_readable_;
  std::function<void()> on_writable_;
  std::string pending_;   // ciphertext that the plain stream did not take
  bool drained_ = false;  // the last read() left nothing
  bool ended_ = false;    // the plain stream has ended
  bool waits_writable_ = false;
  bool shuts_ = false;   // our goodbye is in pending_ or sent
  bool failed_ = false;  // the session cannot be used any more
  bool closed_ = false;
  int read_error_ = 0;  // errno of a read that failed for good
  int broken_ = 0;      // errno of a write
};

// Whether a failed read or handshake (a reason code of OpenSSL) is the peer's word on certificates.
bool is_about_certificates(int reason);

}  // namespace divisi::io
