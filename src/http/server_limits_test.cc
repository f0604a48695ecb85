// The server and clients that do not behave: every shape of a bad request, slow and greedy ones.
#include "http/testing/loop_fixture.h"
#include "http/testing/raw_peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::http {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::EndsWith;
using testing::get;
using ::testing::HasSubstr;
using testing::RawPeer;
using ::testing::StartsWith;

void echo(const std::shared_ptr<ServerCall>& call) {
  call->respond({.status = 200, .body = call->request().target + call->request().body});
}

class ServerLimitsTest : public testing::LoopFixture {
 protected:
  // All that the server says to these bytes before it closes.
  std::string say(std::string_view bytes) {
    RawPeer peer = RawPeer::connect(url_.port);
    peer.write(bytes);
    return peer.read_to_end();
  }
};

struct BadRequest {
  const char* why;
  std::string bytes;
  int status;
};

class BadRequestTest : public ServerLimitsTest, public ::testing::WithParamInterface<BadRequest> {};

TEST_P(BadRequestTest, IsRefusedAndTheConnectionCloses) {
  int calls = 0;
  serve([&](const auto& call) {
    ++calls;
    echo(call);
  });
  const auto answer = say(GetParam().bytes);
  EXPECT_THAT(answer, StartsWith(fmt::format("HTTP/1.1 {} ", GetParam().status)));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  on_loop([&] { EXPECT_EQ(calls, 0); });
}

const BadRequest kBadRequests[] = {
    {"length and encoding",
     "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: "
     "chunked\r\n\r\n0\r\n\r\n",
     400},
    {"encoding and length",
     "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: "
     "4\r\n\r\n0\r\n\r\n",
     400},
    {"two lengths",
     "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", 400},
    {"a list of lengths", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4, 5\r\n\r\nabcde", 400},
    {"a signed length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\nabcd", 400},
    {"an endless length",
     "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400},
    {"another encoding", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
     501},
    {"chunked, but hidden", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n",
     501},
    {"chunks in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501},
    {"bare LF", "GET / HTTP/1.1\nHost: x\n\n", 400},
    {"bare LF inside", "GET / HTTP/1.1\r\nHost: x\nX: y\r\n\r\n", 400},
    {"a folded header", "GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n", 400},
    {"a space before the colon", "GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400},
    {"no name", "GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n", 400},
    {"no host", "GET / HTTP/1.1\r\n\r\n", 400},
    {"two hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400},
    {"a zero byte", std::string("GET / HTTP/1.1\r\nHost: x\r\nX: \0\r\n\r\n", 34), 400},
    {"no target", "GET HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"a future version", "GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505},
    {"TLS", "\x16\x03\x01\x02\x00\x01", 400},
    {"an empty line first", "\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"a chunk without size", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
     400},
    {"a chunk that is longer than it says",
     "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", 400},
    {"a chunk with bare LF",
     "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\nab\r\n0\r\n\r\n", 400},
    {"a chunk of 2^64 bytes",
     "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n", 400},
    {"another expectation",
     "POST / HTTP/1.1\r\nHost: x\r\nExpect: magic\r\nContent-Length: 1\r\n\r\n", 417},
};
INSTANTIATE_TEST_SUITE_P(Shapes, BadRequestTest, ::testing::ValuesIn(kBadRequests),
                         [](const auto& shape) {
                           std::string name = shape.param.why;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

TEST_F(ServerLimitsTest, EndlessHeadersGet431) {
  serve(echo, {.limits = {.max_header_bytes = 4096}});
  EXPECT_THAT(say("GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(10'000, 'a')),
              StartsWith("HTTP/1.1 431 "));
  std::string many = "GET / HTTP/1.1\r\nHost: x\r\n";
  for (int i = 0; i < 1'000; ++i) many += "X: y\r\n";
  EXPECT_THAT(say(many), StartsWith("HTTP/1.1 431 "));
}

TEST_F(ServerLimitsTest, AnAnnouncedBodyThatIsTooLargeGets413BeforeItComes) {
  serve(echo, {.limits = {.max_body_bytes = 1000}});
  EXPECT_THAT(
      say("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n"),
      StartsWith("HTTP/1.1 413 "));
}

TEST_F(ServerLimitsTest, AChunkedBodyThatGrowsTooLargeGets413AndTheAnswerIsRead) {
  serve(echo, {.limits = {.max_body_bytes = 1000}});
  RawPeer peer = RawPeer::connect(url_.port);
  peer.write("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::string chunk = "10000\r\n" + std::string(0x10000, 'x') + "\r\n";
  for (int i = 0; i < 50; ++i) {
    if (!peer.write(chunk)) break;  // a client that reads only when it has sent all
  }
  EXPECT_THAT(peer.read_to_end(), StartsWith("HTTP/1.1 413 "));
}

TEST_F(ServerLimitsTest, PipelinedRequestsAreAnsweredInOrder) {
  std::vector<std::shared_ptr<ServerCall>> held;
  std::promise<void> arrived;
  serve([&](auto call) {
    if (call->request().target != "/1") return echo(call);
    held.push_back(std::move(call));
    arrived.set_value();
  });
  RawPeer peer = RawPeer::connect(url_.port);
  peer.write(
      "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nPOST /2 HTTP/1.1\r\nHost: x\r\nContent-Length: "
      "3\r\n\r\nabc"
      "GET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  get(arrived.get_future());
  on_loop([&] {
    echo(held.front());
    held.clear();
  });
  const auto answers = peer.read_to_end();
  const auto first = answers.find("\r\n\r\n/1");
  const auto second = answers.find("\r\n\r\n/2abc");
  const auto third = answers.find("\r\n\r\n/3");
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_NE(third, std::string::npos);
}

TEST_F(ServerLimitsTest, AClientThatTakesNoAnswersMakesTheServerWaitNotGrow) {
  int calls = 0;
  serve([&](const auto& call) {
    ++calls;
    call->respond({.status = 200, .body = std::string(1 << 20, 'x')});
  });
  RawPeer peer = RawPeer::connect(url_.port);
  std::string many;
  for (int i = 0; i < 200; ++i) many += "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  peer.write(many);
  for (int i = 0; i < 50; ++i) on_loop([&] { EXPECT_LT(calls, 100); });
  // And all of them are answered once it reads.
  peer.write("GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_GT(peer.read_to_end().size(), std::size_t{201} << 20);
}

TEST_F(ServerLimitsTest, AClientThatAsksMayGoOn) {
  serve(echo);
  RawPeer peer = RawPeer::connect(url_.port);
  peer.write(
      "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\nConnection: "
      "close\r\n\r\n");
  EXPECT_EQ(peer.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  peer.write("abcd");
  EXPECT_THAT(peer.read_to_end(), AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), EndsWith("/pabcd")));
}

TEST_F(ServerLimitsTest, AHeadThatDoesNotComeInTimeGets408) {
  serve(echo, {.header_timeout = 1s});  // since the accept: also for the client to say something
  EXPECT_THAT(say("GET / HTTP/1.1\r\nHost"), StartsWith("HTTP/1.1 408 "));
  EXPECT_EQ(say(""), "") << "who says nothing hears nothing";
}

TEST_F(ServerLimitsTest, ABodyThatStopsGets408) {
  serve(echo, {.body_timeout = 50ms});
  EXPECT_THAT(say("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"),
              StartsWith("HTTP/1.1 408 "));
}

TEST_F(ServerLimitsTest, AConnectionIsNotKeptForEver) {
  serve(echo, {.keep_alive = 50ms});
  EXPECT_THAT(say("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(ServerLimitsTest, AnOldClientGetsAnAnswerInPiecesUntilTheEnd) {
  serve([](const auto& call) {
    call->start({.status = 200});
    call->write("one ");
    call->write("two");
    call->finish();
  });
  const auto answer = say("GET / HTTP/1.0\r\n\r\n");
  EXPECT_THAT(answer, ::testing::Not(HasSubstr("chunked")));
  EXPECT_THAT(answer, EndsWith("\r\n\r\none two"));
}

TEST_F(ServerLimitsTest, MoreConnectionsThanAllowedAreClosed) {
  serve(echo, {.max_connections = 1});
  RawPeer first = RawPeer::connect(url_.port);
  first.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(first.read_until("\r\n\r\n/"), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(RawPeer::connect(url_.port).read_to_end(), "");
}

TEST_F(ServerLimitsTest, AHandlerIsToldWhenItsClientGoes) {
  std::shared_ptr<ServerCall> running;
  std::promise<void> arrived;
  std::promise<void> gone;
  serve([&](auto call) {
    running = std::move(call);
    running->start({.status = 200});
    running->on_gone([&] { gone.set_value(); });
    arrived.set_value();
  });
  {
    RawPeer peer = RawPeer::connect(url_.port);
    peer.write("GET /watch HTTP/1.1\r\nHost: x\r\n\r\n");
    get(arrived.get_future());
  }
  get(gone.get_future());
  on_loop([&] {
    running->write("to nobody");
    running.reset();
  });
}

TEST_F(ServerLimitsTest, AnAnswerNobodyTakesIsGivenUp) {
  std::promise<void> gone;
  std::shared_ptr<ServerCall> running;
  serve(
      [&](auto call) {
        running = std::move(call);
        running->on_gone([&] { gone.set_value(); });
        running->start({.status = 200});
        running->write(std::string(64 << 20, 'x'));
      },
      {.body_timeout = 100ms});
  RawPeer peer = RawPeer::connect(url_.port);
  peer.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  get(gone.get_future());
  on_loop([&] { running.reset(); });
}

TEST_F(ServerLimitsTest, AnAnswerWithALineBreakInAHeaderIsNotSent) {
  serve([](const auto& call) {
    call->respond({.headers = {{"X", "a\r\nInjected: b"}}, .body = "x"});
  });
  const auto answer = say("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 500 "), ::testing::Not(HasSubstr("Injected"))));
}

}  // namespace
}  // namespace divisi::http
