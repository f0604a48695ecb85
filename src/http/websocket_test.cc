// WebSocket: frames alone, and both roles over a real connection.
#include "http/websocket.h"

#include "http/testing/loop_fixture.h"
#include "http/testing/raw_peer.h"
#include "http/websocket_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::http {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::get;
using ::testing::HasSubstr;
using testing::RawPeer;
using testing::Recorder;

std::string frame(Opcode opcode, std::string_view payload, bool final = true) {
  auto bytes = encode_frame(opcode, payload, std::nullopt);
  if (!final) bytes[0] = static_cast<char>(bytes[0] & 0x7f);
  return bytes;
}

// What a reader makes of bytes that come in pieces of `cut`.
std::vector<std::string> read_all(std::string_view bytes, std::size_t cut, FrameReader reader) {
  std::vector<std::string> seen;
  std::string held;
  while (!bytes.empty()) {
    held += bytes.substr(0, cut);
    bytes.remove_prefix(std::min(cut, bytes.size()));
    std::string_view left = held;
    while (const auto message = reader.next(left)) {
      seen.push_back(fmt::format("{}:{}", static_cast<int>(message->opcode), message->payload));
    }
    held.erase(0, held.size() - left.size());
  }
  if (reader.failed()) seen.push_back(fmt::format("!{}", static_cast<int>(reader.failed()->code)));
  return seen;
}

TEST(FrameReaderTest, MessagesComeWholeHoweverTheyAreCut) {
  const std::string bytes = frame(Opcode::kText, "one") + frame(Opcode::kText, "tw", false) +
                            frame(Opcode::kPing, "p") + frame(Opcode::kContinuation, "o") +
                            frame(Opcode::kBinary, std::string(300, 'x')) +
                            frame(Opcode::kBinary, std::string(70'000, 'y'));
  for (const std::size_t cut : {1u, 2u, 3u, 7u, 1000u, 100'000u}) {
    EXPECT_THAT(read_all(bytes, cut, FrameReader(false, 1 << 20)),
                ElementsAre("1:one", "9:p", "1:two", "2:" + std::string(300, 'x'),
                            "2:" + std::string(70'000, 'y')));
  }
}

TEST(FrameReaderTest, MaskedFramesComeBackPlain) {
  const auto bytes = encode_frame(Opcode::kText, "secret words", std::array<char, 4>{1, 2, 3, 4});
  EXPECT_EQ(bytes.find("secret"), std::string::npos);
  EXPECT_THAT(read_all(bytes, 5, FrameReader(true, 100)), ElementsAre("1:secret words"));
}

TEST(FrameReaderTest, EveryBadFrameHasItsCode) {
  const auto outcome = [](const std::string& bytes) {
    return read_all(bytes, bytes.size(), FrameReader(false, 1000)).back();
  };
  EXPECT_EQ(outcome("\xC1\x01x"), "!1002") << "reserved bit";
  EXPECT_EQ(outcome("\x83\x01x"), "!1002") << "unknown opcode";
  EXPECT_EQ(outcome("\x8B\x01x"), "!1002") << "unknown control opcode";
  EXPECT_EQ(outcome(encode_frame(Opcode::kText, "x", std::array<char, 4>{})), "!1002") << "masked";
  EXPECT_EQ(outcome(frame(Opcode::kContinuation, "x")), "!1002");
  EXPECT_EQ(outcome(frame(Opcode::kText, "x", false) + frame(Opcode::kText, "y")), "!1002");
  EXPECT_EQ(outcome(frame(Opcode::kPing, "x", false)), "!1002");
  EXPECT_EQ(outcome(frame(Opcode::kPing, std::string(126, 'x'))), "!1002");
  EXPECT_EQ(outcome(std::string("\x81\x7e\x00\x01x", 5)), "!1002") << "long form of a short length";
  EXPECT_EQ(outcome(frame(Opcode::kText, "\xff\xfe")), "!1007");
  EXPECT_EQ(outcome(frame(Opcode::kClose, "x")), "!1002");
  EXPECT_EQ(outcome(frame(Opcode::kClose, encode_close(static_cast<CloseCode>(1006), ""))),
            "!1002");
  EXPECT_EQ(outcome(frame(Opcode::kBinary, std::string(1001, 'x')).substr(0, 4)), "!1009")
      << "refused before it comes";
  EXPECT_EQ(outcome(frame(Opcode::kBinary, std::string(600, 'x'), false) +
                    frame(Opcode::kContinuation, std::string(600, 'x')).substr(0, 4)),
            "!1009");
}

TEST(FrameReaderTest, TextIsCheckedAgainstTheRulesOfUtf8) {
  for (const char* good : {"", "ascii", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x8e\xbb"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const char* bad : {"\x80", "\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                          "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xc3\x28"}) {
    EXPECT_FALSE(is_utf8(bad));
  }
}

class WebSocketTest : public testing::LoopFixture {
 protected:
  ~WebSocketTest() override {
    on_loop([&] {
      near_.reset();
      far_.reset();
    });
  }

  void serve_sockets(WebSocket::Handlers handlers, WebSocket::Options options = {}) {
    serve([this, handlers = std::move(handlers), options](const auto& call) {
      auto headers = WebSocket::answer_headers(call->request(), "talk");
      if (!headers) return call->respond({.status = 400, .body = headers.error().message()});
      call->upgrade(
          *std::move(headers), [=, this](std::shared_ptr<io::Stream> stream, std::string rest) {
            far_ = WebSocket::attach(*reactor_, WebSocket::Role::kServer, std::move(stream),
                                     std::move(rest), handlers, options);
            attached_.set_value();
          });
    });
  }

  void connect(WebSocket::Handlers handlers) {
    std::string key;
    const auto recorder = std::make_shared<Recorder>();
    start({.target = "/", .headers = WebSocket::request_headers(key, {"talk"})}, {.upgrade = true},
          recorder);
    ASSERT_TRUE(get(recorder->done.get_future()).ok());
    const auto checked = WebSocket::check_answer(recorder->head, key, {"talk"});
    ASSERT_TRUE(checked.ok()) << checked.message();
    on_loop([&] {
      near_ = WebSocket::attach(*reactor_, WebSocket::Role::kClient, recorder->stream,
                                recorder->rest, std::move(handlers), {});
    });
    get(attached_.get_future());
  }

  std::promise<void> attached_;
  std::unique_ptr<WebSocket> near_, far_;
};

TEST_F(WebSocketTest, MessagesTravelBothWaysUntilOneSideCloses) {
  std::promise<Status> near_closed;
  std::promise<Status> far_closed;
  std::vector<std::string> got;
  std::promise<void> all;
  serve_sockets({.on_message = [&](std::string message,
                                   bool binary) { far_->send("echo " + message, binary); },
                 .on_closed = [&](Status status) { far_closed.set_value(std::move(status)); }});
  connect({.on_message =
               [&](std::string message, bool binary) {
                 got.push_back((binary ? "b:" : "t:") + message.substr(0, 20));
                 if (got.size() == 3) all.set_value();
               },
           .on_closed = [&](Status status) { near_closed.set_value(std::move(status)); }});
  on_loop([&] {
    near_->send("hello", false);
    near_->send(std::string("\xff\x00", 2), true);
    near_->send(std::string(1 << 20, 'x'), false);
  });
  get(all.get_future());
  EXPECT_THAT(got, ElementsAre("t:echo hello", "b:echo " + std::string("\xff\x00", 2),
                               "t:echo xxxxxxxxxxxxxxx"));
  on_loop([&] { near_->close(); });
  EXPECT_TRUE(get(near_closed.get_future()).ok());
  EXPECT_TRUE(get(far_closed.get_future()).ok());
}

TEST_F(WebSocketTest, AMessageThatIsTooLargeEndsTheSocketWithItsCode) {
  std::promise<Status> near_closed;
  std::promise<Status> far_closed;
  serve_sockets({.on_closed = [&](Status status) { far_closed.set_value(std::move(status)); }},
                {.max_message_bytes = 1000});
  connect({.on_closed = [&](Status status) { near_closed.set_value(std::move(status)); }});
  on_loop([&] { near_->send(std::string(1001, 'x'), true); });
  EXPECT_EQ(get(far_closed.get_future()).message(),
            "WebSocket: the other side sent a message that is too large");
  EXPECT_THAT(get(near_closed.get_future()).message(), HasSubstr("closed with 1009"));
}

TEST_F(WebSocketTest, APeerThatVanishesIsNoticed) {
  std::promise<Status> far_closed;
  serve_sockets({.on_closed = [&](Status status) { far_closed.set_value(std::move(status)); }});
  connect({});
  on_loop([&] { near_.reset(); });
  EXPECT_FALSE(get(far_closed.get_future()).ok());
}

TEST_F(WebSocketTest, APeerThatDoesNotAnswerPingsIsLost) {
  std::promise<Status> far_closed;
  serve_sockets({.on_closed = [&](Status status) { far_closed.set_value(std::move(status)); }},
                {.ping_every = 20ms});
  RawPeer peer = RawPeer::connect(url_.port);
  peer.write(
      "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
      "Sec-WebSocket-Protocol: talk\r\n\r\n");
  const auto answer = peer.read_until("\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"))
      << "the example of RFC 6455";
  EXPECT_EQ(get(far_closed.get_future()).code(), Code::kTimeout);
}

TEST_F(WebSocketTest, ARequestThatIsNoneIsRefused) {
  serve_sockets({});
  const auto answer = fetch({.target = "/"});
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 400);
  EXPECT_EQ(answer->body, "this is for WebSocket clients only");
  std::string key;
  const auto other = fetch({.target = "/", .headers = WebSocket::request_headers(key, {"other"})});
  EXPECT_THAT(other->body, HasSubstr("'talk'"));
}

TEST(WebSocketHandshakeTest, AnAnswerToSomebodyElseIsRefused) {
  std::string key;
  const auto headers = WebSocket::request_headers(key, {"a", "b"});
  EXPECT_EQ(headers.get("Sec-WebSocket-Protocol"), "a, b");
  Request request{.headers = headers};
  const ResponseHead good{.status = 101, .headers = *WebSocket::answer_headers(request, "b")};
  EXPECT_TRUE(WebSocket::check_answer(good, key, {"a", "b"}).ok());
  EXPECT_EQ(WebSocket::check_answer(good, key, {"a", "c"}).message(),
            "no WebSocket: we offered a and c, the server chose b");
  EXPECT_FALSE(WebSocket::check_answer(good, "another key").ok());
  EXPECT_THAT(WebSocket::check_answer({.status = 403, .reason = "Forbidden"}, key).message(),
              HasSubstr("403 Forbidden"));
}

}  // namespace
}  // namespace divisi::http
