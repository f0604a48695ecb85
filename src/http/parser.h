// Parser: bytes to one message, however they are cut.
//
//   Parser parser(Parser::Kind::kResponse, limits);
//   auto used = parser.feed(input, body);   // body grows by what was decoded of it
//
// Heads are read by Beast once they are complete; the framing of bodies is done here, byte by byte,
// so that any cut of the same bytes gives the same result. Strict: lines end with CRLF, folded
// headers and every shape that two servers could read differently are refused.
#pragma once

#include "http/body_framing.h"
#include "http/message.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace divisi::http {

// What is wrong with a message, and the status a server answers with.
struct ParseError {
  int status = 400;
  std::string text{};
};

class Parser {
 public:
  enum class Kind { kRequest, kResponse };

  Parser(Kind kind, Limits limits) : kind_(kind), limits_(limits) {}

  // The answer to HEAD has no body, whatever its headers say.
  void expect_no_body() { no_body_ = true; }

  // How many of the bytes were used: all of a complete head, all of the body that is there. What is
  // left must be given again with more behind it, unless done(). Stops at the end of the message.
  tl::expected<std::size_t, ParseError> feed(std::string_view bytes, std::string& body);

  // The same for the head alone: the body begins with the next feed().
  tl::expected<std::size_t, ParseError> feed_head(std::string_view bytes);

  // The peer sends no more. Fails unless the message may end here.
  std::optional<ParseError> end();

  bool has_head() const { return has_head_; }
  bool done() const { return has_head_ && framing_.done(); }

  // Once there is a head.
  Request& request() { return request_; }
  ResponseHead& response() { return response_; }
  bool http_1_0() const { return http_1_0_; }
  bool keeps_alive() const { return keeps_alive_; }
  bool to_the_end() const { return framing_.to_the_end(); }
  bool has_body() const { return has_body_; }

 private:
  // The size of the head if all of it is there; 0 if not.
  tl::expected<std::size_t, ParseError> find_head(std::string_view bytes);
  std::optional<ParseError> read_head(std::string_view head);
  template <bool kIsRequest>
  std::optional<ParseError> read_head_as(std::string_view head);
  std::optional<ParseError> check_request() const;
  ParseError error(int status, std::string text) const { return {status, std::move(text)}; }

  const Kind kind_;
  const Limits limits_;
  bool no_body_ = false;
  std::size_t scanned_ = 0;  // of the head, without finding its end
  bool has_head_ = false;
  bool http_1_0_ = false;
  bool keeps_alive_ = false;
  bool has_body_ = false;
  std::size_t body_bytes_ = 0;
  Request request_;
  ResponseHead response_;
  BodyFraming framing_;
};

}  // namespace divisi::http
