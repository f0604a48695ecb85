#include "local/pod_plan.h"

#include "json/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::local {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

const json::Value* no_object(std::string_view, std::string_view) {
  return nullptr;
}

Result<PodPlan> plan_of(const std::string& spec) {
  const json::Value pod =
      *json::parse_yaml_one("metadata: {name: p, namespace: lab, labels: {app: x}}\nspec: " + spec);
  return plan_pod(pod, no_object);
}

std::string why_not(const std::string& spec) {
  const auto plan = plan_of(spec);
  return plan ? "it can run" : plan.error().message();
}

TEST(PodPlanTest, VariablesAreExpandedAsKubeletsDoIt) {
  const auto plan = plan_of(
      "{containers: [{name: c, command: [\"$(A)\", \"$$(A)\", \"$(NONE)\", \"$\"], args: "
      "[\"$(B)\"],"
      " env: [{name: A, value: one}, {name: B, value: \"$(A) two\"},"
      " {name: L, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['app']\"}}},"
      " {name: SPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}]}]}");
  ASSERT_TRUE(plan) << plan.error().message();
  const ContainerPlan& container = plan->containers.at(0);
  EXPECT_THAT(container.command, ElementsAre("one", "$(A)", "$(NONE)", "$", "one two"));
  EXPECT_THAT(container.environment, ElementsAre(Pair("A", "one"), Pair("B", "one two"),
                                                 Pair("L", "x"), Pair("SPACE", "lab")));
}

TEST(PodPlanTest, WhatCannotRunIsNamed) {
  EXPECT_THAT(why_not("{}"), HasSubstr("no containers"));
  EXPECT_THAT(why_not("{containers: [{name: c}]}"), HasSubstr("container \"c\" has no command"));
  EXPECT_THAT(why_not("{volumes: [{name: v, persistentVolumeClaim: {claimName: d}}], containers: "
                      "[{name: c, command: [a]}]}"),
              HasSubstr("volume \"v\" is of a kind that needs a cluster"));
  EXPECT_THAT(
      why_not(
          "{volumes: [{name: v, configMap: {name: m}}], containers: [{name: c, command: [a]}]}"),
      HasSubstr("configmap \"m\" not found"));
  EXPECT_THAT(
      why_not("{containers: [{name: c, command: [a], volumeMounts: [{name: v, mountPath: /x}]}]}"),
      HasSubstr("mounts volume \"v\", which the pod does not have"));
  EXPECT_THAT(why_not("{volumes: [{name: v, emptyDir: {}}], containers: [{name: c, command: [a], "
                      "volumeMounts: [{name: v, mountPath: x}]}]}"),
              HasSubstr("not an absolute path"));
  EXPECT_THAT(why_not("{volumes: [{name: v, emptyDir: {}}], containers: [{name: c, command: [a], "
                      "volumeMounts: [{name: v, mountPath: /x, subPath: ../y}]}]}"),
              HasSubstr("leads out of the volume"));
  EXPECT_THAT(why_not("{containers: [{name: c, command: [a], workingDir: src}]}"),
              HasSubstr("workingDir \"src\" is not absolute"));
  EXPECT_THAT(
      why_not("{volumes: [{name: ../v, emptyDir: {}}], containers: [{name: c, command: [a]}]}"),
      HasSubstr("no name of a volume"));
  EXPECT_THAT(why_not("{volumes: [{name: v, downwardAPI: {items: [{path: ../x, fieldRef: "
                      "{fieldPath: metadata.name}}]}}], containers: [{name: c, command: [a]}]}"),
              HasSubstr("leads out of the volume"));
}

}  // namespace
}  // namespace divisi::local
