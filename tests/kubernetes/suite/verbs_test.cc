// Every verb and every patch type against a real API server.

#include "kubernetes/suite/cluster.h"

#include <gmock/gmock.h>

namespace divisi::kube::suite {
namespace {

using ::testing::HasSubstr;

class VerbsTest : public Cluster {
 protected:
  Result<json::Value> patch(const std::string& name, PatchType type, const std::string& text,
                            const WriteOptions& options = {}) {
    return session_->call([&](Done done) {
      client().patch(resources::config_maps(), space_, name, type, *json::parse(text), options,
                     done);
    });
  }
  Result<json::Value> remove(const std::string& name, const DeleteOptions& options = {}) {
    return session_->call(
        [&](Done done) { client().remove(resources::config_maps(), space_, name, options, done); });
  }
  Result<json::Value> update(const json::Value& object, const WriteOptions& options = {}) {
    return session_->call(
        [&](Done done) { client().update(resources::config_maps(), object, options, done); });
  }
};

TEST_F(VerbsTest, CreateGetListUpdateDelete) {
  const auto made = create(config_map("a", "1"));
  ASSERT_TRUE(made) << made.error().message();
  auto found = get("a");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->string_at({"data", "value"}), "1");
  (*found)["data"]["value"] = "2";
  const auto updated = update(*found);
  ASSERT_TRUE(updated) << updated.error().message();
  const auto stale = update(*found);
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code(), Code::kConflict);
  const auto again = create(config_map("a", "3"));
  EXPECT_EQ(again.error().code(), Code::kAlreadyExists);
  EXPECT_THAT(again.error().message(), HasSubstr("configmaps \"a\" already exists"));
  EXPECT_EQ(remove("a", {.uid = "another"}).error().code(), Code::kConflict);
  ASSERT_TRUE(remove("a"));
  EXPECT_EQ(get("a").error().code(), Code::kNotFound);
}

TEST_F(VerbsTest, EveryPatchType) {
  ASSERT_TRUE(create(config_map("a", "1")));
  auto merged = patch("a", PatchType::kMerge, R"({"data":{"more":"x","value":null}})");
  ASSERT_TRUE(merged) << merged.error().message();
  EXPECT_EQ(json::print(*merged->find("data")), R"({"more":"x"})");
  auto by_json = patch("a", PatchType::kJson, R"([{"op":"add","path":"/data/third","value":"y"}])");
  ASSERT_TRUE(by_json) << by_json.error().message();
  EXPECT_EQ(by_json->string_at({"data", "third"}), "y");
  auto strategic = patch("a", PatchType::kStrategic, R"({"metadata":{"labels":{"app":"other"}}})");
  ASSERT_TRUE(strategic) << strategic.error().message();
  EXPECT_EQ(strategic->string_at({"metadata", "labels", "app"}), "other");
  EXPECT_EQ(patch("a", PatchType::kMerge, R"({"metadata":{"finalizers":["divisi.test/a"]}})")
                ->find_path({"metadata", "finalizers"})
                ->as_array()
                ->size(),
            1u);
  // A list with a merge key: a merge patch replaces it, a strategic one adds to it.
  strategic = patch("a", PatchType::kStrategic, R"({"metadata":{"finalizers":["divisi.test/b"]}})");
  ASSERT_TRUE(strategic) << strategic.error().message();
  EXPECT_EQ(strategic->find_path({"metadata", "finalizers"})->as_array()->size(), 2u);
  ASSERT_TRUE(patch("a", PatchType::kMerge, R"({"metadata":{"finalizers":null}})"));
  const std::string apply =
      R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"third":"z"}})";
  const auto refused = patch("a", PatchType::kApply, apply, {.field_manager = "suite"});
  EXPECT_EQ(refused.error().code(), Code::kConflict) << "others own the field";
  auto applied = patch("a", PatchType::kApply, apply, {.field_manager = "suite", .force = true});
  ASSERT_TRUE(applied) << applied.error().message();
  EXPECT_EQ(applied->string_at({"data", "third"}), "z");
}

TEST_F(VerbsTest, DryRunsChangeNothing) {
  const auto made = session_->call([&](Done done) {
    client().create(resources::config_maps(), space_, config_map("dry", "1"), {.dry_run = true},
                    done);
  });
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(get("dry").error().code(), Code::kNotFound);
}

TEST_F(VerbsTest, ListsHavePagesAndSelectors) {
  for (int i = 0; i < 7; ++i) {
    json::Value object = config_map("m" + std::to_string(i), "1");
    object["metadata"]["labels"]["odd"] = i % 2 == 1 ? "yes" : "no";
    ASSERT_TRUE(create(object));
  }
  const auto odd = list({.label_selector = "odd in (yes)"});
  EXPECT_EQ(odd->find("items")->as_array()->size(), 3u);
  const auto one = list({.field_selector = "metadata.name=m2"});
  EXPECT_EQ(one->find("items")->as_array()->size(), 1u);
  std::size_t seen = 0;
  std::string token;
  do {
    const auto page = list({.label_selector = "app=suite", .limit = 3, .continue_token = token});
    ASSERT_TRUE(page) << page.error().message();
    seen += page->find("items")->as_array()->size();
    token = page->string_at({"metadata", "continue"});
  } while (!token.empty());
  EXPECT_EQ(seen, 7u);
}

TEST_F(VerbsTest, StatusAndScaleAreSubresources) {
  const Resource deployments{"apps", "v1", "deployments", "Deployment", true, {}};
  const auto object =
      json::parse(R"({"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},
    "spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},
    "spec":{"containers":[{"name":"c","image":"docker.io/local/none:1"}]}}}})");
  ASSERT_TRUE(object);
  const auto made = create(*object, deployments);
  ASSERT_TRUE(made) << made.error().message();
  const auto scaled = session_->call([&](Done done) {
    client().patch(deployments, space_, "d", PatchType::kMerge,
                   *json::parse(R"({"spec":{"replicas":3}})"), {.subresource = "scale"}, done);
  });
  ASSERT_TRUE(scaled) << scaled.error().message();
  EXPECT_EQ(scaled->string_at({"kind"}), "Scale");
  const auto scale =
      session_->call([&](Done done) { client().get(deployments, space_, "d", "scale", done); });
  EXPECT_EQ(scale->int_at({"spec", "replicas"}), 3);
  const auto status = session_->call([&](Done done) {
    client().patch(deployments, space_, "d", PatchType::kMerge,
                   *json::parse(R"({"status":{"observedGeneration":99},"spec":{"replicas":9}})"),
                   {.subresource = "status"}, done);
  });
  ASSERT_TRUE(status) << status.error().message();
  EXPECT_EQ(status->int_at({"spec", "replicas"}), 3) << "who writes status does not write spec";
}

TEST_F(VerbsTest, DiscoveryFindsWhatPeopleAndFilesCallThings) {
  EXPECT_EQ(session_->find("po")->plural, "pods");
  EXPECT_EQ(session_->find("Deployment")->group, "apps");
  EXPECT_EQ(session_->find("jobs.batch")->kind, "Job");
  EXPECT_EQ(session_->find("jobs.v1.batch")->version, "v1");
  EXPECT_EQ(session_->find_kind("coordination.k8s.io/v1", "Lease")->plural, "leases");
  EXPECT_THAT(session_->find("nonsense").error().message(), HasSubstr("no resource \"nonsense\""));
  EXPECT_THAT(session_->find_kind("example.org/v1", "Nothing").error().message(),
              HasSubstr("CustomResourceDefinition"));
}

TEST_F(VerbsTest, WhatTheServerRefusesIsToldInItsWords) {
  json::Value bad = config_map("Not A Name", "1");
  const auto refused = create(bad);
  EXPECT_EQ(refused.error().code(), Code::kInvalid);
  EXPECT_THAT(refused.error().message(), HasSubstr("metadata.name: Invalid value"));
  EXPECT_THAT(patch("none", PatchType::kMerge, "{}").error().message(),
              HasSubstr("configmaps \"none\" not found"));
}

}  // namespace
}  // namespace divisi::kube::suite
