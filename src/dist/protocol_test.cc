// Our master with our slaves, and raw requests to both.
#include "dist/envelope.h"
#include "dist/testing/dist_fixture.h"
#include "dist/token.h"

#include <gmock/gmock.h>

#include <set>

namespace divisi::dist {
namespace {

using ::testing::ElementsAre;
using testing::FakeHandler;
using testing::get;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ordinary_handler;
using testing::wait_until;

constexpr const char* kConnectBody = R"({"master": {"address": "http://127.0.0.1:1"}, "data": {}})";

class ProtocolTest : public testing::DistFixture {
 protected:
  static void expect(const PeerReply& reply, int http, int code) {
    EXPECT_EQ(reply.http, http) << reply.text();
    EXPECT_EQ(reply.code, code) << reply.text();
    EXPECT_EQ(reply.success, code == 0);
  }
};

TEST_F(ProtocolTest, O084_MasterConnectsListsAndDisconnects) {
  const std::string url = start_slave(ordinary_handler());
  start_master();
  ASSERT_TRUE(connect(url).ok());
  EXPECT_THAT(listed(), ElementsAre(url));
  EXPECT_TRUE(connected());
  ASSERT_TRUE(disconnect(url).ok());
  EXPECT_THAT(listed(), IsEmpty());
  EXPECT_FALSE(connected());
}

TEST_F(ProtocolTest, O084_WrongChannelIs403With202AndNotListed) {
  SlaveOptions other = slave_options();
  other.channel = 7;
  const std::string url = start_slave(ordinary_handler(), other);
  expect(ask(url, "POST", "/connect", "t", kConnectBody, "0"), 403, 202);
  start_master();
  const Status status = connect(url);
  EXPECT_THAT(status.message(), HasSubstr("HTTP 403, code 202"));
  EXPECT_THAT(listed(), IsEmpty());
  EXPECT_FALSE(connected());
}

TEST_F(ProtocolTest, O085_ATaskCompletesOrFailsWithItsResult) {
  const std::string url = start_slave(ordinary_handler());
  start_master();
  ASSERT_TRUE(connect(url).ok());
  const TaskReport good = task(url, json::Object{{"name", "good"}});
  EXPECT_EQ(good.state, TaskState::kCompleted);
  EXPECT_EQ(good.result, json::Value(json::Object{{"name", "good"}}));
  const TaskReport bad = task(url, json::Object{{"name", "bad"}});
  EXPECT_EQ(bad.state, TaskState::kFailed);
  EXPECT_EQ(bad.result, json::Value(json::Object{{"message", "bad data"}}));
  EXPECT_FALSE(bad.lost);
}

TEST_F(ProtocolTest, O086_SecondTaskSecondMasterAndWrongTokenAreRefused) {
  const auto handler = ordinary_handler();
  const std::string url = start_slave(handler);
  expect(ask(url, "POST", "/connect", "secret", kConnectBody), 200, 0);
  expect(ask(url, "POST", "/connect", "secret", kConnectBody), 400, 501);
  expect(ask(url, "POST", "/connect", "another", kConnectBody), 400, 501);
  const std::string task = R"({"task": {"id": "1"}, "data": {"name": "hold"}})";
  expect(ask(url, "POST", "/task/new", "another", task), 403, 302);
  const PeerReply taken = ask(url, "POST", "/task/new", "secret", task);
  expect(taken, 200, 0);
  EXPECT_EQ(taken.message, "Task received!");
  expect(ask(url, "POST", "/task/new", "secret", task), 400, 601);
  expect(ask(url, "DELETE", "/disconnect", "another"), 403, 302);
  const PeerReply left = ask(url, "DELETE", "/disconnect", "secret");
  expect(left, 200, 0);
  EXPECT_EQ(left.message, "Disconnect success.");
}

TEST_F(ProtocolTest, ASlaveChecksShutdownThenChannelThenToken) {
  const std::string url = start_slave(ordinary_handler());
  expect(ask(url, "POST", "/connect", "-", kConnectBody, "-"), 400, 201);
  expect(ask(url, "POST", "/connect", "-", kConnectBody, "x"), 403, 202);
  expect(ask(url, "POST", "/connect", "-", kConnectBody), 400, 301);
  expect(ask(url, "POST", "/task/new", "-"), 400, 301);
  expect(ask(url, "POST", "/task/new", "t"), 400, 502);
  expect(ask(url, "DELETE", "/disconnect", "t"), 400, 502);
  expect(ask(url, "GET", "/ping", "-"), 400, 401);
  expect(ask(url, "GET", "/ping", "t"), 403, 402);
  expect(ask(url, "DELETE", "/shutdown", "t"), 403, 402);
  const std::string self = slaves_[0]->self_token();
  EXPECT_EQ(ask(url, "GET", "/ping", self).message, "PONG!");
  expect(ask(url, "DELETE", "/shutdown", self), 200, 0);
  expect(ask(url, "POST", "/connect", "-", kConnectBody, "-"), 401, 101);
  expect(ask(url, "GET", "/ping", self), 401, 101);
}

TEST_F(ProtocolTest, AMasterChecksShutdownThenChannelThenToken) {
  start_master();
  const std::string url = fmt::format("127.0.0.1:{}", master_->address().port);
  expect(ask(url, "GET", "/slave/heartbeat", "-", "{}", "-"), 400, 201);
  expect(ask(url, "GET", "/slave/heartbeat", "-", "{}", "9"), 403, 202);
  expect(ask(url, "GET", "/slave/heartbeat", "-"), 400, 501);
  expect(ask(url, "GET", "/slave/heartbeat", "t"), 403, 502);
  expect(ask(url, "PUT", "/slave/task/complete", "t"), 403, 502);
  expect(ask(url, "GET", "/ping", "-"), 400, 401);
  expect(ask(url, "GET", "/ping", "t"), 403, 402);
  EXPECT_EQ(ask(url, "GET", "/ping", master_->self_token()).message, "PONG!");
  expect(ask(url, "GET", "/elsewhere", "t"), 404, 1);
  expect(ask(url, "DELETE", "/shutdown", master_->self_token()), 200, 0);
  expect(ask(url, "GET", "/slave/heartbeat", "-", "{}", "-"), 401, 101);
}

TEST_F(ProtocolTest, BadBodiesAreRefusedAndHarmNobody) {
  const std::string url = start_slave(ordinary_handler());
  expect(ask(url, "POST", "/connect", "t", "{broken"), 400, 1);
  expect(ask(url, "POST", "/connect", "t", "[1, 2]"), 400, 1);
  expect(ask(url, "POST", "/connect", "t", R"({"master": {"address": "nonsense://x"}})"), 400, 1);
  EXPECT_EQ(ask(url, "POST", "/connect", "t", std::string((16 << 20) + 1, ' ')).http, 413);
  EXPECT_FALSE(connected());
  expect(ask(url, "POST", "/connect", "t", kConnectBody), 200, 0);
  expect(ask(url, "POST", "/task/new", "t", "{}"), 403, 602);
  expect(ask(url, "POST", "/task/new", "t", "nope"), 400, 1);
  expect(ask(url, "POST", "/learners", "t", "[]"), 404, 1);
}

TEST(EnvelopeTest, NumbersOfPythonThatAreNotFiniteAreNull) {
  const auto body = read_body(
      R"({"a": Infinity, "b": [-Infinity, NaN], "c": "NaN \" Infinity", "d": {"e\\": NaN}})");
  ASSERT_TRUE(body) << body.error().message();
  EXPECT_EQ(json::print(*body),
            R"({"a":null,"b":[null,null],"c":"NaN \" Infinity","d":{"e\\":null}})");
  for (const char* text : {R"({"a": nan})", R"({"a": NaNNaN})", R"({"a": "NaN)", R"({"NaN\)"}) {
    EXPECT_FALSE(read_body(text)) << text;
  }
}

TEST_F(ProtocolTest, ARefusedMasterGets503) {
  SlaveOptions choosy = slave_options();
  choosy.accept_master = [](const std::string&, const json::Value& data) {
    return data.string_at({"job"}) == "mine";
  };
  const std::string url = start_slave(ordinary_handler(), choosy);
  expect(ask(url, "POST", "/connect", "t", kConnectBody), 403, 503);
  expect(ask(url, "POST", "/connect", "t",
             R"({"master": {"address": "http://127.0.0.1:1"}, "data": {"job": "mine"}})"),
         200, 0);
}

TEST_F(ProtocolTest, ARefusedDisconnectGets504) {
  SlaveOptions clinging = slave_options();
  clinging.accept_disconnect = [](const json::Value&) { return false; };
  const std::string url = start_slave(ordinary_handler(), clinging);
  expect(ask(url, "POST", "/connect", "t", kConnectBody), 200, 0);
  expect(ask(url, "DELETE", "/disconnect", "t"), 403, 504);
  EXPECT_TRUE(connected());
}

TEST_F(ProtocolTest, AnExceptionFailsTheTask) {
  const std::string url = start_slave(ordinary_handler());
  start_master();
  ASSERT_TRUE(connect(url).ok());
  const TaskReport report = task(url, json::Object{{"name", "throw"}});
  EXPECT_EQ(report.state, TaskState::kFailed);
  EXPECT_EQ(report.why, "broken on purpose");
  EXPECT_EQ(task(url, json::Object{{"name", "good"}}).state, TaskState::kCompleted);
}

TEST_F(ProtocolTest, ALostSlaveFailsItsTask) {
  MasterOptions options = master_options();
  options.tolerance = std::chrono::milliseconds(600);
  auto lost = std::make_shared<std::promise<std::string>>();
  options.on_lost = [lost](const std::string& url) { lost->set_value(url); };
  start_master(options);
  const auto handler = ordinary_handler();
  const std::string url = start_slave(handler);
  ASSERT_TRUE(connect(url).ok());
  auto report = start_task(url, json::Object{{"name", "hold"}});
  wait_until("the task runs", [&] { return handler->holding == 1; });
  on_loop([&] { slaves_.clear(); });
  EXPECT_EQ(get(lost->get_future()), url);
  const TaskReport failed = get(std::move(report));
  // The answer to /task/new may be lost with it.
  EXPECT_THAT(failed.state, ::testing::AnyOf(TaskState::kFailed, TaskState::kStartFailed));
  EXPECT_TRUE(failed.lost);
  EXPECT_THAT(listed(), IsEmpty());
  const TaskReport next = task(url, json::Object{{"name", "good"}});
  EXPECT_EQ(next.state, TaskState::kStartFailed);
}

TEST_F(ProtocolTest, ATaskBeyondItsLimitLosesTheSlave) {
  start_master();
  const auto handler = ordinary_handler();
  const std::string url = start_slave(handler);
  ASSERT_TRUE(connect(url).ok());
  const TaskReport report = on_loop_until<TaskReport>([&](auto done) {
    master_->new_task(url, json::Object{{"name", "hold"}}, std::chrono::milliseconds(300), done);
  });
  EXPECT_EQ(report.state, TaskState::kFailed);
  EXPECT_TRUE(report.lost);
  wait_until("the slave is free", [&] { return !connected() && handler->farewells == 1; });
  EXPECT_TRUE(connect(url).ok());
}

TEST_F(ProtocolTest, HeartbeatsKeepASlaveListed) {
  MasterOptions options = master_options();
  options.tolerance = std::chrono::milliseconds(1500);
  auto lost = std::make_shared<std::promise<std::string>>();
  options.on_lost = [lost](const std::string& url) { lost->set_value(url); };
  start_master(options);
  const std::string url = start_slave(ordinary_handler());
  ASSERT_TRUE(connect(url).ok());
  // Connected later, and silent from then on.
  serve([](const std::shared_ptr<http::ServerCall>& call) {
    call->respond({.body = R"({"success": true, "code": 0, "message": "", "data": null})"});
  });
  const std::string silent = fmt::format("127.0.0.1:{}", url_.port);
  ASSERT_TRUE(connect(silent).ok());
  EXPECT_EQ(get(lost->get_future()), silent);
  EXPECT_THAT(listed(), ElementsAre(url));
}

TEST_F(ProtocolTest, ASlaveThatItsMasterForgotIsFreeAgain) {
  start_master();
  const auto handler = ordinary_handler();
  const std::string url = start_slave(handler);
  ASSERT_TRUE(connect(url).ok());
  auto held = start_task(url, json::Object{{"name", "hold"}});
  wait_until("the task runs", [&] { return handler->holding == 1; });
  // The master comes back with an empty table on the same port.
  MasterOptions same = master_options();
  same.bind.port = master_->address().port;
  on_loop([&] { master_.reset(); });
  start_master(same);
  wait_until("a heartbeat was answered 403", [&] { return handler->farewells == 1; });
  EXPECT_FALSE(connected());
  ASSERT_TRUE(connect(url).ok());
  EXPECT_EQ(task(url, json::Object{{"name", "good"}}).state, TaskState::kCompleted);
}

TEST_F(ProtocolTest, ASlaveForgetsAMasterThatIsGone) {
  start_master();
  const std::string url = start_slave(ordinary_handler());
  ASSERT_TRUE(connect(url).ok());
  on_loop([&] { master_.reset(); });
  wait_until("the slave has forgotten it", [&] { return !connected(); });
  start_master();
  EXPECT_TRUE(connect(url).ok());
}

TEST_F(ProtocolTest, ARestartedSlaveIsLostAtTheNextTask) {
  start_master();
  SlaveOptions fixed = slave_options();
  const std::string url = start_slave(ordinary_handler(), fixed);
  ASSERT_TRUE(connect(url).ok());
  on_loop([&] {
    fixed.bind.port = slaves_[0]->address().port;
    slaves_.clear();
  });
  start_slave(ordinary_handler(), fixed);
  const TaskReport report = task(url, json::Object{{"name", "good"}});
  EXPECT_EQ(report.state, TaskState::kStartFailed);
  EXPECT_TRUE(report.lost) << report.why;
  EXPECT_TRUE(connect(url).ok());
}

TEST_F(ProtocolTest, ASlowSlaveHoldsUpNobody) {
  // It takes connections and never answers.
  serve([kept = std::make_shared<std::vector<std::shared_ptr<http::ServerCall>>>()](auto call) {
    kept->push_back(call);
  });
  start_master();
  const std::string silent = fmt::format("127.0.0.1:{}", url_.port);
  auto pending = std::make_shared<std::promise<Status>>();
  on_loop([&] {
    master_->connect(silent, json::Object{},
                     [pending](Status status) { pending->set_value(std::move(status)); });
  });
  const std::string url = start_slave(ordinary_handler());
  ASSERT_TRUE(connect(url).ok());
  EXPECT_EQ(task(url, json::Object{{"name", "good"}}).state, TaskState::kCompleted);
  EXPECT_THAT(listed(), ElementsAre(url));
  ASSERT_TRUE(disconnect(silent).ok());
  EXPECT_EQ(get(pending->get_future()).code(), Code::kCancelled);
}

TEST_F(ProtocolTest, ResultsThatCannotBeUsedAreAnswered) {
  start_master();
  // The slave is a recorder: it takes what the master sends and answers success.
  auto seen = std::make_shared<std::promise<std::pair<std::string, std::string>>>();
  serve([seen](const std::shared_ptr<http::ServerCall>& call) {
    if (call->request().target == "/task/new") {
      seen->set_value({std::string(call->request().headers.get("Token")), call->request().body});
    }
    call->respond({.body = R"({"success": true, "code": 0, "message": "", "data": null})"});
  });
  const std::string slave = fmt::format("127.0.0.1:{}", url_.port);
  ASSERT_TRUE(connect(slave).ok());
  auto report = start_task(slave, json::Object{{"name", "x"}});
  const auto [token, body] = get(seen->get_future());
  EXPECT_THAT(token, ::testing::MatchesRegex("[0-9a-fA-F]{64}"));
  const std::string url = fmt::format("127.0.0.1:{}", master_->address().port);
  // HTTP 200 with a failure inside, as the protocol has it.
  expect(ask(url, "PUT", "/slave/task/complete", token, "{}"), 200, 601);
  expect(ask(url, "PUT", "/slave/task/fail", token, R"({"task": {}})"), 200, 601);
  expect(ask(url, "PUT", "/slave/task/fail", token, R"({"task": {"id": "unknown"}})"), 200, 0);
  const std::string id(json::parse(body)->string_at({"task", "id"}));
  const std::string result = fmt::format(R"({{"task": {{"id": "{}"}}, "result": {{"a": 1}}}})", id);
  EXPECT_EQ(ask(url, "PUT", "/slave/task/complete", token, result).message, "Result received!");
  const TaskReport done = get(std::move(report));
  EXPECT_EQ(done.state, TaskState::kCompleted);
  EXPECT_EQ(done.result.int_at({"a"}), 1);
  expect(ask(url, "PUT", "/slave/task/complete", token, result), 200, 0);  // once more: harmless
}

TEST_F(ProtocolTest, AnUnreadableResultFailsTheTask) {
  start_master();
  auto token = std::make_shared<std::promise<std::string>>();
  serve([token](const std::shared_ptr<http::ServerCall>& call) {
    if (call->request().target == "/task/new") {
      token->set_value(std::string(call->request().headers.get("Token")));
    }
    call->respond({.body = R"({"success": true, "code": 0, "message": "", "data": null})"});
  });
  const std::string slave = fmt::format("127.0.0.1:{}", url_.port);
  ASSERT_TRUE(connect(slave).ok());
  auto report = start_task(slave, json::Object{{"name", "x"}});
  const std::string url = fmt::format("127.0.0.1:{}", master_->address().port);
  expect(ask(url, "PUT", "/slave/task/complete", get(token->get_future()), "{\"task\": NaN"), 400,
         1);
  EXPECT_EQ(get(std::move(report)).state, TaskState::kFailed);
}

TEST_F(ProtocolTest, ShutdownDisconnectsAllAndStopsTheTask) {
  const auto handler = ordinary_handler();
  const std::string url = start_slave(handler);
  start_master();
  ASSERT_TRUE(connect(url).ok());
  auto report = start_task(url, json::Object{{"name", "hold"}});
  wait_until("the task runs", [&] { return handler->holding == 1; });
  on_loop_until<bool>([&](auto done) { master_->shutdown([done] { done(true); }); });
  EXPECT_EQ(get(std::move(report)).state, TaskState::kFailed);
  wait_until("the handler forgot the task", [&] { return handler->farewells == 1; });
  EXPECT_FALSE(connected());
}

TEST(TokenTest, TokensAre64HexDigitsOfBothCases) {
  std::set<std::string> tokens;
  for (int i = 0; i < 100; ++i) tokens.insert(new_token());
  EXPECT_EQ(tokens.size(), 100U);
  for (const std::string& each : tokens) {
    EXPECT_THAT(each, ::testing::MatchesRegex("[0-9a-fA-F]{64}"));
  }
  EXPECT_TRUE(same_token("ab", "ab"));
  EXPECT_FALSE(same_token("ab", "aB"));
  EXPECT_FALSE(same_token("ab", "abc"));
}

}  // namespace
}  // namespace divisi::dist
