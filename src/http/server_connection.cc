#include "http/server_connection.h"

#include "base/log.h"
#include "http/server_call.h"
#include "http/while_alive.h"

#include <utility>

namespace divisi::http {

namespace {

// While an answer is given, no more than this is read ahead of it.
constexpr std::size_t kReadAhead = std::size_t{64} << 10;

// A client that sends request after request without taking the answers waits from here on.
constexpr std::size_t kMaxUnsent = std::size_t{1} << 20;

Response plain_refusal(int status, std::string_view why) {
  return {status, {{"Content-Type", "text/plain"}}, fmt::format("{}\n", why)};
}

}  // namespace

ServerConnection::ServerConnection(io::Reactor& reactor, std::weak_ptr<Owner> owner,
                                   const ServerOptions& options,
                                   const std::shared_ptr<io::Stream>& stream)
    : reactor_(reactor),
      owner_(std::move(owner)),
      options_(options),
      wire_(Wire::make(reactor, stream)),
      peer_(stream->peer()) {
  stream->set_dead_after(options.body_timeout);
}

void ServerConnection::start() {
  wire_->set_user(while_alive(weak_from_this(), &ServerConnection::on_input),
                  while_alive(weak_from_this(), &ServerConnection::on_progress));
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
    head_request_ = http_1_0_ = false;  // as far as is known
    parser_ = std::make_unique<Parser>(Parser::Kind::kRequest, options_.limits);
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
  closing_ = closing_ || http_1_0_ || !parser_->keeps_alive();
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
  const Response answer = options_.refusal ? options_.refusal(why.status, why.text)
                                           : plain_refusal(why.status, why.text);
  send_head({.status = answer.status, .headers = answer.headers}, answer.body.size());
  send_body(answer.body);
  end_answer();
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

void ServerConnection::on_head_too_late() {
  refuse({408, "the request did not come in time"});
}

void ServerConnection::on_body_silent() {
  refuse({408, "the body of the request did not come in time"});
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
