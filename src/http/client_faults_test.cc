// The client and servers that do not behave: every failure is one line that names the request, and
// nothing hangs.
#include "http/testing/loop_fixture.h"
#include "http/testing/raw_peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <zlib.h>

namespace divisi::http {
namespace {

using namespace std::chrono_literals;
using testing::get;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RawPeer;
using testing::Recorder;
using testing::ScriptedServer;

std::string gzip(std::string_view text) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  std::string in(text);
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string with_length(std::string_view body, std::string_view more = "") {
  return fmt::format("HTTP/1.1 200 OK\r\n{}Content-Length: {}\r\n\r\n{}", more, body.size(), body);
}

class ClientFaultsTest : public testing::LoopFixture {
 protected:
  // A server that reads one request head and then follows the script.
  void script(std::function<void(RawPeer&, int)> script) {
    scripted_ =
        std::make_unique<ScriptedServer>([script = std::move(script)](RawPeer& peer, int n) {
          peer.read_until("\r\n\r\n");
          script(peer, n);
        });
    url_ = *Url::parse(fmt::format("http://127.0.0.1:{}", scripted_->port()));
  }
  void answer(std::string bytes) {
    script([bytes = std::move(bytes)](RawPeer& peer, int) { peer.write(bytes); });
  }
  ~ClientFaultsTest() override {
    on_loop([&] {
      calls_.clear();
      client_.reset();
    });
  }

  // The message of a call that must fail, behind "GET http://…/x: ".
  std::string failure_of(CallOptions options = {.deadline = 30s}) {
    const auto result = fetch({.target = "/x"}, options);
    if (result) return "it did not fail";
    const std::string name = "GET " + url_.origin() + "/x: ";
    EXPECT_THAT(result.error().message(), ::testing::StartsWith(name));
    EXPECT_THAT(result.error().message(), Not(HasSubstr("\n")));
    return result.error().message().substr(std::min(name.size(), result.error().message().size()));
  }

  std::unique_ptr<ScriptedServer> scripted_;
};

TEST_F(ClientFaultsTest, NobodyListens) {
  script([](RawPeer&, int) {});
  scripted_.reset();
  EXPECT_THAT(failure_of(), HasSubstr("cannot reach tcp://127.0.0.1:"));
}

TEST_F(ClientFaultsTest, ANameThatDoesNotExist) {
  url_ = *Url::parse("http://no.such.host.invalid:1");
  EXPECT_THAT(failure_of(), HasSubstr("no.such.host.invalid"));
}

TEST_F(ClientFaultsTest, ANameIsResolvedAndEachOfItsAddressesIsTried) {
  answer(with_length("hi"));  // on 127.0.0.1 only, not on ::1
  url_.host = "localhost";
  const auto result = fetch({.target = "/"});
  ASSERT_TRUE(result.has_value()) << result.error().message();
}

TEST_F(ClientFaultsTest, ClosedWithoutAnAnswer) {
  answer("");
  EXPECT_EQ(failure_of(), "the server closed the connection without an answer");
}

TEST_F(ClientFaultsTest, HtmlOfSomebodyElse) {
  answer("<html><body>Welcome to the hotel</body></html>");
  EXPECT_EQ(failure_of(), "the answer cannot be used: the answer is not HTTP/1");
}

TEST_F(ClientFaultsTest, EndlessHeaders) {
  script([](RawPeer& peer, int) {
    peer.write("HTTP/1.1 200 OK\r\n");
    while (peer.write("X-Filler: 0123456789012345678901234567890123456789\r\n")) {
    }
  });
  EXPECT_EQ(failure_of(), "the answer cannot be used: a head of more than 65536 bytes");
}

TEST_F(ClientFaultsTest, EndlessInterimAnswers) {
  script([](RawPeer& peer, int) {
    while (peer.write("HTTP/1.1 100 Continue\r\n\r\n")) {
    }
  });
  EXPECT_EQ(failure_of(), "interim answers without end");
}

TEST_F(ClientFaultsTest, AFewInterimAnswersAreSkipped) {
  answer("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" +
         with_length("ok"));
  const auto result = fetch({.target = "/"});
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(result->body, "ok");
}

TEST_F(ClientFaultsTest, ABodyBeyondTheLimitStopsThere) {
  // The server's thread ends after the test.
  const auto sent = std::make_shared<std::atomic<std::size_t>>(0);
  script([sent](RawPeer& peer, int) {
    peer.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    const std::string chunk = "10000\r\n" + std::string(0x10000, 'x') + "\r\n";
    while (*sent < (100u << 20) && peer.write(chunk)) *sent += 0x10000;
  });
  EXPECT_EQ(failure_of({.limits = {.max_body_bytes = 1 << 20}}),
            "the answer has more than 1048576 bytes");
  EXPECT_LT(*sent, 100u << 20);
}

TEST_F(ClientFaultsTest, AnAnnouncedBodyBeyondTheLimit) {
  answer("HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\nabc");
  EXPECT_EQ(failure_of({.limits = {.max_body_bytes = 1 << 20}}),
            "the answer has more than 1048576 bytes");
}

TEST_F(ClientFaultsTest, SlowBytesMeetTheDeadline) {
  script([](RawPeer& peer, int) {
    peer.write("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    while (peer.write("x")) std::this_thread::yield();
  });
  EXPECT_EQ(failure_of({.deadline = 100ms, .idle_timeout = 10s}), "not done within 0.1 s");
}

TEST_F(ClientFaultsTest, SilenceMeetsTheIdleTimeout) {
  script([](RawPeer& peer, int) { peer.read_to_end(); });
  EXPECT_EQ(failure_of({.deadline = 0s, .idle_timeout = 50ms}),
            "the server has been silent for 0.05 s");
}

TEST_F(ClientFaultsTest, TruncatedBodies) {
  answer("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(failure_of(), "the connection ended 7 bytes before the end of the body");
  on_loop([&] { client_.reset(); });
  answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab");
  EXPECT_EQ(failure_of(), "the connection ended inside a chunked body");
  on_loop([&] { client_.reset(); });
  answer("HTTP/1.1 200 OK\r\nContent-");
  EXPECT_EQ(failure_of(), "the connection ended inside the head of the answer");
}

TEST_F(ClientFaultsTest, AResetInsideTheBody) {
  const auto recorder = std::make_shared<Recorder>();
  std::promise<void> first;
  recorder->at_piece = [&](std::size_t n) {
    if (n == 1) first.set_value();
  };
  script([seen = first.get_future().share()](RawPeer& peer, int) {
    peer.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    seen.wait();
    peer.reset();
  });
  start({.target = "/x"}, {}, recorder);
  const auto status = get(recorder->done.get_future());
  EXPECT_THAT(status.message(), HasSubstr("the connection broke: Connection reset by peer"));
  EXPECT_EQ(recorder->body, "abc");
}

TEST_F(ClientFaultsTest, AProtocolThatNobodyAskedFor) {
  answer("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n");
  EXPECT_EQ(failure_of(), "the server changed the protocol without being asked");
}

TEST_F(ClientFaultsTest, AnErrorAnswerThatComesBeforeTheBodyIsSentIsTheAnswer) {
  script([](RawPeer& peer, int) {
    peer.write(
        "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
    peer.shutdown_write();
    peer.read_to_end();
  });
  const auto result = fetch({.method = "POST", .target = "/", .body = std::string(30 << 20, 'x')});
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(result->status, 413);
}

// --- kept connections ---

// Answers once on the first connection, then closes it when the next request is there.
void answer_once_then_close(RawPeer& peer, int connection) {
  peer.write(with_length("hi"));
  if (connection == 0) peer.read_until("\r\n\r\n");
}

TEST_F(ClientFaultsTest, AStaleConnectionIsReplacedWhereTheMethodMayBeSentTwice) {
  script(answer_once_then_close);
  ASSERT_TRUE(fetch({.target = "/1"}).has_value());
  const auto second = fetch({.target = "/2"});
  ASSERT_TRUE(second.has_value()) << second.error().message();
  EXPECT_EQ(second->body, "hi");
  EXPECT_EQ(scripted_->connections(), 2);
}

TEST_F(ClientFaultsTest, AStaleConnectionFailsAPost) {
  script(answer_once_then_close);
  ASSERT_TRUE(fetch({.target = "/1"}).has_value());
  const auto second = fetch({.method = "POST", .target = "/2"});
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().message(), HasSubstr("without an answer"));
}

TEST_F(ClientFaultsTest, AFreshConnectionThatFailsIsNotTriedAgain) {
  answer("");
  EXPECT_FALSE(fetch({.target = "/"}).has_value());
  EXPECT_EQ(scripted_->connections(), 1);
}

TEST_F(ClientFaultsTest, AnAnswerThatBeganIsNotAskedForAgain) {
  script([](RawPeer& peer, int) {
    peer.write(with_length("hi"));
    peer.read_until("\r\n\r\n");
    peer.write("HTTP/1.1 2");
  });
  ASSERT_TRUE(fetch({.target = "/1"}).has_value());
  EXPECT_FALSE(fetch({.target = "/2"}).has_value());
  EXPECT_EQ(scripted_->connections(), 1);
}

// --- gzip ---

TEST_F(ClientFaultsTest, GzipIsDecodedAndItsHeadersGo) {
  const std::string text(1'000'000, 'z');
  answer(with_length(gzip(text), "Content-Encoding: gzip\r\n"));
  const auto result = fetch({.target = "/"});
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_TRUE(result->body == text);
  EXPECT_FALSE(result->headers.has("Content-Encoding"));
}

TEST_F(ClientFaultsTest, ABombStopsAtTheLimit) {
  answer(with_length(gzip(std::string(100 << 20, 'z')), "Content-Encoding: gzip\r\n"));
  EXPECT_EQ(failure_of({.limits = {.max_body_bytes = 1 << 20}}),
            "the answer has more than 1048576 bytes");
}

TEST_F(ClientFaultsTest, CompressedPiecesAreBoundedAndWaitWhilePaused) {
  answer(with_length(gzip(std::string(10 << 20, 'z')), "Content-Encoding: gzip\r\n"));
  const auto recorder = std::make_shared<Recorder>();
  std::promise<void> paused;
  recorder->at_piece = [&](std::size_t n) {
    if (n != 2) return;
    calls_.front()->pause();
    paused.set_value();
  };
  start({.target = "/"}, {}, recorder);
  get(paused.get_future());
  for (int i = 0; i < 10; ++i) on_loop([&] { EXPECT_EQ(recorder->pieces, 2u); });
  on_loop([&] { calls_.front()->resume(); });
  EXPECT_TRUE(get(recorder->done.get_future()).ok());
  EXPECT_EQ(recorder->body.size(), std::size_t{10} << 20);
  EXPECT_LE(recorder->largest, std::size_t{256} << 10);
}

TEST_F(ClientFaultsTest, DamagedAndTruncatedGzip) {
  std::string damaged =
      gzip("some text that is long enough to be compressed, compressed, compressed");
  damaged[12] = static_cast<char>(~damaged[12]);
  answer(with_length(damaged, "Content-Encoding: gzip\r\n"));
  EXPECT_THAT(failure_of(), HasSubstr("the gzip body is"));
  on_loop([&] { client_.reset(); });
  const auto whole = gzip("some text");
  answer(with_length(whole.substr(0, whole.size() - 4), "Content-Encoding: gzip\r\n"));
  EXPECT_EQ(failure_of(), "the gzip body is cut short");
}

}  // namespace
}  // namespace divisi::http
