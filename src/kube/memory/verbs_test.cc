// The fake server keeps the rules of the real one that controllers rely on.
#include "kube/memory/verbs.h"

#include "json/yaml.h"
#include "kube/time.h"

#include <gtest/gtest.h>

namespace divisi::kube {
namespace {

constexpr const char* kPodsOfDefault = "/api/v1/namespaces/default/pods";
constexpr const char* kJobs = "/apis/diengine.opendilab.org/v2alpha1/namespaces/default/dijobs";

class MemoryVerbsTest : public ::testing::Test {
 protected:
  struct Answer {
    int status = 0;
    json::Value body{};
  };
  Answer ask(const std::string& method, const std::string& target, const std::string& yaml = "{}",
             const std::string& type = "application/merge-patch+json") {
    http::Request request{method, target, {{"Content-Type", type}}, ""};
    request.body = json::print(*json::parse_yaml_one(yaml));
    const http::Response response = verbs_.answer(request, *ApiPath::parse(target));
    return {response.status, *json::parse(response.body)};
  }
  std::string job(const std::string& more = "") { return kJobs + more; }

  MemoryStore store_;
  std::chrono::system_clock::time_point now_ = *parse_time("2026-01-01T00:00:00Z");
  MemoryVerbs verbs_{store_, [this] { return now_; }};
};

TEST_F(MemoryVerbsTest, StatusAndTheRestAreWrittenApart) {
  ask("POST", job(), "{metadata: {name: a}, spec: {x: 1}, status: {phase: Made}}");
  EXPECT_EQ(ask("GET", job("/a")).body.find("status"), nullptr);
  ask("PATCH", job("/a/status"), "{spec: {x: 2}, status: {phase: Running}}");
  Answer now = ask("GET", job("/a"));
  EXPECT_EQ(now.body.int_at({"spec", "x"}), 1);
  EXPECT_EQ(now.body.string_at({"status", "phase"}), "Running");
  ask("PATCH", job("/a"), "{spec: {x: 3}, status: {phase: Gone}}");
  now = ask("GET", job("/a"));
  EXPECT_EQ(now.body.int_at({"spec", "x"}), 3);
  EXPECT_EQ(now.body.string_at({"status", "phase"}), "Running");
}

TEST_F(MemoryVerbsTest, TheGenerationFollowsTheSpecOnly) {
  ask("POST", job(), "{metadata: {name: a}, spec: {x: 1}}");
  ask("PATCH", job("/a/status"), "{status: {phase: Running}}");
  ask("PATCH", job("/a"), "{metadata: {labels: {b: c}}}");
  EXPECT_EQ(ask("GET", job("/a")).body.int_at({"metadata", "generation"}), 1);
  EXPECT_EQ(ask("PATCH", job("/a"), "{spec: {x: 2}}").body.int_at({"metadata", "generation"}), 2);
}

TEST_F(MemoryVerbsTest, AWriteThatRestsOnAnOldVersionIsRefused) {
  const Answer made = ask("POST", job(), "{metadata: {name: a}, spec: {x: 1}}");
  ask("PATCH", job("/a"), "{spec: {x: 2}}");
  json::Value patch;
  patch["metadata"]["resourceVersion"] = made.body.string_at({"metadata", "resourceVersion"});
  patch["status"]["phase"] = "Running";
  EXPECT_EQ(ask("PATCH", job("/a/status"), json::print(patch)).status, 409);
  EXPECT_EQ(ask("POST", job(), "{metadata: {name: a}}").body.string_at({"reason"}),
            "AlreadyExists");
}

TEST_F(MemoryVerbsTest, CustomResourcesTakeNoStrategicPatch) {
  const std::string strategic = "application/strategic-merge-patch+json";
  const std::string containers = "{spec: {containers: [{name: b, image: new}]}}";
  ask("POST", kPodsOfDefault,
      "{apiVersion: v1, kind: Pod, metadata: {name: a}, "
      "spec: {containers: [{name: a}, {name: b}]}}");
  const Answer merged = ask("PATCH", std::string(kPodsOfDefault) + "/a", containers, strategic);
  EXPECT_EQ(json::print(*merged.body.find_path({"spec", "containers"})),
            R"([{"name":"a"},{"name":"b","image":"new"}])");
  ask("POST", job(),
      "{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, metadata: {name: a}}");
  EXPECT_EQ(ask("PATCH", job("/a"), "{spec: {x: 1}}", strategic).status, 415);
  EXPECT_EQ(ask("PATCH", job("/a"), "{spec: {x: 1}}", "application/json").status, 415);
  EXPECT_EQ(ask("GET", job("/a")).body.find("spec"), nullptr);
}

TEST_F(MemoryVerbsTest, JsonPatchesAreAppliedWholeOrNotAtAll) {
  ask("POST", job(), "{metadata: {name: a}, spec: {x: 1}}");
  const std::string type = "application/json-patch+json";
  EXPECT_EQ(
      ask("PATCH", job("/a"),
          "[{op: replace, path: /spec/x, value: 2}, {op: test, path: /spec/x, value: 9}]", type)
          .status,
      422);
  EXPECT_EQ(ask("GET", job("/a")).body.int_at({"spec", "x"}), 1);
  ask("PATCH", job("/a"), "[{op: replace, path: /spec/x, value: 2}]", type);
  EXPECT_EQ(ask("GET", job("/a")).body.int_at({"spec", "x"}), 2);
}

TEST_F(MemoryVerbsTest, MergePatchesLoseNullsInTheirLists) {
  ask("POST", job(), "{metadata: {name: a}, spec: {x: 1, list: [{k: null}]}}");
  const auto list = [&] {
    return json::print(*ask("GET", job("/a")).body.find_path({"spec", "list"}));
  };
  EXPECT_EQ(list(), R"([{"k":null}])");
  ask("PATCH", job("/a"), "[{op: add, path: /spec/list, value: [{k: null, z: {w: null}}]}]",
      "application/json-patch+json");
  EXPECT_EQ(list(), R"([{"k":null,"z":{"w":null}}])");
  ask("PATCH", job("/a"), "{spec: {x: null, list: [{k: null, z: {w: null}}]}}");
  EXPECT_EQ(list(), R"([{"z":{}}])");
}

TEST_F(MemoryVerbsTest, DeletingMarksAPodThatRunsAndRemovesOthers) {
  ask("POST", kPodsOfDefault, "{metadata: {name: waits}}");
  ask("POST", kPodsOfDefault, "{metadata: {name: runs}, spec: {nodeName: node-a}}");
  EXPECT_EQ(ask("DELETE", std::string(kPodsOfDefault) + "/waits").status, 200);
  EXPECT_EQ(ask("GET", std::string(kPodsOfDefault) + "/waits").status, 404);
  const std::string runs = std::string(kPodsOfDefault) + "/runs";
  ask("DELETE", runs);
  EXPECT_EQ(ask("GET", runs).body.string_at({"metadata", "deletionTimestamp"}),
            "2026-01-01T00:00:30Z");
  ask("DELETE", runs, "{gracePeriodSeconds: 60}");
  EXPECT_EQ(ask("GET", runs).body.int_at({"metadata", "deletionGracePeriodSeconds"}), 30);
  EXPECT_EQ(ask("DELETE", runs, "{preconditions: {uid: another}}").status, 409);
  ask("DELETE", runs, "{gracePeriodSeconds: 0}");
  EXPECT_EQ(ask("GET", runs).status, 404);
}

TEST_F(MemoryVerbsTest, WhatIsOwnedByNothingIsCollected) {
  const Answer owner = ask("POST", job(), "{metadata: {name: a}}");
  const std::string uid(owner.body.string_at({"metadata", "uid"}));
  ask("POST", kPodsOfDefault, "{metadata: {name: p, ownerReferences: [{uid: " + uid + "}]}}");
  EXPECT_FALSE(verbs_.has_orphans());
  ask("DELETE", job("/a"));
  EXPECT_TRUE(verbs_.has_orphans());
  verbs_.collect_garbage();
  EXPECT_EQ(ask("GET", std::string(kPodsOfDefault) + "/p").status, 404);
}

}  // namespace
}  // namespace divisi::kube
