#include "kube/client.h"

#include "kube/retry.h"
#include "kube/testing/fake_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace divisi::kube {
namespace {

using namespace std::chrono_literals;
using testing::FakeApi;
using ::testing::HasSubstr;
using testing::SimLoop;

json::Value named(const std::string& name) {
  json::Value made;
  made["metadata"]["name"] = name;
  made["metadata"]["namespace"] = "default";
  return made;
}

class ClientTest : public ::testing::Test {
 protected:
  Result<json::Value> wait(const std::function<void(Done)>& start) {
    std::optional<Result<json::Value>> outcome;
    start([&](Result<json::Value> answer) { outcome = std::move(answer); });
    EXPECT_FALSE(outcome) << "called back from inside the call";
    EXPECT_TRUE(loop_.run_until([&] { return outcome.has_value(); }, 5min));
    return outcome.value_or(failure(Code::kTimeout, "no answer"));
  }
  Result<json::Value> create(const json::Value& object) {
    return wait([&](Done done) {
      client_.create(resources::pods(), "default", object, {}, std::move(done));
    });
  }
  Result<json::Value> get(const std::string& name) {
    return wait(
        [&](Done done) { client_.get(resources::pods(), "default", name, {}, std::move(done)); });
  }
  // The next requests are answered with these, the rest by the server.
  void answer_with(std::vector<http::Response> answers) {
    auto left = std::make_shared<std::vector<http::Response>>(std::move(answers));
    api_.intercept = [left](const http::Request&) -> std::optional<http::Response> {
      if (left->empty()) return std::nullopt;
      http::Response next = left->front();
      left->erase(left->begin());
      return next;
    };
  }

  SimLoop loop_;
  FakeApi api_{loop_, 1};
  Client client_{loop_, api_};
};

TEST_F(ClientTest, EveryVerbReachesItsObject) {
  ASSERT_TRUE(create(named("a")));
  auto made = get("a");
  ASSERT_TRUE(made) << made.error().message();
  (*made)["spec"]["x"] = 1;
  ASSERT_TRUE(
      wait([&](Done done) { client_.update(resources::pods(), *made, {}, std::move(done)); }));
  json::Value patch;
  patch["spec"]["y"] = 2;
  const auto patched = wait([&](Done done) {
    client_.patch(resources::pods(), "default", "a", PatchType::kMerge, patch, {}, std::move(done));
  });
  ASSERT_TRUE(patched);
  EXPECT_EQ(patched->int_at({"spec", "x"}), 1);
  EXPECT_EQ(patched->int_at({"spec", "y"}), 2);
  const auto listed =
      wait([&](Done done) { client_.list(resources::pods(), "default", {}, std::move(done)); });
  EXPECT_EQ(listed->find("items")->as_array()->size(), 1u);
  ASSERT_TRUE(wait(
      [&](Done done) { client_.remove(resources::pods(), "default", "a", {}, std::move(done)); }));
  EXPECT_EQ(get("a").error().code(), Code::kNotFound);
}

TEST_F(ClientTest, ErrorsSayWhatWasBeingDoneAndCarryTheServersWords) {
  ASSERT_TRUE(create(named("a")));
  const auto again = create(named("a"));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kAlreadyExists);
  EXPECT_EQ(again.error().message(), "creating pods default/a: default/a already exists");
  auto stale = *get("a");
  stale["metadata"]["resourceVersion"] = "1";
  const auto updated =
      wait([&](Done done) { client_.update(resources::pods(), stale, {}, std::move(done)); });
  EXPECT_EQ(updated.error().code(), Code::kConflict);
  const auto deleted = wait([&](Done done) {
    client_.remove(resources::pods(), "default", "a", {.uid = "another"}, std::move(done));
  });
  EXPECT_EQ(deleted.error().code(), Code::kConflict);
}

TEST_F(ClientTest, AServerThatAnswersHtmlOrHalfAnObjectIsNamed) {
  answer_with({{200, {{"Content-Type", "text/html"}}, "<html>please log in</html>"}});
  EXPECT_THAT(
      get("a").error().message(),
      HasSubstr("getting pods default/a: the server's answer (text/html) cannot be read as JSON"));
  answer_with({{403, {{"Content-Type", "text/html"}}, "<html>\n  <b>not\tyou</b></html>"}});
  const auto refused = get("a");
  EXPECT_EQ(refused.error().code(), Code::kForbidden);
  EXPECT_THAT(refused.error().message(), HasSubstr("<html> <b>not you</b></html>"));
  answer_with({{200, {}, "{\"metadata\":"}});
  EXPECT_THAT(get("a").error().message(), HasSubstr("cannot be read as JSON"));
}

TEST_F(ClientTest, C41_AnswersAreAskedForInJson) {
  std::string accepted;
  api_.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    accepted = request.headers.get("Accept");
    return std::nullopt;
  };
  std::ignore = get("a");
  EXPECT_EQ(accepted, "application/json");
}

TEST_F(ClientTest, OfAWriteTheMetadataMayBeEnoughOrNothingAtAll) {
  std::string accepted;
  std::string body = R"({"kind":"PartialObjectMetadata","metadata":{"name":"a"}})";
  api_.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    accepted = request.headers.get("Accept");
    return http::Response{201, {{"Content-Type", "application/json"}}, body};
  };
  const auto create_as = [&](Answer answer) {
    return wait([&](Done done) {
      client_.create(resources::pods(), "default", named("a"), {.answer = answer}, std::move(done));
    });
  };
  EXPECT_EQ(create_as(Answer::kMetadata)->string_at({"metadata", "name"}), "a");
  EXPECT_THAT(accepted, HasSubstr("as=PartialObjectMetadata;g=meta.k8s.io;v=v1"));
  EXPECT_THAT(accepted, HasSubstr(",application/json")) << "a server that cannot answers all of it";
  body = "not looked at";
  EXPECT_EQ(*create_as(Answer::kNone), json::Value());
  EXPECT_FALSE(create_as(Answer::kMetadata));
}

TEST_F(ClientTest, C20_AnUpdateThatLostTheRaceIsAConflictAndChangesNothing) {
  ASSERT_TRUE(create(named("a")));
  auto mine = *get("a");
  auto theirs = mine;
  theirs["spec"]["who"] = "they";
  ASSERT_TRUE(
      wait([&](Done done) { client_.update(resources::pods(), theirs, {}, std::move(done)); }));
  mine["spec"]["who"] = "we";
  EXPECT_EQ(wait([&](Done done) { client_.update(resources::pods(), mine, {}, std::move(done)); })
                .error()
                .code(),
            Code::kConflict);
  EXPECT_EQ(get("a")->string_at({"spec", "who"}), "they");
}

TEST_F(ClientTest, C34_AReadIsRepeatedAfterFaultsOfTheMoment) {
  ASSERT_TRUE(create(named("a")));
  answer_with({{503, {}, ""}, {500, {}, ""}, {502, {}, "<html>"}, {504, {}, ""}});
  EXPECT_TRUE(get("a"));
  api_.faults.lose_answer = 0.5;
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(get("a"));
}

TEST_F(ClientTest, C34_AWriteIsRepeatedOnlyWhenTheServerDidNotHandleIt) {
  answer_with({status_answer(500, "InternalError", "what happened is not known")});
  EXPECT_EQ(create(named("a")).error().code(), Code::kInternal);
  http::Response busy = status_answer(429, "TooManyRequests", "later");
  busy.headers.add("Retry-After", "3");
  answer_with({busy, busy});
  const io::TimePoint start = loop_.now();
  EXPECT_TRUE(create(named("b")));
  EXPECT_GE(loop_.now() - start, 6s) << "as long as it was asked to wait, twice";
  EXPECT_LE(loop_.now() - start, 12s);
  http::Response away = status_answer(503, "ServiceUnavailable", "not now");
  away.headers.add("Retry-After", "1");
  answer_with({away});
  EXPECT_TRUE(create(named("c"))) << "who says when to come again has done nothing";
}

TEST_F(ClientTest, C34_AWriteWhoseAnswerIsLostIsNotSentAgain) {
  std::map<std::string, int> sent;
  api_.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    ++sent[request.method];
    return std::nullopt;
  };
  api_.faults.lose_answer = 1;
  EXPECT_EQ(create(named("a")).error().code(), Code::kUnavailable);
  EXPECT_EQ(sent["POST"], 1) << "whether it was handled is not known";
  EXPECT_EQ(get("a").error().code(), Code::kUnavailable);
  EXPECT_GT(sent["GET"], 1);
}

TEST_F(ClientTest, EachKindOfPatchIsSentAsWhatItIs) {
  std::string type;
  api_.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    type = request.headers.get("Content-Type");
    return http::Response{200, {{"Content-Type", "application/json"}}, "{}"};
  };
  const auto type_of = [&](PatchType kind) {
    std::ignore = wait([&](Done done) {
      client_.patch(resources::pods(), "default", "a", kind, named("a"), {}, std::move(done));
    });
    return type;
  };
  EXPECT_EQ(type_of(PatchType::kMerge), "application/merge-patch+json");
  EXPECT_EQ(type_of(PatchType::kJson), "application/json-patch+json");
  EXPECT_EQ(type_of(PatchType::kStrategic), "application/strategic-merge-patch+json");
  EXPECT_EQ(type_of(PatchType::kApply), "application/apply-patch+yaml");
}

TEST_F(ClientTest, C35_ACallEndsByItsDeadline) {
  std::vector<http::Response> busy(100, status_answer(429, "TooManyRequests", "later"));
  for (auto& each : busy) each.headers.add("Retry-After", "4");
  answer_with(busy);
  const io::TimePoint start = loop_.now();
  EXPECT_EQ(get("a").error().code(), Code::kTooManyRequests);
  EXPECT_LE(loop_.now() - start, 30s);
}

TEST_F(ClientTest, AClientThatIsDestroyedCallsNobodyBack) {
  int calls = 0;
  {
    Client brief(loop_, api_);
    brief.get(resources::pods(), "default", "a", {}, [&](const auto&) { ++calls; });
    answer_with({{503, {}, ""}});
    loop_.run_for(1ms);
  }
  loop_.run_for(1min);
  EXPECT_EQ(calls, 0);
}

TEST(ResourceTest, PathsAreEncodedAndNameTheSubresource) {
  EXPECT_EQ(resources::pods().path("a", "b", "log"), "/api/v1/namespaces/a/pods/b/log");
  EXPECT_EQ(resources::pods().path(""), "/api/v1/pods");
  EXPECT_EQ(resources::nodes().path("ignored", "n"), "/api/v1/nodes/n");
  EXPECT_EQ(resources::leases().path("a", "x/../y"),
            "/apis/coordination.k8s.io/v1/namespaces/a/leases/x%2F..%2Fy");
  EXPECT_EQ(split_key(object_key("a", "b")).name, "b");
  EXPECT_EQ(split_key("node").space, "");
}

TEST(RetryTest, RetryAfterIsReadAndBounded) {
  EXPECT_EQ(retry_after({{"Retry-After", "7"}}), 7s);
  EXPECT_EQ(retry_after({{"retry-after", "999999"}}), 300s);
  EXPECT_EQ(retry_after({{"Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT"}}), std::nullopt);
  EXPECT_EQ(retry_after({{"Retry-After", "-1"}}), std::nullopt);
  EXPECT_EQ(retry_after({}), std::nullopt);
}

TEST(RetryTest, C26_TheDelayDoublesUpToTheLongestAndBeginsAnew) {
  Backoff backoff({800ms, 30s, false});
  EXPECT_EQ(backoff.next(), 800ms);
  EXPECT_EQ(backoff.next(), 1600ms);
  for (int i = 0; i < 10; ++i) backoff.next();
  EXPECT_EQ(backoff.next(), 30s);
  backoff.reset();
  EXPECT_EQ(backoff.next(), 800ms);
  Backoff jittered({800ms, 30s});
  for (int i = 0; i < 100; ++i) {
    EXPECT_LE(jittered.next(), 30s);
    EXPECT_GE(jittered.next(), 0s);
  }
}

}  // namespace
}  // namespace divisi::kube
