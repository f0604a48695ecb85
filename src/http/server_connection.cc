#include "http/server_connection.h"

#include "base/log.h"
#include "http/server_call.h"

#include <fmt/chrono.h>

#include <ctime>
#include <utility>

namespace divisi::http {

namespace {

// While an answer is given, no more than this is read ahead of it.
constexpr std::size_t kReadAhead = std::size_t{64} << 10;

// A client that sends request after request without taking the answers waits from here on.
constexpr std::size_t kMaxUnsent = std::size_t{1} << 20;

// How long a client may go on sending after the last word.
constexpr auto kLinger = std::chrono::seconds(2);

std::string date() {
  return fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(std::time(nullptr)));
}

bool has_no_body(int status) {
  return status < 200 || status == 204 || status == 304;
}

}  // namespace

ServerConnection::ServerConnection(io::Reactor& reactor, std::weak_ptr<Owner> owner,
                                   const ServerOptions& options, std::shared_ptr<io::Stream> stream)
    : reactor_(reactor),
      owner_(std::move(owner)),
      options_(options),
      wire_(Wire::make(reactor, stream)),
      peer_(stream->peer()) {
  stream->set_dead_after(options.body_timeout);
}

void ServerConnection::start() {
  const auto weak = weak_from_this();
  wire_->set_user(
      [weak] {
        if (const auto self = weak.lock()) self->on_input();
      },
      [weak] {
        if (const auto self = weak.lock()) self->on_progress();
      });
  arm(options_.header_timeout, &ServerConnection::on_idle_too_long);
}

void ServerConnection::arm(io::Duration wait, void (ServerConnection::*action)()) {
  timer_ = reactor_.after(wait, [this, action] {
    const auto keep = shared_from_this();
    (this->*action)();
  });
}

void ServerConnection::on_input() {
  const auto keep = shared_from_this();
  switch (state_) {
    case State::kLingering:
      wire_->consume(wire_->input().size());
      if (wire_->ended() && wire_->unsent() == 0) close();
      return;
    case State::kAnswering:
      if (wire_->ended()) return tell_gone();
      if (wire_->input().size() > kReadAhead) wire_->set_reading(false);
      return;
    case State::kUpgrading:
    case State::kClosed: return;
    default:
      advance();
      if (waits_for_client()) wire_->set_reading(wire_->input().size() <= kReadAhead);
  }
}

bool ServerConnection::waits_for_client() const {
  return state_ == State::kIdle && wire_->unsent() > kMaxUnsent;
}

// Reads requests and has them answered, as long as there are whole ones.
void ServerConnection::advance() {
  if (advancing_) return;
  const auto keep = shared_from_this();
  advancing_ = true;
  while (reads_requests() && !waits_for_client() && read_request()) dispatch();
  advancing_ = false;
  // The end behind the last request, or inside one.
  if (reads_requests() && !waits_for_client() && wire_->ended()) linger();
}

bool ServerConnection::reads_requests() const {
  return state_ == State::kIdle || state_ == State::kHead || state_ == State::kBody;
}

// True when a whole request is there.
bool ServerConnection::read_request() {
  if (wire_->input().empty()) return false;
  if (state_ == State::kIdle) {
    state_ = State::kHead;
    parser_.emplace(Parser::Kind::kRequest, options_.limits);
    arm(options_.header_timeout, &ServerConnection::on_head_too_late);
  }
  if (state_ == State::kHead) {
    const auto used = parser_->feed_head(wire_->input());
    if (!used) return refuse(used.error()), false;
    wire_->consume(*used);
    if (!parser_->has_head() || !on_head()) return false;
  }
  if (parser_->done()) return true;
  const auto used = parser_->feed(wire_->input(), body_);
  if (!used) return refuse(used.error()), false;
  wire_->consume(*used);
  if (!parser_->done()) arm(options_.body_timeout, &ServerConnection::on_body_silent);
  return parser_->done();
}

bool ServerConnection::on_head() {
  state_ = State::kBody;
  const auto& request = parser_->request();
  head_request_ = request.method == "HEAD";
  http_1_0_ = parser_->http_1_0();
  closing_ = closing_ || !parser_->keeps_alive();
  const auto expectation = request.headers.get("Expect");
  if (expectation.empty() || http_1_0_) return true;
  if (!same_name(expectation, "100-continue")) {
    return refuse({417, "an expectation other than 100-continue"}), false;
  }
  if (parser_->has_body() && wire_->input().empty()) wire_->write("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

void ServerConnection::dispatch() {
  timer_.reset();
  state_ = State::kAnswering;
  Request request = std::move(parser_->request());
  request.body = std::exchange(body_, {});
  parser_.reset();
  const auto owner = owner_.lock();
  if (!owner) return close();
  owner->on_request(make_server_call(shared_from_this(), std::move(request), peer_));
}

// A request that cannot be read: says why, and reads no more.
void ServerConnection::refuse(const ParseError& why) {
  log::debug("request of {} refused with {}: {}", peer_, why.status, why.text);
  timer_.reset();
  state_ = State::kAnswering;
  closing_ = true;
  const std::string text = fmt::format("{}\n", why.text);
  send_head({.status = why.status, .headers = {{"Content-Type", "text/plain"}}}, text.size());
  send_body(text);
  end_answer();
}

void ServerConnection::send_head(const ResponseHead& head, std::optional<std::size_t> length) {
  if (state_ != State::kAnswering) return;
  const bool bare = has_no_body(head.status);
  chunked_ = !length && !bare && !http_1_0_;
  closing_ = closing_ || (!length && !bare && http_1_0_);
  Headers headers = head.headers;
  for (const char* framing : {"Content-Length", "Transfer-Encoding", "Connection"}) {
    headers.remove(framing);
  }
  if (!headers.has("Date")) headers.add("Date", date());
  if (length && !bare) headers.add("Content-Length", std::to_string(*length));
  if (chunked_) headers.add("Transfer-Encoding", "chunked");
  if (closing_) headers.add("Connection", "close");
  const std::string reason(head.reason.empty() ? reason_phrase(head.status) : head.reason);
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", head.status, reason);
  append_headers(text, headers);
  wire_->write(std::move(text));
  if (bare) head_request_ = true;  // whatever follows is not sent
  watch_output();
}

void ServerConnection::send_body(std::string body) {
  if (state_ != State::kAnswering || head_request_) return;
  wire_->write(std::move(body));
  watch_output();
}

void ServerConnection::send_piece(std::string piece) {
  if (!chunked_) return send_body(std::move(piece));
  std::string chunk;
  append_chunk(chunk, piece);
  send_body(std::move(chunk));
}

void ServerConnection::end_answer() {
  if (state_ != State::kAnswering) return;
  if (std::exchange(chunked_, false)) send_body(std::string(kLastChunk));
  gone_ = nullptr;
  timer_.reset();
  output_watched_ = false;
  if (closing_ || client_gone_) return linger();
  state_ = State::kIdle;
  wire_->set_reading(true);
  arm(options_.keep_alive, &ServerConnection::on_idle_too_long);
  if (advancing_ || (wire_->input().empty() && !wire_->ended())) return;
  reactor_.post([weak = weak_from_this()] {
    if (const auto self = weak.lock(); self && self->state_ == State::kIdle) self->advance();
  });
}

void ServerConnection::abort_answer() {
  if (state_ == State::kAnswering) close();
}

void ServerConnection::upgrade(const Headers& headers,
                               std::function<void(std::shared_ptr<io::Stream>, std::string)> then) {
  if (state_ != State::kAnswering) return;
  gone_ = nullptr;
  timer_.reset();
  std::string text = "HTTP/1.1 101 Switching Protocols\r\n";
  append_headers(text, headers);
  wire_->write(std::move(text));
  wire_->set_reading(false);
  state_ = State::kUpgrading;
  upgraded_ = std::move(then);
  arm(options_.header_timeout, &ServerConnection::close);
}

void ServerConnection::hand_over() {
  const auto then = std::exchange(upgraded_, nullptr);
  std::string rest;
  auto stream = wire_->release(rest);
  close();  // of us, not of the stream
  then(std::move(stream), std::move(rest));
}

void ServerConnection::on_progress() {
  const auto keep = shared_from_this();
  if (wire_->broken() != 0) {
    tell_gone();
    return close();
  }
  progressed_ = true;
  if (state_ == State::kIdle && !waits_for_client()) {
    wire_->set_reading(true);
    if (!wire_->input().empty()) advance();
  } else if (state_ == State::kLingering && wire_->unsent() == 0) {
    linger();
  } else if (state_ == State::kUpgrading && wire_->unsent() == 0) {
    reactor_.post([weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self && self->state_ == State::kUpgrading && self->upgraded_) self->hand_over();
    });
  }
}

void ServerConnection::on_idle_too_long() {
  if (wire_->unsent() == 0 || !progressed_) return close();
  progressed_ = false;  // a long answer is still on its way
  arm(options_.keep_alive, &ServerConnection::on_idle_too_long);
}

void ServerConnection::watch_output() {
  if (output_watched_) return;
  output_watched_ = true;
  progressed_ = false;
  arm(options_.body_timeout, &ServerConnection::on_output_stuck);
}

void ServerConnection::on_output_stuck() {
  output_watched_ = false;
  if (wire_->unsent() == 0) return;
  if (progressed_) return watch_output();
  log::debug("{} takes nothing of its answer", peer_);
  tell_gone();
  close();
}

void ServerConnection::on_head_too_late() {
  refuse({408, "the request did not come in time"});
}

void ServerConnection::on_body_silent() {
  refuse({408, "the body of the request did not come in time"});
}

void ServerConnection::linger() {
  state_ = State::kLingering;
  wire_->consume(wire_->input().size());
  wire_->set_reading(true);
  if (wire_->unsent() > 0) return watch_output();
  wire_->shutdown_write();
  if (wire_->ended()) return close();
  arm(kLinger, &ServerConnection::close);
}

void ServerConnection::tell_gone() {
  client_gone_ = true;
  if (const auto run = std::exchange(gone_, nullptr)) run();
}

void ServerConnection::set_gone(std::function<void()> gone) {
  gone_ = std::move(gone);
  if (client_gone_) tell_gone();
}

void ServerConnection::drain() {
  closing_ = true;
  if (reads_requests()) linger();  // earlier answers may still be on their way
}

void ServerConnection::close() {
  if (std::exchange(state_, State::kClosed) == State::kClosed) return;
  const auto keep = shared_from_this();
  timer_.reset();
  gone_ = nullptr;
  upgraded_ = nullptr;
  wire_->close();
  if (const auto owner = owner_.lock()) owner->on_closed(*this);
}

}  // namespace divisi::http
