// Cluster: the API server of KUBECONFIG, a name space of the test's own, and its objects.
#pragma once

#include "kube/informer.h"
#include "kube/session.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>

namespace divisi::kube::suite {

inline json::Value config_map(const std::string& name, const std::string& value) {
  json::Value made;
  made["apiVersion"] = "v1";
  made["kind"] = "ConfigMap";
  made["metadata"]["name"] = name;
  made["metadata"]["labels"]["app"] = "suite";
  made["data"]["value"] = value;
  return made;
}

class Cluster : public ::testing::Test {
 protected:
  void SetUp() override {
    auto session = Session::open({});
    ASSERT_TRUE(session) << session.error().message();
    session_ = *std::move(session);
    static int tests = 0;  // each in a name space of its own: the last one is still being deleted
    space_ = fmt::format("suite-{}-{}", ::getpid(), ++tests);
    json::Value made;
    made["apiVersion"] = "v1";
    made["kind"] = "Namespace";
    made["metadata"]["name"] = space_;
    const auto answer = session_->call(
        [&](Done done) { session_->client().create(resources::namespaces(), "", made, {}, done); });
    ASSERT_TRUE(answer || answer.error().code() == Code::kAlreadyExists)
        << answer.error().message();
  }
  void TearDown() override {
    if (session_ == nullptr) return;
    std::ignore = session_->call([&](Done done) {
      session_->client().remove(resources::namespaces(), "", space_, {}, done);
    });
  }

  Client& client() { return session_->client(); }
  Result<json::Value> create(const json::Value& object, const Resource& resource) {
    return session_->call([&](Done done) { client().create(resource, space_, object, {}, done); });
  }
  Result<json::Value> create(const json::Value& object) {
    return create(object, resources::config_maps());
  }
  Result<json::Value> get(const std::string& name) {
    return session_->call(
        [&](Done done) { client().get(resources::config_maps(), space_, name, {}, done); });
  }
  Result<json::Value> list(const ListOptions& options) {
    return session_->call(
        [&](Done done) { client().list(resources::config_maps(), space_, options, done); });
  }

  // Asks on the loop until it is so, with a deadline that only a hang reaches.
  bool eventually(const std::function<bool()>& holds,
                  std::chrono::seconds most = std::chrono::seconds(120)) {
    const auto deadline = std::chrono::steady_clock::now() + most;
    for (;;) {
      bool so = false;
      session_->reactor().run_on_loop([&] { so = holds(); });
      if (so) return true;
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // between two looks
    }
  }

  std::unique_ptr<Session> session_;
  std::string space_;
};

}  // namespace divisi::kube::suite
