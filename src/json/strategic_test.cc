#include "json/strategic.h"

#include "json/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace divisi::json {
namespace {

using ::testing::HasSubstr;

constexpr ObjectType kPod{"v1", "Pod"};

Value yaml(std::string_view text) {
  auto value = parse_yaml_one(text);
  EXPECT_TRUE(value.has_value()) << text << value.error().message();
  return value ? *std::move(value) : Value();
}

// The patched document as JSON, or the message; then also that the document is as it was.
std::string patched(ObjectType type, std::string_view document, std::string_view patch) {
  Value target = yaml(document);
  const Status status = apply_strategic_patch(target, type, yaml(patch));
  if (status.ok()) return print(target);
  EXPECT_EQ(target, yaml(document)) << patch;
  return status.message();
}

TEST(StrategicPatchTest, MergesContainersByNameAndTheirListsByTheirKeys) {
  EXPECT_EQ(
      patched(kPod,
              "spec: {containers: [{name: a, image: x, env: [{name: E, value: '1'}], "
              "ports: [{containerPort: 80}]}, {name: b, image: y}]}",
              "spec: {containers: [{name: a, env: [{name: E, value: '2'}, {name: F, value: '3'}], "
              "ports: [{containerPort: 80, name: http}]}]}"),
      print(yaml("spec: {containers: [{name: a, image: x, env: [{name: E, value: '2'}, "
                 "{name: F, value: '3'}], ports: [{containerPort: 80, name: http}]}, "
                 "{name: b, image: y}]}")));
}

TEST(StrategicPatchTest, PutsNewElementsBeforeThoseItDoesNotName) {
  EXPECT_EQ(
      patched(kPod, "spec: {volumes: [{name: a}, {name: b}]}", "spec: {volumes: [{name: c}]}"),
      R"({"spec":{"volumes":[{"name":"c"},{"name":"a"},{"name":"b"}]}})");
  EXPECT_EQ(patched(kPod, "spec: {volumes: [{name: a}, {name: b}, {name: c}]}",
                    "spec: {volumes: [{name: c, x: 1}, {name: a, x: 1}]}"),
            R"({"spec":{"volumes":[{"name":"b"},{"name":"c","x":1},{"name":"a","x":1}]}})");
}

TEST(StrategicPatchTest, ReachesThePodsInsideWorkloads) {
  const std::string_view before =
      "spec: {template: {spec: {containers: [{name: a, image: x}], tolerations: [{key: k}]}}}";
  const std::string_view patch =
      "spec: {template: {spec: {containers: [{name: a, image: y}], tolerations: [{key: l}]}}}";
  const std::string after = print(yaml(
      "spec: {template: {spec: {containers: [{name: a, image: y}], tolerations: [{key: l}]}}}"));
  for (const char* kind : {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"}) {
    EXPECT_EQ(patched({"apps/v1", kind}, before, patch), after) << kind;
  }
  EXPECT_EQ(patched({"batch/v1", "Job"}, before, patch), after);
  EXPECT_EQ(
      patched({"batch/v1", "CronJob"},
              "spec: {jobTemplate: {spec: {template: {spec: {volumes: [{name: a}]}}}}}",
              "spec: {jobTemplate: {spec: {template: {spec: {volumes: [{name: a, x: 1}]}}}}}"),
      R"({"spec":{"jobTemplate":{"spec":{"template":{"spec":{"volumes":[{"name":"a","x":1}]}}}}}})");
}

TEST(StrategicPatchTest, KnowsTheKeysOfOtherKinds) {
  EXPECT_EQ(patched({"v1", "Service"}, "spec: {ports: [{port: 80, name: a}]}",
                    "spec: {ports: [{port: 80, targetPort: 8080}]}"),
            R"({"spec":{"ports":[{"port":80,"name":"a","targetPort":8080}]}})");
  EXPECT_EQ(patched({"v1", "Node"}, "status: {conditions: [{type: Ready, status: 'False'}]}",
                    "status: {conditions: [{type: Ready, status: 'True'}]}"),
            R"({"status":{"conditions":[{"type":"Ready","status":"True"}]}})");
  EXPECT_EQ(patched({"v1", "ConfigMap"}, "data: {a: '1', b: '2'}", "data: {a: null, c: '3'}"),
            R"({"data":{"b":"2","c":"3"}})");
  EXPECT_EQ(patched({"v1", "ServiceAccount"}, "imagePullSecrets: [{name: a}]\nsecrets: [{name: a}]",
                    "imagePullSecrets: [{name: b}]\nsecrets: [{name: b}]"),
            R"({"imagePullSecrets":[{"name":"b"}],"secrets":[{"name":"b"},{"name":"a"}]})");
  EXPECT_EQ(patched({"policy/v1", "PodDisruptionBudget"}, "spec: {selector: {matchLabels: {a: b}}}",
                    "spec: {selector: {matchLabels: {c: d}}}"),
            R"({"spec":{"selector":{"matchLabels":{"c":"d"}}}})");
  EXPECT_EQ(patched({"v1", "Event"}, "metadata: {ownerReferences: [{uid: u, kind: A}]}",
                    "metadata: {ownerReferences: [{uid: u, kind: B}]}"),
            R"({"metadata":{"ownerReferences":[{"uid":"u","kind":"B"}]}})");
}

TEST(StrategicPatchTest, TreatsFinalizersAsASet) {
  EXPECT_EQ(patched(kPod, "metadata: {finalizers: [a, b]}", "metadata: {finalizers: [b, c]}"),
            R"({"metadata":{"finalizers":["a","b","c"]}})");
  EXPECT_EQ(patched(kPod, "metadata: {finalizers: [a, b]}",
                    "metadata: {$deleteFromPrimitiveList/finalizers: [a]}"),
            R"({"metadata":{"finalizers":["b"]}})");
  EXPECT_EQ(
      patched(kPod, "metadata: {name: x}", "metadata: {$deleteFromPrimitiveList/finalizers: [a]}"),
      R"({"metadata":{"name":"x"}})");
}

TEST(StrategicPatchTest, DeletesAndReplacesByDirective) {
  EXPECT_EQ(patched(kPod, "spec: {containers: [{name: a}, {name: b}]}",
                    "spec: {containers: [{name: a, $patch: delete}]}"),
            R"({"spec":{"containers":[{"name":"b"}]}})");
  EXPECT_EQ(patched(kPod, "spec: {containers: [{name: a}, {name: b}]}",
                    "spec: {containers: [{$patch: replace}, {name: c}]}"),
            R"({"spec":{"containers":[{"name":"c"}]}})");
  EXPECT_EQ(patched(kPod, "spec: {securityContext: {a: 1, b: 2}, nodeSelector: {x: v}}",
                    "spec: {securityContext: {$patch: replace, c: 3}, nodeSelector: "
                    "{$patch: delete}}"),
            R"({"spec":{"securityContext":{"c":3},"nodeSelector":{}}})");
  EXPECT_EQ(
      patched(kPod, "spec: {nodeSelector: {x: v}}", "spec: {nodeSelector: {$patch: merge, z: w}}"),
      R"({"spec":{"nodeSelector":{"x":"v","z":"w"}}})");
}

TEST(StrategicPatchTest, RetainsOnlyTheNamedKeys) {
  EXPECT_EQ(patched({"apps/v1", "Deployment"},
                    "spec: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1}}}",
                    "spec: {strategy: {$retainKeys: [type], type: Recreate}}"),
            R"({"spec":{"strategy":{"type":"Recreate"}}})");
  EXPECT_THAT(patched({"apps/v1", "Deployment"}, "spec: {strategy: {type: A}}",
                      "spec: {strategy: {$retainKeys: [type], other: 1}}"),
              HasSubstr("spec: strategy: the patch has \"other\""));
}

TEST(StrategicPatchTest, SetsTheOrderOfElements) {
  EXPECT_EQ(patched(kPod, "spec: {containers: [{name: a}, {name: b}, {name: c}]}",
                    "spec: {$setElementOrder/containers: [{name: c}, {name: a}]}"),
            R"({"spec":{"containers":[{"name":"b"},{"name":"c"},{"name":"a"}]}})");
  EXPECT_EQ(patched(kPod, "spec: {containers: [{name: a}, {name: b}]}",
                    "spec: {$setElementOrder/containers: [{name: b}, {name: new}, {name: a}], "
                    "containers: [{name: new, image: i}]}"),
            R"({"spec":{"containers":[{"name":"b"},{"name":"new","image":"i"},{"name":"a"}]}})");
  EXPECT_THAT(patched(kPod, "spec: {containers: [{name: a}]}",
                      "spec: {$setElementOrder/containers: [{name: a}], containers: [{name: b}]}"),
              HasSubstr("\"b\" is not where $setElementOrder has it"));
}

TEST(StrategicPatchTest, AddsWhatIsNewWithoutItsDirectives) {
  EXPECT_EQ(patched(kPod, "{}",
                    "spec: {containers: [{name: a, env: [{name: E, $patch: delete}, {name: F}], "
                    "x: null}, {name: b, $patch: delete}], nodeSelector: {$patch: delete}}"),
            R"({"spec":{"containers":[{"name":"a","env":[{"name":"F"}]}]}})");
}

TEST(StrategicPatchTest, NamesTheFieldOfABadPatch) {
  EXPECT_THAT(patched(kPod, "spec: {containers: [{name: a}]}", "spec: {containers: [{image: x}]}"),
              HasSubstr("spec: containers: an element of the list has no name"));
  EXPECT_THAT(patched(kPod, "spec: {containers: [{name: a}]}", "spec: {containers: [7]}"),
              HasSubstr("spec: containers: an element of the patch is number, not an object"));
  EXPECT_THAT(patched(kPod, "spec: {nodeSelector: {}}", "spec: {nodeSelector: {$patch: burn}}"),
              HasSubstr("$patch is not replace, delete or merge"));
  EXPECT_THAT(patched(kPod, "{}", "[]"), HasSubstr("are objects"));
}

TEST(StrategicPatchTest, LeavesCustomResourcesToMergePatch) {
  EXPECT_FALSE(has_strategic_schema({"divisi.dev/v1", "TrainJob"}));
  EXPECT_FALSE(has_strategic_schema({"apps/v1", "Pod"}));
  EXPECT_TRUE(has_strategic_schema(kPod));
  EXPECT_THAT(patched({"divisi.dev/v1", "TrainJob"}, "{}", "{}"),
              HasSubstr("custom resources take merge patch"));
}

}  // namespace
}  // namespace divisi::json
