#include "io/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace divisi::io {

namespace {

// Two full records a read; one write encrypts at most this much, so that what waits stays small.
constexpr std::size_t kFeedBytes = std::size_t{32} << 10;
constexpr std::size_t kWriteBytes = std::size_t{64} << 10;

}  // namespace

bool is_about_certificates(int reason) {
  constexpr auto kReasons = std::to_array<int>(
      {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, SSL_R_TLSV1_ALERT_UNKNOWN_CA,
       SSL_R_TLSV1_ALERT_ACCESS_DENIED, SSL_R_SSLV3_ALERT_BAD_CERTIFICATE,
       SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED,
       SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE,
       SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE});
  return std::ranges::find(kReasons, reason) != kReasons.end();
}

void TlsStream::Free::operator()(ssl_st* session) const {
  SSL_free(session);
}

TlsStream::TlsStream(Reactor& reactor, std::shared_ptr<const NativeTlsContext> context,
                     std::shared_ptr<Stream> plain)
    : reactor_(reactor),
      context_(std::move(context)),
      plain_(std::move(plain)),
      session_(SSL_new(context_->native())),
      from_peer_(BIO_new(BIO_s_mem())),
      to_peer_(BIO_new(BIO_s_mem())) {
  DIVISI_CHECK(session_ && from_peer_ != nullptr && to_peer_ != nullptr,
               "OpenSSL has memory for a session");
  SSL_set_bio(session_.get(), from_peer_, to_peer_);
}

TlsStream::~TlsStream() {
  close();
}

// --- bytes ---

// Ciphertext from the plain stream to OpenSSL: bytes moved, 0 at the end, or -errno.
ssize_t TlsStream::feed() {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): is read into
  std::array<char, kFeedBytes> bytes;
  const iovec part{bytes.data(), bytes.size()};
  const ssize_t n = plain_->read({&part, 1});
  if (n > 0) {
    BIO_write(from_peer_, bytes.data(), static_cast<int>(n));
  } else if (n == 0) {
    ended_ = true;
    BIO_set_mem_eof_return(from_peer_, 0);  // not "try again", but the end
  }
  return n;
}

ssize_t TlsStream::read(std::span<const iovec> parts) {
  drained_ = false;
  ssize_t total = 0;
  for (const iovec& part : parts) {
    for (std::size_t got = 0; got < part.iov_len;) {
      const ssize_t n = read_part({static_cast<char*>(part.iov_base) + got, part.iov_len - got});
      if (n <= 0) {
        drained_ = n == -EAGAIN;
        flush();  // reading may have made an answer necessary
        return total > 0 ? total : n;
      }
      got += static_cast<std::size_t>(n);
      total += n;
    }
  }
  return total;
}

ssize_t TlsStream::read_part(const iovec& part) {
  if (closed_) return -ECONNRESET;
  if (read_error_ != 0) return -read_error_;
  for (;;) {
    ERR_clear_error();
    std::size_t n = 0;
    const int result = SSL_read_ex(session_.get(), part.iov_base, part.iov_len, &n);
    if (result == 1) return static_cast<ssize_t>(n);
    if (SSL_get_error(session_.get(), result) != SSL_ERROR_WANT_READ) return read_failed(result);
    const ssize_t fed = feed();
    if (fed < 0) return fed;
  }
}

ssize_t TlsStream::read_failed(int result) {
  if (SSL_get_error(session_.get(), result) == SSL_ERROR_ZERO_RETURN) return 0;
  failed_ = true;
  const int reason = ERR_GET_REASON(ERR_peek_error());
  tls_errors();
  if (ended_ || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    read_error_ = ECONNRESET;
  } else {
    read_error_ = is_about_certificates(reason) ? EACCES : EPROTO;
  }
  return -read_error_;
}

ssize_t TlsStream::write(std::span<const iovec> parts) {
  if (closed_ || shuts_ || failed_) return -EPIPE;
  flush();
  if (broken_ != 0) return -broken_;
  if (!pending_.empty()) return -EAGAIN;
  std::size_t total = 0;
  for (const iovec& part : parts) {
    const std::size_t size = std::min(part.iov_len, kWriteBytes - total);
    for (std::size_t done = 0; done < size;) {
      ERR_clear_error();
      std::size_t n = 0;
      if (SSL_write_ex(session_.get(), static_cast<const char*>(part.iov_base) + done, size - done,
                       &n) != 1) {
        failed_ = true;
        tls_errors();
        return -EPIPE;
      }
      done += n;
    }
    total += size;
    if (total == kWriteBytes) break;
  }
  flush();
  return broken_ != 0 ? -broken_ : static_cast<ssize_t>(total);
}

// Ciphertext from OpenSSL to the plain stream, as much as that takes.
void TlsStream::flush() {
  char* bytes = nullptr;
  if (const long size = BIO_get_mem_data(to_peer_, &bytes); size > 0) {
    pending_.append(bytes, static_cast<std::size_t>(size));
    static_cast<void>(BIO_reset(to_peer_));
  }
  std::size_t sent = 0;
  while (sent < pending_.size() && broken_ == 0 && !closed_) {
    const iovec part{pending_.data() + sent, pending_.size() - sent};
    const ssize_t n = plain_->write({&part, 1});
    if (n == -EAGAIN) break;
    if (n < 0) {
      if (n != -EINTR) broken_ = static_cast<int>(-n);
      continue;
    }
    sent += static_cast<std::size_t>(n);
  }
  pending_.erase(0, sent);
  if (pending_.empty()) pending_.shrink_to_fit();
  if (broken_ != 0) pending_.clear();
  if (!pending_.empty()) return flush_when_possible();
  if (shuts_ && !closed_) plain_->shutdown_write();
}

void TlsStream::flush_when_possible() {
  if (std::exchange(waits_writable_, true) || closed_) return;
  plain_->wait_writable([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->waits_writable_ = false;
    self->flush();
    if (!self->pending_.empty()) return;
    if (const auto run = std::exchange(self->on_writable_, nullptr)) run();
  });
}

// --- events ---

void TlsStream::start_reading(std::function<bool()> on_readable) {
  on_readable_ = std::move(on_readable);
  if (!on_readable_ || closed_) return;
  watch_plain();
  // What came along with the last of the handshake makes no event of its own, nor does a plain
  // stream that ended while nobody read it.
  drained_ = false;
  read_later();
}

void TlsStream::watch_plain() {
  plain_->start_reading([weak = weak_from_this()] {
    const auto self = weak.lock();
    return self && self->on_plain_readable();
  });
}

bool TlsStream::on_plain_readable() {
  if (on_done_) {
    step();
  } else if (const auto run = on_readable_; run && !run()) {
    on_readable_ = nullptr;
  }
  read_again_later();
  return !closed_ && (on_done_ || on_readable_);
}

// Whether read() has something to say that the plain stream will not announce again: bytes, the
// peer's goodbye, or an error.
bool TlsStream::buffered() const {
  return SSL_has_pending(session_.get()) == 1 || BIO_ctrl_pending(from_peer_) > 0 || ended_ ||
         read_error_ != 0 || (SSL_get_shutdown(session_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
}

// A reader that took only part of what is decrypted is told again, as a socket would.
void TlsStream::read_again_later() {
  if (!drained_ && on_readable_ && !closed_ && buffered()) read_later();
}

void TlsStream::read_later() {
  reactor_.post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->closed_ || self->drained_ || !self->on_readable_) return;
    const auto run = self->on_readable_;
    if (!run()) self->on_readable_ = nullptr;
    self->read_again_later();
  });
}

void TlsStream::wait_writable(std::function<void()> on_writable) {
  on_writable_ = std::move(on_writable);
  flush_when_possible();
}

void TlsStream::shutdown_write() {
  if (closed_ || failed_ || std::exchange(shuts_, true)) return;
  SSL_shutdown(session_.get());
  flush();
}

void TlsStream::close() {
  if (closed_) return;
  if (!failed_ && !shuts_ && !on_done_ && SSL_is_init_finished(session_.get()) == 1) {
    SSL_shutdown(session_.get());  // the goodbye, if there is room for it
    flush();
  }
  closed_ = true;
  on_readable_ = nullptr;
  on_writable_ = nullptr;
  plain_->close();
}

}  // namespace divisi::io
