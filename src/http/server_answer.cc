// The answering half of a ServerConnection.
#include "base/log.h"
#include "http/server_connection.h"

#include <fmt/chrono.h>

#include <ctime>
#include <utility>

namespace divisi::http {

namespace {

// How long a client may go on sending after the last word.
constexpr auto kLinger = std::chrono::seconds(2);

std::string date() {
  return fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(std::time(nullptr)));
}

bool has_no_body(int status) {
  return status < 200 || status == 204 || status == 304;
}

}  // namespace

void ServerConnection::send_head(const ResponseHead& head, std::optional<std::size_t> length) {
  if (state_ != State::kAnswering) return;
  const bool bare = has_no_body(head.status);
  chunked_ = !length && !bare && !http_1_0_;
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

void ServerConnection::linger() {
  state_ = State::kLingering;
  wire_->consume(wire_->input().size());
  wire_->set_reading(true);
  if (wire_->unsent() > 0) return watch_output();
  wire_->shutdown_write();
  if (wire_->ended()) return close();
  arm(kLinger, &ServerConnection::close);
}

}  // namespace divisi::http
