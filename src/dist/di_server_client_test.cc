#include "dist/di_server_client.h"

#include "dist/testing/dist_fixture.h"

#include <gmock/gmock.h>

#include <cstdlib>

namespace divisi::dist {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ReplicasTest, ListsMayBeArraysObjectsOrNull) {
  const auto arrays = parse_replicas(*json::parse(R"({"collectors": ["a:1", "b:2"]})"));
  EXPECT_THAT(arrays->collectors, ElementsAre("a:1", "b:2"));
  EXPECT_THAT(arrays->learners, IsEmpty());
  const auto objects =
      parse_replicas(*json::parse(R"({"collectors": null, "learners": {"c:3": {"gpus": 1}}})"));
  EXPECT_THAT(objects->collectors, IsEmpty());
  EXPECT_THAT(objects->learners, ElementsAre("c:3"));
}

TEST(ReplicasTest, OtherShapesAreRefused) {
  for (const char* text : {"null", "[]", R"({"collectors": 1})", R"({"collectors": [1]})",
                           R"({"learners": [""]})", R"({"learners": ["a b"]})"}) {
    EXPECT_FALSE(parse_replicas(*json::parse(text))) << text;
  }
}

TEST(ReplicasTest, ThePodIsTheHostWithoutItsLastLabel) {
  EXPECT_EQ(pod_of_url("dijob-1-collector-x.default:80"), "dijob-1-collector-x");
  EXPECT_EQ(pod_of_url("http://a.b.default:80"), "a.b");
  EXPECT_EQ(pod_of_url("a:80"), "a");
  EXPECT_EQ(pod_of_url(""), "");
}

class DiServerClientTest : public testing::DistFixture {
 protected:
  ~DiServerClientTest() override {
    on_loop([&] {
      di_server_.reset();
      server_.reset();  // its handler uses this object
    });
    for (const char* name : {"KUBERNETES_SERVER_URL", "KUBERNETES_SERVER_API_VERSION",
                             "KUBERNETES_POD_NAMESPACE", "KUBERNETES_POD_NAME"}) {
      unsetenv(name);
    }
  }

  // Answers with this and keeps the request.
  void answer(int status, std::string body) {
    serve([this, status, body](const std::shared_ptr<http::ServerCall>& call) {
      request_ = call->request();
      call->respond({.status = status, .body = body});
    });
    on_loop([&] {
      auto client = DiServerClient::make(
          *reactor_,
          {.url = fmt::format("127.0.0.1:{}", url_.port), .space = "ns", .pod = "job-c"});
      ASSERT_TRUE(client);
      di_server_ = *std::move(client);
    });
  }
  Result<Replicas> get_replicas() {
    return on_loop_until<Result<Replicas>>([&](auto done) { di_server_->get(done); });
  }

  std::unique_ptr<DiServerClient> di_server_;
  http::Request request_;
};

constexpr const char* kGood =
    R"({"success": true, "code": 0, "message": "", "data": {"collectors": ["a.ns:1"], "learners": []}})";

TEST_F(DiServerClientTest, RequestsAreThoseOfTheFirstGeneration) {
  answer(200, kGood);
  EXPECT_THAT(get_replicas()->collectors, ElementsAre("a.ns:1"));
  EXPECT_EQ(request_.method, "GET");
  EXPECT_EQ(request_.target, "/v1alpha1/replicas?namespace=ns&coordinator=job-c");
  EXPECT_EQ(request_.body, "{}");
  Demand demand;
  demand.collectors.replicas = 2;
  demand.learners.gpus = "1";
  on_loop_until<Result<Replicas>>([&](auto done) { di_server_->post_demand(demand, done); });
  EXPECT_EQ(request_.method, "POST");
  EXPECT_EQ(request_.target, "/v1alpha1/replicas");
  EXPECT_EQ(request_.body, R"({"namespace":"ns","coordinator":"job-c","collectors":{"replicas":2},)"
                           R"("learners":{"replicas":0,"gpus":"1"}})");
  on_loop_until<Result<Replicas>>([&](auto done) { di_server_->remove(demand, done); });
  EXPECT_EQ(request_.method, "DELETE");
  on_loop_until<Result<Replicas>>([&](auto done) { di_server_->report_failed({"p"}, {}, done); });
  EXPECT_EQ(request_.target, "/v1alpha1/replicas/failed");
  EXPECT_EQ(request_.body,
            R"({"namespace":"ns","coordinator":"job-c","collectors":["p"],"learners":[]})");
}

TEST_F(DiServerClientTest, EveryBadAnswerIsOneError) {
  answer(404, R"({"success": false, "code": 1, "message": "pod: ns/job-c not exists in cache"})");
  EXPECT_THAT(get_replicas().error().message(), HasSubstr("not exists in cache"));
  answer(200, R"({"success": false, "code": 1, "message": "no"})");
  EXPECT_FALSE(get_replicas());
  answer(200, "no JSON");
  EXPECT_THAT(get_replicas().error().message(), HasSubstr("no JSON"));
  answer(200, R"({"success": true, "data": {"collectors": 3}})");
  EXPECT_FALSE(get_replicas());
}

TEST_F(DiServerClientTest, BothFormsOfTheServerUrlAreRead) {
  EXPECT_FALSE(di_server_from_environment("", ""));
  EXPECT_FALSE(di_server_from_environment("ftp://x", ""));
  EXPECT_EQ(di_server_from_environment("ding-server.ding-system:8080", "/v1alpha2")->api_version,
            "/v1alpha2");
  for (const char* url : {"http://di-server.di-system:8080", "di-server.di-system:8080"}) {
    setenv("KUBERNETES_SERVER_URL", url, 1);
    setenv("KUBERNETES_SERVER_API_VERSION", "v9/", 1);
    setenv("KUBERNETES_POD_NAMESPACE", "space", 1);
    setenv("KUBERNETES_POD_NAME", "job-coordinator", 1);
    const auto options = di_server_from_environment("elsewhere:1", "");
    ASSERT_TRUE(options);
    EXPECT_EQ(options->url, url);
    EXPECT_EQ(options->api_version, "/v9");
    EXPECT_EQ(options->space, "space");
    EXPECT_EQ(options->pod, "job-coordinator");
    on_loop([&] { EXPECT_TRUE(DiServerClient::make(*reactor_, *options)); });
  }
}

}  // namespace
}  // namespace divisi::dist
