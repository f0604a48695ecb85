// ApiFixture: the Api over an API server in memory, on a loop whose time is simulated.
#pragma once

#include "kube/testing/fake_api.h"
#include "server/api.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace divisi::server::testing {

using namespace std::chrono_literals;

inline constexpr const char* kJobs = "/apis/diengine.opendilab.org/v2alpha1/dijobs";
inline constexpr const char* kPods = "/api/v1/pods";
inline constexpr const char* kSecrets = "/api/v1/secrets";

// What a client sees of its request. Held by the test, and by who answers.
struct Seen {
  int status = 0;  // 0: not answered
  http::Headers headers{};
  std::string body{};      // or all pieces so far
  bool finished = false;   // false of pieces that may go on
  bool dropped = false;    // let go without an end
  std::size_t unsent = 0;  // as if the client had not taken so much
  std::function<void()> gone{};

  json::Value json() const { return json::parse(body).value_or(json::Value()); }
  std::string message() const { return std::string(json().string_at({"message"})); }
};

class FakeCall final : public http::ServerCall {
 public:
  FakeCall(http::Request request, std::shared_ptr<Seen> seen)
      : request_(std::move(request)), seen_(std::move(seen)) {}
  ~FakeCall() override { seen_->dropped = !seen_->finished; }

  const http::Request& request() const override { return request_; }
  std::string peer() const override { return "10.0.0.9:1234"; }
  void respond(http::Response response) override {
    seen_->status = response.status;
    seen_->headers = std::move(response.headers);
    seen_->body = std::move(response.body);
    seen_->finished = true;
  }
  void start(http::ResponseHead head) override {
    seen_->status = head.status;
    seen_->headers = std::move(head.headers);
  }
  void write(std::string piece) override { seen_->body += piece; }
  void finish() override { seen_->finished = true; }
  std::size_t unsent() const override { return seen_->unsent; }
  void on_gone(std::function<void()> gone) override { seen_->gone = std::move(gone); }
  void upgrade(http::Headers,
               std::function<void(std::shared_ptr<io::Stream>, std::string)>) override {}

 private:
  const http::Request request_;
  const std::shared_ptr<Seen> seen_;
};

// A whole server, as a process has it: several may share one cluster.
struct Replica {
  Replica(kube::testing::SimLoop& loop, kube::testing::FakeApi& cluster, const AuthOptions& auth)
      : client(loop, cluster), api(client, metrics, *Authenticator::make(auth), {}) {
    api.start();
  }
  kube::Client client;
  kube::Metrics metrics;
  Api api;
};

class ApiFixture : public ::testing::Test {
 protected:
  ApiFixture() { restart(); }

  // The server begins anew, with empty caches.
  void restart(const AuthOptions& auth = {}) {
    server_.reset();
    server_ = std::make_unique<Replica>(loop_, cluster_, auth);
  }
  void wait_in_step() {
    ASSERT_TRUE(loop_.run_until([&] { return server_->api.in_step(); }, 1min));
  }

  std::shared_ptr<Seen> send(http::Request request, Replica* to = nullptr) {
    auto seen = std::make_shared<Seen>();
    (to == nullptr ? *server_ : *to)
        .api.handle(std::make_shared<FakeCall>(std::move(request), seen));
    return seen;
  }
  // Waits for the answer, or for its beginning.
  std::shared_ptr<Seen> ask(std::string method, std::string target, std::string body = {},
                            http::Headers headers = {}) {
    auto seen = send({std::move(method), std::move(target), std::move(headers), std::move(body)});
    EXPECT_TRUE(loop_.run_until([&] { return seen->status != 0; }, 2min)) << "no answer";
    return seen;
  }

  const json::Value& put(const char* collection, json::Value object) {
    const std::string key = "default/" + std::string(object.string_at({"metadata", "name"}));
    object["metadata"]["namespace"] = "default";
    if (collection == kPods) own(object);
    const json::Value* before = cluster_.store.find(collection, key);
    if (before != nullptr) object["metadata"]["uid"] = before->string_at({"metadata", "uid"});
    const json::Value& made =
        before == nullptr
            ? cluster_.store.create(collection, key, std::move(object), "2026-01-01T00:00:00Z")
            : cluster_.store.update(collection, key, std::move(object));
    cluster_.changed();
    return made;
  }
  // By the job that its label names, as the operator makes them.
  void own(json::Value& pod) {
    const std::string name(pod.string_at({"metadata", "labels", "diengine/job"}));
    const json::Value* owner = cluster_.store.find(kJobs, "default/" + name);
    if (owner == nullptr || pod.find_path({"metadata", "ownerReferences"}) != nullptr) return;
    pod["metadata"]["ownerReferences"] = json::Array{
        json::Object{{"uid", owner->string_at({"metadata", "uid"})}, {"controller", true}}};
  }
  void remove(const char* collection, const std::string& name) {
    cluster_.store.remove(collection, "default/" + name);
    cluster_.changed();
  }
  const json::Value& job(const std::string& name = "rl") const {
    return *cluster_.store.find(kJobs, "default/" + name);
  }

  // One learner, two collectors and an evaluator, running.
  void put_tasks_job(const std::string& name = "rl") {
    put(kJobs, *json::parse(R"({"metadata": {"name": ")" + name + R"("}, "spec": {"tasks": [
      {"type": "learner", "name": "learner", "replicas": 1, "template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}},
      {"type": "collector", "name": "collector", "replicas": 2, "template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}},
      {"type": "evaluator", "name": "evaluator", "replicas": 1, "template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}}]},
      "status": {"phase": "Running"}})"));
  }
  void put_template_job(int replicas, const std::string& name = "gang") {
    put(kJobs, *json::parse(fmt::format(
                   R"({{"metadata": {{"name": "{}"}}, "spec": {{"minReplicas": 2, "maxReplicas": 5,
      "template": {{"spec": {{"containers": [{{"name": "di-container", "image": "i"}}]}}}}}},
      "status": {{"phase": "Running", "generation": 3, "replicas": {}}}}})",
                   name, replicas)));
  }
  json::Value pod(const std::string& task, int index, int rank, const std::string& ip) {
    json::Value made;
    made["metadata"]["name"] = fmt::format("rl-{}-{}", task, index);
    json::Value& labels = made["metadata"]["labels"];
    labels["diengine/operator"] = "di-operator";
    labels["diengine/job"] = "rl";
    labels["diengine/task-name"] = task;
    labels["diengine/task-type"] = task;
    json::Value& annotations = made["metadata"]["annotations"];
    annotations["diengine/rank"] = std::to_string(rank);
    annotations["diengine/task-rank"] = std::to_string(index);
    annotations["diengine/replicas"] = "4";
    json::Value container;
    container["name"] = "di-container";
    made["spec"]["containers"] = json::Array{container};
    made["status"]["phase"] = "Running";
    if (!ip.empty()) made["status"]["podIP"] = ip;
    return made;
  }
  json::Value gang_pod(int generation, int rank, const std::string& ip) {
    json::Value made = pod("x", 0, rank, ip);
    made["metadata"]["name"] = fmt::format("gang-{}-{}", generation, rank);
    made["metadata"]["labels"]["diengine/job"] = "gang";
    made["metadata"]["labels"].erase("diengine/task-name");
    made["metadata"]["annotations"]["diengine/generation"] = std::to_string(generation);
    made["metadata"]["annotations"]["diengine/replicas"] = "3";
    return made;
  }
  std::int64_t replicas_of(std::size_t task, const std::string& name = "rl") const {
    return job(name)
        .find_path({"spec", "tasks"})
        ->as_array()
        ->at(task)
        .int_at({"replicas"})
        .value();
  }

  kube::testing::SimLoop loop_;
  kube::testing::FakeApi cluster_{loop_, 1};
  std::unique_ptr<Replica> server_;
};

}  // namespace divisi::server::testing
