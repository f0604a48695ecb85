// Our client and our server with each other, over loopback.
#include "http/testing/loop_fixture.h"
#include "http/testing/raw_peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>

namespace divisi::http {
namespace {

using namespace std::chrono_literals;
using testing::get;
using ::testing::HasSubstr;
using testing::Recorder;

// Answers with what it was asked.
void echo(const std::shared_ptr<ServerCall>& call) {
  const Request& request = call->request();
  call->respond({.status = 200,
                 .headers = {{"X-Method", request.method}, {"X-Target", request.target}},
                 .body = request.body});
}

class ClientServerTest : public testing::LoopFixture {};

TEST_F(ClientServerTest, ARequestComesBackWithItsAnswer) {
  serve(echo);
  const auto answer = fetch({.method = "POST", .target = "/a?b=c", .body = "hello"});
  ASSERT_TRUE(answer.has_value()) << answer.error().message();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->headers.get("x-method"), "POST");
  EXPECT_EQ(answer->headers.get("X-TARGET"), "/a?b=c");
  EXPECT_EQ(answer->body, "hello");
}

TEST_F(ClientServerTest, LargeBodiesGoBothWays) {
  serve(echo);
  const std::string large(20 << 20, 'x');
  const auto answer = fetch({.method = "PUT", .target = "/", .body = large});
  ASSERT_TRUE(answer.has_value()) << answer.error().message();
  EXPECT_TRUE(answer->body == large);
}

TEST_F(ClientServerTest, HeadHasTheHeadersOfGetAndNoBody) {
  serve([](const auto& call) { call->respond({.status = 200, .body = "12345"}); });
  for (int i = 0; i < 3; ++i) {
    const auto answer = fetch({.method = "HEAD", .target = "/"});
    ASSERT_TRUE(answer.has_value()) << answer.error().message();
    EXPECT_EQ(answer->headers.get("Content-Length"), "5");
    EXPECT_EQ(answer->body, "");
  }
}

TEST_F(ClientServerTest, OneConnectionServesManyCalls) {
  std::vector<std::string> peers;
  serve([&](const auto& call) {
    peers.push_back(call->peer());
    call->respond({.status = 204});
  });
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(fetch({.target = "/"}).has_value());
  EXPECT_THAT(peers, ::testing::Each(peers.front()));
  EXPECT_THAT(peers.front(), ::testing::StartsWith("127.0.0.1:"));
}

TEST_F(ClientServerTest, AnIdleConnectionCanBeClosedByHand) {
  std::vector<std::string> peers;
  serve([&](const auto& call) {
    peers.push_back(call->peer());
    call->respond({.status = 204});
  });
  ASSERT_TRUE(fetch({.target = "/"}).has_value());
  on_loop([&] { client_->close_idle(); });
  ASSERT_TRUE(fetch({.target = "/"}).has_value());
  EXPECT_NE(peers.at(0), peers.at(1));
}

TEST_F(ClientServerTest, AConnectionThatEndedWhileItWasIdleFreesItsPlace) {
  std::set<std::string> peers;
  serve([&](const auto& call) {
    peers.insert(call->peer());
    call->respond({.status = 204});
  });
  use_client({.server = url_, .max_connections = 1, .keep_alive = 1ms});
  for (std::size_t seen = 0; seen < 4;) {  // until the first three have ended
    const auto answer = fetch({.target = "/"});
    ASSERT_TRUE(answer.has_value()) << answer.error().message();
    on_loop([&] { seen = peers.size(); });
  }
}

TEST_F(ClientServerTest, ABusyConnectionIsNotKeptAfterAChangeOfCredentials) {
  std::vector<std::string> peers;
  std::shared_ptr<ServerCall> held;
  std::promise<void> arrived;
  serve([&](auto call) {
    peers.push_back(call->peer());
    if (peers.size() > 1) return call->respond({.status = 204});
    held = std::move(call);
    arrived.set_value();
  });
  auto first = start_fetch({.target = "/"});
  get(arrived.get_future());
  on_loop([&] {
    client_->close_idle();
    held->respond({.status = 204});
    held.reset();
  });
  ASSERT_TRUE(get(std::move(first)).has_value());
  ASSERT_TRUE(fetch({.target = "/"}).has_value());
  EXPECT_NE(peers.at(0), peers.at(1));
}

TEST_F(ClientServerTest, CallsBeyondTheLimitWaitInOrder) {
  std::vector<std::string> order;
  std::vector<std::shared_ptr<ServerCall>> held;
  std::promise<void> two;
  serve([&](auto call) {
    order.push_back(call->request().target);
    held.push_back(std::move(call));
    if (held.size() == 2) two.set_value();
  });
  use_client({.server = url_, .max_connections = 2});
  std::vector<std::future<Result<Response>>> answers;
  for (const char* target : {"/0", "/1", "/2", "/3", "/4"}) {
    answers.push_back(start_fetch({.target = target}));
  }
  get(two.get_future());
  on_loop([&] {
    EXPECT_EQ(held.size(), 2u) << "no third connection";
    held[0]->respond({.status = 200});
  });
  EXPECT_TRUE(get(std::move(answers[0])).has_value());
  // One connection is left to move: what waits comes in order.
  for (std::size_t next = 2; next < 5; ++next) {
    for (bool there = false; !there;) on_loop([&] { there = held.size() > next; });
    on_loop([&] { held[next]->respond({.status = 200}); });
    EXPECT_TRUE(get(std::move(answers[next])).has_value());
  }
  on_loop([&] { held[1]->respond({.status = 200}); });
  EXPECT_TRUE(get(std::move(answers[1])).has_value());
  EXPECT_EQ(std::vector(order.begin() + 2, order.end()),
            (std::vector<std::string>{"/2", "/3", "/4"}));
  on_loop([&] { held.clear(); });
}

TEST_F(ClientServerTest, ACancelledCallIsNotHeardOfAndFreesItsPlace) {
  std::shared_ptr<ServerCall> first;
  std::promise<void> arrived;
  std::promise<void> gone;
  serve([&](auto call) {
    if (call->request().target != "/first") return call->respond({.status = 200});
    call->on_gone([&] { gone.set_value(); });
    first = std::move(call);
    arrived.set_value();
  });
  use_client({.server = url_, .max_connections = 1});
  auto never = start_fetch({.target = "/first"});
  get(arrived.get_future());
  auto second = start_fetch({.target = "/second"});
  on_loop([&] { calls_.front().reset(); });
  get(gone.get_future());
  EXPECT_TRUE(get(std::move(second)).has_value());
  on_loop([&] { first.reset(); });
  EXPECT_THROW(get(std::move(never)), std::future_error) << "let go without a word";
}

TEST_F(ClientServerTest, AnAnswerInPiecesArrivesAsItIsWritten) {
  std::shared_ptr<ServerCall> call;
  std::promise<void> arrived;
  serve([&](auto arriving) {
    call = std::move(arriving);
    call->start({.status = 200, .headers = {{"Content-Type", "text/plain"}}});
    call->write("one ");
    call->write("");
    call->write("piece");
    arrived.set_value();
  });
  const auto recorder = std::make_shared<Recorder>();
  std::promise<void> first;
  recorder->at_piece = [&](std::size_t n) {
    if (n == 1) first.set_value();
  };
  start({.target = "/stream"}, {}, recorder);
  get(arrived.get_future());
  get(first.get_future());
  on_loop([&] {
    EXPECT_EQ(recorder->body, "one piece") << "written in one turn, told as one piece";
    call->write(" and more");
    call->finish();
    call.reset();
  });
  EXPECT_TRUE(get(recorder->done.get_future()).ok());
  EXPECT_EQ(recorder->body, "one piece and more");
}

TEST_F(ClientServerTest, ABodyCanBeSentInPieces) {
  serve(echo);
  const auto recorder = std::make_shared<Recorder>();
  const auto index =
      start({.method = "POST", .target = "/", .headers = {{"Transfer-Encoding", "chunked"}}}, {},
            recorder);
  on_loop([&] {
    calls_[index]->write("hello ");
    calls_[index]->write("world");
  });
  on_loop([&] { calls_[index]->finish_body(); });
  EXPECT_TRUE(get(recorder->done.get_future()).ok());
  EXPECT_EQ(recorder->body, "hello world");
}

TEST_F(ClientServerTest, APausedCallHoldsTheServerBack) {
  std::shared_ptr<ServerCall> call;
  constexpr std::size_t kPiece = 1 << 20;
  constexpr std::size_t kPieces = 64;
  std::promise<void> started;
  serve([&](auto arriving) {
    call = std::move(arriving);
    call->start({.status = 200});
    for (std::size_t i = 0; i < kPieces; ++i) call->write(std::string(kPiece, 'x'));
    call->finish();
    started.set_value();
  });
  const auto recorder = std::make_shared<Recorder>();
  std::promise<void> paused;
  recorder->at_piece = [&](std::size_t n) {
    if (n != 1) return;
    calls_.front()->pause();
    paused.set_value();
  };
  start({.target = "/"}, {}, recorder);
  get(paused.get_future());
  for (int i = 0; i < 20; ++i) on_loop([&] { EXPECT_EQ(recorder->pieces, 1u); });
  on_loop([&] { calls_.front()->resume(); });
  EXPECT_TRUE(get(recorder->done.get_future()).ok());
  EXPECT_EQ(recorder->body.size(), kPiece * kPieces);
  on_loop([&] { call.reset(); });
}

TEST_F(ClientServerTest, ACallerThatHasEnoughEndsTheCall) {
  serve(
      [&](const auto& call) { call->respond({.status = 200, .body = std::string(1 << 20, 'x')}); });
  const auto recorder = std::make_shared<Recorder>();
  recorder->wants_more = false;
  start({.target = "/"}, {}, recorder);
  const auto status = get(recorder->done.get_future());
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_EQ(recorder->pieces, 1u);
  EXPECT_TRUE(fetch({.target = "/"}).has_value()) << "the client goes on";
}

TEST_F(ClientServerTest, ACallNobodyAnswersGets500) {
  serve([](const auto&) {});
  const auto answer = fetch({.target = "/"});
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 500);
}

TEST_F(ClientServerTest, AnAnswerThatStopsHalfwayIsNotTakenForWhole) {
  serve([](const auto& call) {
    call->start({.status = 200});
    call->write("half of it");
  });
  const auto answer = fetch({.target = "/half"});
  ASSERT_FALSE(answer.has_value());
  EXPECT_THAT(answer.error().message(), HasSubstr("/half"));
}

TEST_F(ClientServerTest, ADeadlineEndsACallThatIsNotAnswered) {
  std::vector<std::shared_ptr<ServerCall>> held;
  serve([&](auto call) { held.push_back(std::move(call)); });
  const auto answer = fetch({.target = "/slow"}, {.deadline = 50ms});
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code(), Code::kTimeout);
  EXPECT_EQ(answer.error().message(), "GET " + url_.origin() + "/slow: not done within 0.05 s");
  on_loop([&] { held.clear(); });
}

TEST_F(ClientServerTest, SilenceEndsACallThatHasAnIdleTimeout) {
  std::vector<std::shared_ptr<ServerCall>> held;
  serve([&](auto call) {
    call->start({.status = 200});
    call->write("first words");
    held.push_back(std::move(call));
  });
  const auto recorder = std::make_shared<Recorder>();
  start({.target = "/watch"}, {.deadline = 0s, .idle_timeout = 100ms}, recorder);
  const auto status = get(recorder->done.get_future());
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("/watch: the server has been silent for 0.1 s"));
  EXPECT_EQ(recorder->body, "first words");
  on_loop([&] { held.clear(); });
}

TEST_F(ClientServerTest, AnUpgradedConnectionBelongsToBothSides) {
  std::promise<std::string> told;
  std::shared_ptr<io::Stream> far;
  serve([&](const auto& call) {
    EXPECT_TRUE(call->request().headers.lists("Upgrade", "echo"));
    call->upgrade({{"Connection", "Upgrade"}, {"Upgrade", "echo"}},
                  [&](std::shared_ptr<io::Stream> stream, const std::string&) {
                    far = std::move(stream);
                    far->start_reading([&] {
                      char bytes[100];
                      const iovec part{bytes, sizeof bytes};
                      const ssize_t n = far->read({&part, 1});
                      if (n > 0) told.set_value(std::string(bytes, static_cast<std::size_t>(n)));
                      return n == -EAGAIN;
                    });
                  });
  });
  const auto recorder = std::make_shared<Recorder>();
  start({.target = "/", .headers = {{"Connection", "Upgrade"}, {"Upgrade", "echo"}}},
        {.upgrade = true}, recorder);
  ASSERT_TRUE(get(recorder->done.get_future()).ok());
  ASSERT_NE(recorder->stream, nullptr);
  EXPECT_EQ(recorder->head.status, 101);
  char hello[] = "hello";
  const iovec part{hello, 5};
  EXPECT_EQ(recorder->stream->write({&part, 1}), 5);
  EXPECT_EQ(get(told.get_future()), "hello");
  on_loop([&] {
    far->close();
    recorder->stream->close();
  });
}

TEST_F(ClientServerTest, ADrainedServerAnswersWhatRunsAndTakesNoMore) {
  std::shared_ptr<ServerCall> running;
  std::promise<void> arrived;
  serve([&](auto call) {
    if (call->request().target == "/quick") return call->respond({.status = 200});
    running = std::move(call);
    arrived.set_value();
  });
  ASSERT_TRUE(fetch({.target = "/quick"}).has_value());
  auto last = start_fetch({.target = "/last"});
  get(arrived.get_future());
  std::promise<void> drained;
  on_loop([&] { server_->drain([&] { drained.set_value(); }); });
  auto refused = fetch({.target = "/more"});
  EXPECT_FALSE(refused.has_value());
  on_loop([&] {
    running->respond({.status = 200, .body = "done"});
    running.reset();
  });
  const auto answer = get(std::move(last));
  ASSERT_TRUE(answer.has_value()) << answer.error().message();
  EXPECT_EQ(answer->body, "done");
  EXPECT_EQ(answer->headers.get("Connection"), "close");
  get(drained.get_future());
}

TEST_F(ClientServerTest, ARequestThatCannotBeSentIsRefusedAtOnce) {
  serve(echo);
  const Request wrong[] = {{.method = "GET /"},
                           {.target = "no slash"},
                           {.target = "/a b"},
                           {.headers = {{"Bad Name", "x"}}},
                           {.headers = {{"X", "a\r\nInjected: b"}}}};
  for (const auto& request : wrong) {
    const auto answer = fetch(request);
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code(), Code::kInvalid) << answer.error().message();
  }
}

TEST_F(ClientServerTest, BothMayGoWhileCallsRun) {
  std::vector<std::shared_ptr<ServerCall>> held;
  std::promise<void> arrived;
  serve([&](auto call) {
    held.push_back(std::move(call));
    if (held.size() == 1) arrived.set_value();
  });
  auto never = start_fetch({.target = "/"});
  get(arrived.get_future());
  on_loop([&] {
    client_.reset();
    server_.reset();
    calls_.clear();
    held.clear();
  });
  EXPECT_THROW(get(std::move(never)), std::future_error) << "let go without a word";
}

}  // namespace
}  // namespace divisi::http
