// The aggregator that starts together with the coordinator: the layout of the oldest jobs.
#include "dijob/testing/first_fixture.h"

namespace divisi::dijob::testing {
namespace {

using namespace std::chrono_literals;

constexpr const char* kConfigs = "/apis/diengine.opendilab.org/v1alpha1/aggregatorconfigs";
constexpr const char* kConfigKey = "di-system/aggregator-config";
constexpr const char* kAggregator = "j-aggregator";

class AggregatorAtStartTest : public FirstOperatorTest {
 protected:
  void create_config() {
    json::Value container = json::Object{
        {"name", "aggregator"},
        {"image", "busybox"},
        {"ports", json::Array{json::Object{{"name", "aggregator"}, {"containerPort", 80}}}}};
    json::Value config;
    config["metadata"]["name"] = "aggregator-config";
    config["metadata"]["namespace"] = "di-system";
    config["spec"]["aggregator"]["template"]["spec"]["containers"] =
        json::Array{std::move(container)};
    cluster.api.store.create(kConfigs, kConfigKey, std::move(config), "2026-01-01T00:00:00Z");
  }
  static std::string annotated_job() {
    return fmt::format(
        "{{metadata: {{name: j, annotations: {{diengine/aggregator-at-start: "
        "'true'}}}}, spec: {{coordinator: {{template: {}}}}}}}",
        kPodTemplate);
  }
};

TEST_F(AggregatorAtStartTest, BothPodsAppearWithBothUrls) {
  create_config();
  create(annotated_job());
  EXPECT_EQ(cluster.pod_names("j"), (Names{kAggregator, kCoordinator}));
  EXPECT_TRUE(same_names());
  for (const char* const pod : {kAggregator, kCoordinator}) {
    EXPECT_EQ(env_of(cluster.pod(pod), "KUBERNETES_AGGREGATOR_URL"), "j-aggregator.default:80");
  }
  EXPECT_EQ(env_of(cluster.pod(kCoordinator), "KUBERNETES_COORDINATOR_URL"),
            "j-coordinator.default:22273");
}

TEST_F(AggregatorAtStartTest, TheJobRunsWhenBothRun) {
  create_config();
  create(annotated_job());
  cluster.kubelet.run(in_default(kCoordinator));
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Created");
  cluster.kubelet.run(in_default(kAggregator));
  cluster.settle();
  EXPECT_EQ(cluster.phase("j"), "Running");
  cluster.delete_pod(kAggregator);
  cluster.settle();
  EXPECT_NE(cluster.uid(kAggregator), "") << "it is created again";
  EXPECT_EQ(cluster.phase("j"), "Running");
}

TEST_F(AggregatorAtStartTest, WithoutTheConfigTheJobWaitsAndSaysSo) {
  create(annotated_job());
  cluster.settle(1min);
  EXPECT_EQ(cluster.phase("j"), "Created");
  EXPECT_EQ(cluster.pod_names("j"), Names{});
  EXPECT_EQ(condition("Blocked"), "True");
  EXPECT_NE(message("Blocked").find("AggregatorConfig di-system/aggregator-config"),
            std::string::npos);
  EXPECT_TRUE(told("Warning AggregatorConfigMissing: "));
  create_config();
  cluster.settle(10s);
  EXPECT_EQ(cluster.pod_names("j").size(), 2u);
  EXPECT_EQ(condition("Blocked"), "False");
}

TEST_F(AggregatorAtStartTest, AConfigDeletedMidwayIsMissedWhenTheAggregatorIs) {
  create_config();
  create(annotated_job());
  for (const char* const pod : {kCoordinator, kAggregator}) cluster.kubelet.run(in_default(pod));
  cluster.settle();
  ASSERT_EQ(cluster.phase("j"), "Running");
  cluster.api.store.remove(kConfigs, kConfigKey);
  cluster.api.changed();
  cluster.settle(1min);
  EXPECT_EQ(cluster.phase("j"), "Running");
  EXPECT_NE(cluster.uid(kAggregator), "");
  cluster.delete_pod(kAggregator);
  cluster.settle(1min);
  EXPECT_EQ(cluster.phase("j"), "Running") << "the coordinator decides";
  EXPECT_EQ(condition("Blocked"), "True");
  EXPECT_TRUE(told("Warning AggregatorConfigMissing: "));
  create_config();
  cluster.settle(2min);
  EXPECT_NE(cluster.uid(kAggregator), "");
  EXPECT_EQ(condition("Blocked"), "False");
}

TEST_F(AggregatorAtStartTest, TheFlagGivesEveryJobAnAggregator) {
  create_config();
  cluster.crash_all();
  cluster.configure = [](OperatorOptions& options) { options.aggregator_at_start = true; };
  cluster.start_operator();
  create(serial_job());
  EXPECT_EQ(cluster.pod_names("j"), (Names{kAggregator, kCoordinator}));
}

TEST_F(AggregatorAtStartTest, OtherJobsHaveNone) {
  create_config();
  create(first_job());
  EXPECT_EQ(cluster.pod_names("j"), Names{kCoordinator});
  EXPECT_EQ(env_of(cluster.pod(kCoordinator), "KUBERNETES_AGGREGATOR_URL"), "");
}

}  // namespace
}  // namespace divisi::dijob::testing
