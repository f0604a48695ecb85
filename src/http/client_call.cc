#include "http/client_call.h"

#include "base/log.h"
#include "http/connect.h"
#include "http/request_text.h"

namespace divisi::http {

namespace {
// Enough to recognise a request by; queries can be long.
constexpr std::size_t kShownTarget = 200;
}  // namespace

ClientCall::ClientCall(io::Reactor& reactor, std::shared_ptr<Pool> pool, Request request,
                       CallOptions options, std::shared_ptr<ResponseHandler> handler)
    : reactor_(reactor),
      pool_(std::move(pool)),
      request_(std::move(request)),
      options_(options),
      handler_(std::move(handler)),
      streamed_(body_follows(request_)) {}

std::string ClientCall::name() const {
  const Url& server = pool_->options().server;
  std::string target = server.path + request_.target;
  if (target.size() > kShownTarget) target = target.substr(0, kShownTarget) + "...";
  return fmt::format("{} {}{}", log::printable(request_.method), server.origin(),
                     log::printable(target));
}

void ClientCall::start_clock() {
  if (options_.deadline <= io::Duration::zero()) return;
  deadline_ = reactor_.after(options_.deadline, [this] {
    const auto seconds = std::chrono::duration<double>(options_.deadline).count();
    fail(make_status(Code::kTimeout, "not done within {:g} s", seconds));
  });
}

void ClientCall::connect() {
  has_slot_ = true;
  kept_ = spoiled_ = false;
  connecting_ = http::connect(reactor_, pool_->options(), [weak = weak_from_this()](auto stream) {
    const auto self = weak.lock();
    if (!self || self->over()) return;
    if (!stream) return self->fail(stream.error());
    self->run_on(Wire::make(self->reactor_, *std::move(stream)), false);
  });
}

void ClientCall::run_on(std::shared_ptr<Wire> wire, bool kept) {
  has_slot_ = true;
  kept_ = kept;
  exchange_ = std::make_shared<Exchange>(
      std::move(wire),
      Exchange::Options{.max_header_bytes = options_.limits.max_header_bytes,
                        .head_only = request_.method == "HEAD",
                        .upgrade = options_.upgrade,
                        .body_follows = streamed_},
      events());
  auto text = request_text(request_, pool_->options(), options_.upgrade);
  if (!text) return fail(text.error());  // send() has looked before; only credentials can be new
  exchange_->start(*std::move(text));
  if (paused_) exchange_->set_paused(true);
  for (const auto& piece : early_) exchange_->write(piece);
  if (early_end_) exchange_->finish_body();
  early_.clear();
  if (options_.idle_timeout > io::Duration::zero()) watch_silence(options_.idle_timeout);
}

Exchange::Events ClientCall::events() {
  const auto weak = weak_from_this();
  return {
      .on_head =
          [weak](ResponseHead head) {
            const auto self = weak.lock();
            if (const auto handler = self ? self->handler_ : nullptr)
              handler->on_head(std::move(head));
          },
      .on_body =
          [weak](std::string_view piece) {
            const auto self = weak.lock();
            const auto handler = self ? self->handler_ : nullptr;
            return handler && handler->on_body(piece);
          },
      .on_upgrade =
          [weak](std::shared_ptr<io::Stream> stream, std::string rest) {
            const auto self = weak.lock();
            if (const auto handler = self ? self->handler_ : nullptr) {
              handler->on_upgrade(std::move(stream), std::move(rest));
            }
          },
      .on_end =
          [weak](const Exchange::Ending& ending) {
            if (const auto self = weak.lock(); self && !self->over()) self->on_end(ending);
          },
  };
}

void ClientCall::on_end(const Exchange::Ending& ending) {
  const bool stale = kept_ && ending.untouched && ending.status.code() == Code::kUnavailable;
  if (ending.reusable && spoiled_) exchange_->wire()->close();
  if (stale && !streamed_ && is_idempotent(request_.method)) {
    exchange_.reset();
    silence_.reset();
    return connect();
  }
  finish(ending.status, ending.reusable && !spoiled_ ? exchange_->wire() : nullptr);
}

// One timer that looks when the silence could have been long enough, not one restarted by each
// byte.
void ClientCall::watch_silence(io::Duration wait) {
  silence_ = reactor_.after(wait, [this] {
    const auto heard = exchange_->paused() ? reactor_.now() : exchange_->last_heard();
    const auto left = heard + options_.idle_timeout - reactor_.now();
    if (left > io::Duration::zero()) return watch_silence(left);
    const auto seconds = std::chrono::duration<double>(options_.idle_timeout).count();
    fail(make_status(Code::kTimeout, "the server has been silent for {:g} s", seconds));
  });
}

void ClientCall::set_paused(bool paused) {
  paused_ = paused;
  if (exchange_) exchange_->set_paused(paused);
}

void ClientCall::write(std::string piece) {
  if (!streamed_ || early_end_ || over()) return;
  if (exchange_) return exchange_->write(piece);
  early_.push_back(std::move(piece));
}

void ClientCall::finish_body() {
  if (!streamed_ || over()) return;
  early_end_ = true;
  if (exchange_) exchange_->finish_body();
}

std::size_t ClientCall::unsent() const {
  if (exchange_) return exchange_->wire()->unsent();
  std::size_t bytes = 0;
  for (const auto& piece : early_) bytes += piece.size();
  return bytes;
}

void ClientCall::fail(const Status& status) {
  if (exchange_) exchange_->abandon();
  finish(status, nullptr);
}

void ClientCall::finish(const Status& status, std::shared_ptr<Wire> reusable) {
  const auto keep = shared_from_this();
  const auto handler = std::exchange(handler_, nullptr);
  if (!handler) return;
  deadline_.reset();
  silence_.reset();
  connecting_.reset();
  pool_->on_ended(*this, std::move(reusable));
  handler->on_done(status.with_context(name()));
}

void ClientCall::cancel() {
  const auto keep = shared_from_this();
  if (const auto handler = std::exchange(handler_, nullptr); !handler) return;
  deadline_.reset();
  silence_.reset();
  connecting_.reset();
  if (exchange_) exchange_->abandon();
  pool_->on_ended(*this, nullptr);
}

}  // namespace divisi::http
