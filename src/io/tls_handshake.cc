// How a TlsStream comes about, and why it may not.
#include "io/tls_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <cerrno>
#include <utility>

namespace divisi::io {

namespace {

// How long a refused peer may go on sending.
constexpr auto kLinger = std::chrono::seconds(1);

// Ends a stream whose last bytes matter to the peer: closing on what it still sends would make the
// kernel throw them away.
void close_softly(Reactor& reactor, const std::shared_ptr<Stream>& stream) {
  stream->shutdown_write();
  auto patience = std::make_shared<std::unique_ptr<Timer>>();
  *patience = reactor.after(kLinger, [stream] { stream->close(); });
  // The timer keeps the stream; the stream keeps the timer until it is closed.
  stream->start_reading([weak = std::weak_ptr(stream), patience] {
    const auto self = weak.lock();
    if (!self) return false;
    std::array<char, 4096> ignored;  // NOLINT(cppcoreguidelines-pro-type-member-init): is read into
    const iovec part{ignored.data(), ignored.size()};
    const ssize_t n = self->read({&part, 1});
    if (n > 0 || n == -EAGAIN) return true;
    self->close();
    return false;
  });
}

class HandshakeHandle final : public Timer {
 public:
  explicit HandshakeHandle(std::shared_ptr<TlsStream> stream) : stream_(std::move(stream)) {}
  ~HandshakeHandle() override { stream_->cancel_handshake(); }

 private:
  const std::shared_ptr<TlsStream> stream_;
};

}  // namespace

void TlsStream::handshake(const std::string& server_name, Duration timeout, OnDone on_done) {
  on_done_ = std::move(on_done);
  check_.start(session_.get(), context_->client(), context_->verify(), server_name);
  if (context_->client()) {
    SSL_set_connect_state(session_.get());
  } else {
    SSL_set_accept_state(session_.get());
  }
  deadline_ = reactor_.after(
      timeout, [this] { finish(failure(Code::kTimeout, "TLS handshake: no answer in time")); });
  watch_plain();
  // The caller must have the handle before anything happens.
  reactor_.post([weak = weak_from_this()] {
    if (const auto self = weak.lock(); self && self->on_done_) self->step();
  });
}

void TlsStream::cancel_handshake() {
  deadline_.reset();
  if (std::exchange(on_done_, nullptr)) close();
}

void TlsStream::step() {
  const auto keep = shared_from_this();
  for (;;) {
    ERR_clear_error();
    const int result = SSL_do_handshake(session_.get());
    if (result == 1) {
      flush();
      return finish(std::static_pointer_cast<Stream>(keep));
    }
    if (SSL_get_error(session_.get(), result) != SSL_ERROR_WANT_READ) {
      auto why = why_no_handshake(result);
      flush();  // tell the other side, too
      return finish(failure(std::move(why)));
    }
    flush();
    const ssize_t fed = feed();
    if (fed == -EAGAIN || fed == -EINTR) return;
    if (fed < 0) {
      return finish(failure(Code::kUnavailable, "TLS handshake: the connection broke: {}",
                            errno_text(static_cast<int>(-fed))));
    }
  }
}

Status TlsStream::why_no_handshake(int result) {
  const int reason = ERR_GET_REASON(ERR_peek_error());
  const bool at_end = SSL_get_error(session_.get(), result) == SSL_ERROR_SYSCALL ||
                      reason == SSL_R_UNEXPECTED_EOF_WHILE_READING;
  const std::string errors = tls_errors();
  failed_ = true;
  if (!check_.refused().empty()) return {Code::kUnauthorized, "TLS handshake: " + check_.refused()};
  if (at_end || ended_) {
    return {Code::kUnavailable, "TLS handshake: the other side closed the connection"};
  }
  if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST) {
    return {Code::kUnavailable, "TLS handshake: the other side does not speak TLS"};
  }
  if (is_about_certificates(reason)) {
    return make_status(Code::kUnauthorized, "TLS handshake: the other side refused us: {}", errors);
  }
  return make_status(Code::kUnavailable, "TLS handshake: {}", errors);
}

void TlsStream::finish(Result<std::shared_ptr<Stream>> result) {
  const auto keep = shared_from_this();
  const auto run = std::exchange(on_done_, nullptr);
  deadline_.reset();
  if (!result) {
    failed_ = true;
    closed_ = true;
    close_softly(reactor_, plain_);
  }
  if (run) run(std::move(result));
}

std::unique_ptr<Timer> start_tls(Reactor& reactor, std::shared_ptr<const TlsContext> context,
                                 std::shared_ptr<Stream> plain, const std::string& server_name,
                                 Duration timeout, TlsStream::OnDone on_done) {
  // There is no other kind: the factories of TlsContext make this one only.
  auto native = std::static_pointer_cast<const NativeTlsContext>(std::move(context));
  auto stream = std::make_shared<TlsStream>(reactor, std::move(native), std::move(plain));
  stream->handshake(server_name, timeout, std::move(on_done));
  return std::make_unique<HandshakeHandle>(std::move(stream));
}

}  // namespace divisi::io
