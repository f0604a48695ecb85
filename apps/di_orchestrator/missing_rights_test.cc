#include "missing_rights.h"

#include "kube/informer.h"
#include "kube/testing/fake_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace divisi::apps {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr const char* kPod = "divisi-system/di-operator-1";

class MissingRightsTest : public ::testing::Test {
 protected:
  void put_pod() {
    json::Value pod;
    pod["metadata"]["name"] = "di-operator-1";
    pod["metadata"]["namespace"] = "divisi-system";
    api_.store.create("/api/v1/pods", kPod, std::move(pod), "2026-01-01T00:00:00Z");
  }
  // The account may do everything but what begins with `paths`.
  void forbid(std::vector<std::string> paths) {
    api_.intercept = [paths = std::move(paths)](const http::Request& request) {
      for (const std::string& path : paths) {
        if (!request.target.starts_with(path)) continue;
        return std::optional(kube::status_answer(
            403, "Forbidden", "nodes is forbidden: User \"di\" cannot list resource \"nodes\""));
      }
      return std::optional<http::Response>();
    };
  }
  std::vector<json::Value> events() const {
    std::vector<json::Value> all;
    for (const auto& [key, event] : api_.store.all("/api/v1/events")) all.push_back(event);
    return all;
  }
  // An operator that lists nodes for a while.
  void run() {
    kube::Client client(loop_, api_);
    const MissingRights rights(client, "di-operator", "divisi-system", "di-operator-1");
    kube::InformerOptions options;
    options.reflector.resource = kube::resources::nodes();
    kube::Informer nodes(client, options);
    nodes.start();
    loop_.run_for(60s);
    nodes.stop();
  }

  kube::testing::SimLoop loop_;
  kube::testing::FakeApi api_{loop_, 1};
};

TEST_F(MissingRightsTest, ARefusedListIsOneEventOnThePodWithACount) {
  put_pod();
  forbid({"/api/v1/nodes"});
  run();
  ASSERT_EQ(events().size(), 1u);
  const json::Value event = events().front();
  EXPECT_EQ(event.string_at({"type"}), "Warning");
  EXPECT_EQ(event.string_at({"reason"}), "MissingRights");
  EXPECT_THAT(std::string(event.string_at({"message"})), HasSubstr("nodes is forbidden"));
  EXPECT_EQ(event.string_at({"involvedObject", "kind"}), "Pod");
  EXPECT_EQ(event.string_at({"involvedObject", "name"}), "di-operator-1");
  EXPECT_EQ(event.string_at({"involvedObject", "uid"}),
            api_.store.find("/api/v1/pods", kPod)->string_at({"metadata", "uid"}));
  EXPECT_FALSE(event.string_at({"involvedObject", "uid"}).empty());
  EXPECT_GT(*event.find("count")->as_int(), 1);
}

TEST_F(MissingRightsTest, WhoMayNotReadItsPodNamesIt) {
  put_pod();
  forbid({"/api/v1/nodes", "/api/v1/namespaces/divisi-system/pods"});
  run();
  ASSERT_EQ(events().size(), 1u);
  EXPECT_EQ(events().front().string_at({"involvedObject", "name"}), "di-operator-1");
}

TEST_F(MissingRightsTest, OutsideOfAClusterThereIsNoEvent) {
  forbid({"/api/v1/nodes"});
  run();
  EXPECT_TRUE(events().empty());
}

TEST_F(MissingRightsTest, WhatIsAllowedIsNoEvent) {
  put_pod();
  run();
  EXPECT_TRUE(events().empty());
}

}  // namespace
}  // namespace divisi::apps
