// The parser alone: any cut of the same bytes gives the same result.
#include "http/parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::http {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// All that a parser makes of `bytes` that come in pieces of `cut`, as text.
std::string parse(Parser::Kind kind, std::string_view bytes, std::size_t cut,
                  bool head_only = false) {
  Parser parser(kind, {.max_header_bytes = 1000, .max_body_bytes = 1000});
  if (head_only) parser.expect_no_body();
  std::string held;
  std::string body;
  std::size_t used_in_all = 0;
  while (!parser.done() && !bytes.empty()) {
    held += bytes.substr(0, cut);
    bytes.remove_prefix(std::min(cut, bytes.size()));
    const auto used = parser.feed(held, body);
    if (!used) return fmt::format("{}: {}", used.error().status, used.error().text);
    held.erase(0, *used);
    used_in_all += *used;
  }
  if (!parser.done()) {
    if (const auto wrong = parser.end()) return "end: " + wrong->text;
  }
  return fmt::format("{} {} body='{}' used={} keeps={}", parser.request().target,
                     parser.response().status, body, used_in_all, parser.keeps_alive());
}

std::string parse_everyway(Parser::Kind kind, std::string_view bytes, bool head_only = false) {
  const auto whole = parse(kind, bytes, bytes.size(), head_only);
  for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
    EXPECT_EQ(parse(kind, bytes, cut, head_only), whole) << "in pieces of " << cut;
  }
  return whole;
}

constexpr auto kRequest = Parser::Kind::kRequest;
constexpr auto kResponse = Parser::Kind::kResponse;

TEST(ParserTest, RequestsOfAllFramings) {
  EXPECT_EQ(parse_everyway(kRequest, "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /next"),
            "/a 0 body='' used=28 keeps=true");
  EXPECT_EQ(
      parse_everyway(kRequest, "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET"),
      "/b 0 body='hello' used=53 keeps=true");
  EXPECT_EQ(parse_everyway(kRequest,
                           "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                           "3;ext=1\r\nabc\r\n0A \r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nmore"),
            "/c 0 body='abc0123456789' used=105 keeps=true");
  EXPECT_EQ(parse_everyway(kRequest, "GET / HTTP/1.0\r\n\r\n"), "/ 0 body='' used=18 keeps=false");
}

TEST(ParserTest, ResponsesOfAllFramings) {
  EXPECT_EQ(parse_everyway(kResponse, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"),
            "/ 200 body='hi' used=40 keeps=true");
  EXPECT_EQ(parse_everyway(kResponse, "HTTP/1.1 200 OK\r\n\r\nuntil the end"),
            "/ 200 body='until the end' used=32 keeps=false");
  EXPECT_EQ(parse_everyway(kResponse, "HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n"),
            "/ 204 body='' used=46 keeps=true");
  EXPECT_EQ(parse_everyway(kResponse, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", true),
            "/ 200 body='' used=38 keeps=true");
}

TEST(ParserTest, WhatEndsTooEarlySaysWhere) {
  EXPECT_EQ(parse_everyway(kResponse, "HTTP/1.1 200 OK\r\nContent-"),
            "end: the connection ended inside the head");
  EXPECT_EQ(parse_everyway(kResponse, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"),
            "end: the connection ended 3 bytes before the end of the body");
  EXPECT_EQ(
      parse_everyway(kResponse, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"),
      "end: the connection ended inside a chunked body");
}

TEST(ParserTest, WhatIsNoHttpIsRefusedAtItsFirstBytes) {
  EXPECT_EQ(parse_everyway(kResponse, "<html>"), "400: the answer is not HTTP/1");
  EXPECT_EQ(parse_everyway(kResponse, "HTTP/2 200"), "400: the answer is not HTTP/1");
  EXPECT_EQ(parse_everyway(kRequest, "\x16\x03\x01"), "400: not the start of a request");
}

TEST(ParserTest, LimitsHoldForEveryPart) {
  const std::string head = "HTTP/1.1 200 OK\r\n";
  EXPECT_THAT(parse(kResponse, head + "X: " + std::string(2000, 'x'), 100), StartsWith("431: "));
  EXPECT_THAT(parse_everyway(kResponse, head + "Content-Length: 1001\r\n\r\n"),
              StartsWith("413: "));
  const std::string chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_THAT(parse(kResponse, chunked + "3e9\r\n" + std::string(1001, 'x'), 50),
              StartsWith("413: "));
  EXPECT_THAT(parse(kResponse, chunked + "1;" + std::string(2000, 'x'), 50),
              HasSubstr("without end"));
  EXPECT_THAT(parse(kResponse, chunked + "0\r\nX: " + std::string(2000, 'x'), 50),
              HasSubstr("without end"));
  std::string tiny = chunked;
  for (int i = 0; i < 500; ++i) tiny += "1;xxxxxxxx\r\na\r\n";
  EXPECT_THAT(parse(kResponse, tiny, 50), HasSubstr("without end")) << "all extensions together";
}

}  // namespace
}  // namespace divisi::http
