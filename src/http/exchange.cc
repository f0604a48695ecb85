#include "http/exchange.h"

#include "http/while_alive.h"

#include <cerrno>
#include <cstdint>
#include <utility>

namespace divisi::http {

namespace {

// A server sends one or two "100 Continue" or "103 Early Hints"; endless ones are an attack.
constexpr int kMaxInterimAnswers = 16;

Status connection_error(int error) {
  if (error == EACCES) {
    return {Code::kUnauthorized, "the server refused our certificate"};
  }
  if (error == ETIMEDOUT) return {Code::kTimeout, "the server does not answer any more"};
  return make_status(Code::kUnavailable, "the connection broke: {}", errno_text(error));
}

}  // namespace

Exchange::Exchange(std::shared_ptr<Wire> wire, Options options, Events events)
    : wire_(std::move(wire)),
      options_(options),
      events_(std::move(events)),
      last_heard_(wire_->reactor().now()),
      body_sent_(!options.body_follows) {
  expect_answer();
}

void Exchange::expect_answer() {
  // A body that is passed on as it comes has no limit here: who collects it has one.
  parser_ = std::make_unique<Parser>(
      Parser::Kind::kResponse,
      Limits{.max_header_bytes = options_.max_header_bytes, .max_body_bytes = SIZE_MAX});
  if (options_.head_only) parser_->expect_no_body();
}

void Exchange::start(std::string request) {
  wire_->set_user(while_alive(weak_from_this(), &Exchange::on_input), nullptr);
  wire_->write(std::move(request));
}

void Exchange::set_paused(bool paused) {
  if (ended_ || paused == paused_) return;
  paused_ = paused;
  wire_->set_reading(!paused);
  if (paused) return;
  last_heard_ = wire_->reactor().now();  // the silence was ours
  wire_->reactor().post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && !self->ended_ && !self->paused_) self->advance();
  });
}

void Exchange::write(std::string_view piece) {
  if (ended_ || body_sent_) return;
  std::string chunk;
  append_chunk(chunk, piece);
  wire_->write(std::move(chunk));
}

void Exchange::finish_body() {
  if (ended_ || std::exchange(body_sent_, true)) return;
  wire_->write(std::string(kLastChunk));
}

void Exchange::abandon() {
  // The events stay until the end: this may be inside one of them.
  if (!std::exchange(ended_, true)) wire_->close();
}

void Exchange::on_input() {
  if (ended_ || upgrading_) return;
  last_heard_ = wire_->reactor().now();
  advance();
}

// Reads, tells, and ends when all is told.
void Exchange::advance() {
  const auto keep = shared_from_this();
  if (delivering_ || upgrading_) return;  // a callback of ours resumed: the loop below goes on
  read_answer();
  deliver();
  if (ended_ || upgrading_ || !raw_.empty() || (inflater_ && inflater_->full())) return;
  if (!problem_.ok()) {
    end({.status = problem_, .untouched = !touched_});
  } else if (head_told_ && parser_->done()) {
    complete();
  } else if (wire_->ended()) {
    end({.status = why_it_ended(), .untouched = !touched_});
  }
}

void Exchange::read_answer() {
  while (!ended_ && !upgrading_ && problem_.ok() && !parser_->done()) {
    const auto bytes = wire_->input();
    touched_ = touched_ || !bytes.empty();
    if (bytes.empty() && !(wire_->ended() && wire_->error() == 0 && parser_->has_head())) return;
    if (bytes.empty()) {
      if (auto wrong = parser_->end()) problem_ = {Code::kUnavailable, std::move(wrong->text)};
      return;
    }
    const auto used = parser_->feed(bytes, raw_);
    if (!used) {
      // What a server sends may be a page of somebody else's: its words stay out of our line.
      problem_ =
          make_status(Code::kUnavailable, "the answer cannot be used: {}", used.error().text);
      return;
    }
    wire_->consume(*used);
    if (!parser_->has_head()) return;
    if (!head_told_) tell_head();
  }
}

void Exchange::tell_head() {
  ResponseHead head = std::move(parser_->response());
  if (head.status == 101) {
    if (options_.upgrade) return hand_over(std::move(head));
    problem_ = {Code::kUnavailable, "the server changed the protocol without being asked"};
    return;
  }
  if (head.status < 200) {
    if (++interim_answers_ > kMaxInterimAnswers) {
      problem_ = {Code::kUnavailable, "interim answers without end"};
    }
    return expect_answer();
  }
  head_told_ = true;
  const auto encoding = head.headers.get("Content-Encoding");
  if (parser_->has_body() && (same_name(encoding, "gzip") || same_name(encoding, "x-gzip"))) {
    inflater_.emplace();
    head.headers.remove("Content-Encoding");
    head.headers.remove("Content-Length");
  }
  if (events_.on_head) {
    delivering_ = true;
    events_.on_head(std::move(head));
    delivering_ = false;
  }
}

// Gives the body on: at once if it came plain, in bounded pieces if it came compressed.
void Exchange::deliver() {
  delivering_ = true;
  while (!ended_ && !paused_ && (!raw_.empty() || (inflater_ && inflater_->full()))) {
    std::string plain;
    std::string_view piece;
    if (inflater_) {
      const auto text = inflater_->next(raw_);
      if (!text) {
        problem_ = text.error();
        raw_.clear();
        break;
      }
      piece = *text;
    } else {
      plain = std::exchange(raw_, {});
      piece = plain;
    }
    if (piece.empty()) continue;
    if (events_.on_body && !events_.on_body(piece)) {
      delivering_ = false;
      return end({.status = {Code::kCancelled, "given up by the caller"}});
    }
  }
  delivering_ = false;
}

void Exchange::complete() {
  if (inflater_ && !inflater_->complete()) {
    return end({.status = {Code::kUnavailable, "the gzip body is cut short"}});
  }
  const bool reusable = parser_->keeps_alive() && body_sent_ && wire_->unsent() == 0 &&
                        wire_->input().empty() && !wire_->ended() && wire_->broken() == 0;
  end({.reusable = reusable});
}

Status Exchange::why_it_ended() {
  if (wire_->error() != 0) return connection_error(wire_->error());
  if (!touched_) {
    return {Code::kUnavailable, "the server closed the connection without an answer"};
  }
  return {Code::kUnavailable, "the connection ended inside the head of the answer"};
}

void Exchange::hand_over(ResponseHead head) {
  if (wire_->unsent() != 0) {
    problem_ = {Code::kUnavailable, "the server changed the protocol before it had the request"};
    return;
  }
  // In a turn of its own: the wire's callback that we are in has to return first.
  wire_->set_reading(false);
  wire_->set_user(nullptr, nullptr);
  upgrading_ = true;
  wire_->reactor().post([weak = weak_from_this(), head = std::move(head)]() mutable {
    const auto self = weak.lock();
    if (!self || self->ended_) return;  // cancelled meanwhile
    self->events_.on_head(std::move(head));
    if (self->ended_) return;
    std::string rest;
    auto stream = self->wire_->release(rest);
    self->events_.on_upgrade(std::move(stream), std::move(rest));
    self->end({.upgraded = true});
  });
}

void Exchange::end(Ending ending) {
  if (std::exchange(ended_, true)) return;
  const auto keep = shared_from_this();
  const auto events = std::exchange(events_, {});
  if (ending.reusable) {
    wire_->set_user(nullptr, nullptr);
    wire_->set_reading(true);
  } else {
    wire_->close();
  }
  if (events.on_end) events.on_end(std::move(ending));
}

}  // namespace divisi::http
