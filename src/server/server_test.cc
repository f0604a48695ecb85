// The two ports, over real connections.
#include "server/server.h"

#include "http/testing/loop_fixture.h"
#include "kube/memory/path.h"
#include "kube/memory/verbs.h"

#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>

namespace divisi::server {
namespace {

using http::testing::get;

constexpr const char* kJobs = "/apis/diengine.opendilab.org/v2alpha1/dijobs";

// A cluster on a real loop: the verbs at once, watches that never tell anything.
class StoreTransport final : public kube::Transport {
 public:
  explicit StoreTransport(io::Reactor& reactor) : reactor_(reactor) {}

  std::unique_ptr<http::Call> send(kube::Lane, http::Request request, http::CallOptions,
                                   std::shared_ptr<http::ResponseHandler> handler) override {
    auto call = std::make_unique<Call>();
    reactor_.post([this, request = std::move(request), handler = std::move(handler),
                   alive = std::weak_ptr(call->alive)] {
      if (alive.expired()) return;
      const auto path = kube::ApiPath::parse(request.target);
      const bool watch = path->get("watch") == "true";
      const http::Response answer =
          !watch ? verbs.answer(request, *path)
          : path->get("sendInitialEvents") == "true"
              ? kube::status_answer(422, "Invalid", "no initial events here")
              : http::Response{};
      handler->on_head({answer.status, "", {{"Content-Type", "application/json"}}});
      if (!answer.body.empty()) handler->on_body(answer.body);
      if (!watch || answer.status != 200) handler->on_done({});
    });
    return call;
  }

  kube::MemoryStore store;
  kube::MemoryVerbs verbs{store, [] { return std::chrono::system_clock::now(); }};

 private:
  struct Call final : http::Call {
    void pause() override {}
    void resume() override {}
    void write(std::string) override {}
    void finish_body() override {}
    std::size_t unsent() const override { return 0; }
    std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  };

  io::Reactor& reactor_;
};

class ServerTest : public http::testing::LoopFixture {
 protected:
  ServerTest() {
    cluster_.store.create(kJobs, "default/rl",
                          *json::parse(R"({"metadata": {"name": "rl", "namespace": "default"},
      "spec": {"tasks": [{"type": "collector", "name": "collector", "replicas": 2,
               "template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}}]},
      "status": {"phase": "Running"}})"),
                          "2026-01-01T00:00:00Z");
    json::Value pod =
        *json::parse(R"({"metadata": {"name": "rl-collector-0", "namespace": "default",
      "labels": {"diengine/operator": "di-operator", "diengine/job": "rl", "diengine/task-name": "collector"},
      "annotations": {"diengine/rank": "0", "diengine/task-rank": "0"}},
      "spec": {"containers": [{"name": "a"}]}, "status": {"phase": "Running", "podIP": "10.0.0.1"}})");
    pod["metadata"]["ownerReferences"] = json::Array{json::Object{
        {"uid", cluster_.store.find(kJobs, "default/rl")->string_at({"metadata", "uid"})},
        {"controller", true}}};
    cluster_.store.create("/api/v1/pods", "default/rl-collector-0", pod, "2026-01-01T00:00:00Z");
    on_loop([&] { client_of_cluster_ = std::make_unique<kube::Client>(*reactor_, cluster_); });
    EXPECT_TRUE(start(options()).ok());
    use_port(di_server_->api_address());
  }
  ~ServerTest() override {
    on_loop([&] {
      calls_.clear();
      client_.reset();
      di_server_.reset();
      client_of_cluster_.reset();
    });
  }

  static ServerOptions options() {
    ServerOptions made;
    made.api = *io::Address::parse("127.0.0.1:0");
    made.probe = *io::Address::parse("127.0.0.1:0");
    return made;
  }
  Status start(ServerOptions options) {
    Status status;
    on_loop([&] {
      auto started = Server::start(*reactor_, *client_of_cluster_, std::move(options));
      if (!started) {
        status = started.error();
      } else {
        di_server_ = *std::move(started);
      }
    });
    return status;
  }
  void use_port(const io::Address& address) {
    url_ = *http::Url::parse(fmt::format("http://127.0.0.1:{}", address.port));
    use_client();
  }
  std::int64_t replicas() {
    std::int64_t found = 0;
    on_loop([&] {
      const json::Value* tasks =
          cluster_.store.find(kJobs, "default/rl")->find_path({"spec", "tasks"});
      found = tasks->as_array()->front().int_at({"replicas"}).value();
    });
    return found;
  }

  StoreTransport cluster_{*reactor_};
  std::unique_ptr<kube::Client> client_of_cluster_;
  std::unique_ptr<Server> di_server_;
};

TEST_F(ServerTest, EveryRouteIsAnsweredOnBothPorts) {
  for (const io::Address& port : {di_server_->api_address(), di_server_->probe_address()}) {
    use_port(port);
    EXPECT_EQ(fetch({.target = "/healthz"})->status, 200);
    EXPECT_EQ(fetch({.target = "/metrics"})->status, 200);
    const auto replicas = fetch({.target = "/v2alpha1/job/default/rl/replicas", .body = "{}"});
    ASSERT_TRUE(replicas) << replicas.error().message();
    EXPECT_EQ(
        replicas->body,
        R"({"success":true,"code":0,"message":"successfully get replicas","data":["10.0.0.1:22270",""]})"
        "\n");
    EXPECT_EQ(fetch({.target = "/v1alpha1/replicas", .body = "{}"})->body,
              R"({"success":true,"code":0,"message":"successfully get replicas","data":[]})"
              "\n");
    EXPECT_EQ(fetch({.target = "/v1alpha1/other"})->status, 404);
  }
}

TEST_F(ServerTest, BodiesNeedNoContentTypeAndMayComeWithADelete) {
  const std::string target = "/v2alpha1/job/default.rl/replicas";
  EXPECT_EQ(fetch({"POST", target, {}, R"({"replicas": 3})"})->status, 200);
  EXPECT_EQ(replicas(), 5);
  EXPECT_EQ(fetch({"DELETE", target, {}, R"({"replicas": 4})"})->status, 200);
  EXPECT_EQ(replicas(), 1);
  const auto too_large = fetch({"POST", target, {}, std::string(100'000, ' ')});
  EXPECT_EQ(too_large->status, 413);
  EXPECT_THAT(too_large->body,
              ::testing::StartsWith(R"({"success":false,"code":1,"message":"a body of 100000)"));
}

TEST_F(ServerTest, AStreamOfMembersEndsWhenTheServerStops) {
  auto recorder = std::make_shared<http::testing::Recorder>();
  auto first = std::make_shared<std::promise<void>>();
  recorder->at_piece = [first](std::size_t pieces) {
    if (pieces == 1) first->set_value();
  };
  http::testing::LoopFixture::start(
      {"GET", "/v2alpha1/default.rl/members", {{"Accept", "text/event-stream"}}, ""}, {}, recorder);
  get(first->get_future());
  auto stopped = std::make_shared<std::promise<void>>();
  on_loop([&] {
    EXPECT_EQ(recorder->head.headers.get("Content-Type"), "text/event-stream");
    EXPECT_TRUE(recorder->body.starts_with("event: members\ndata: {\"members\":[{\"rank\":0,"))
        << recorder->body;
    di_server_->stop([stopped] { stopped->set_value(); });
  });
  EXPECT_TRUE(get(recorder->done.get_future()).ok());
  get(stopped->get_future());
}

TEST_F(ServerTest, APortThatIsTakenIsOneClearError) {
  ServerOptions taken = options();
  taken.probe = di_server_->api_address();
  std::unique_ptr<Server> kept;
  on_loop([&] { kept = std::move(di_server_); });
  const Status status = start(taken);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find(std::to_string(taken.probe.port)), std::string::npos)
      << status.message();
  on_loop([&] { di_server_ = std::move(kept); });
}

TEST_F(ServerTest, AMissingTokenFileStopsTheStart) {
  ServerOptions bad = options();
  bad.auth = {AuthMode::kToken, "/nonexistent/token"};
  EXPECT_EQ(start(bad).code(), Code::kNotFound);
}

}  // namespace
}  // namespace divisi::server
