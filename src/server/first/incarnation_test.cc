// D25: a coordinator that was created again repeats its demand, and the workers do not double.
#include "server/first/first_testing.h"

namespace divisi::server::first {
namespace {

using namespace testing;
using ::testing::IsSubsetOf;
using ::testing::UnorderedElementsAreArray;

class IncarnationTest : public FirstFixture {
 protected:
  std::string asked_by(const std::string& url) const {
    return std::string(
        pod_named(pod_of(url)).string_at({"metadata", "annotations", "divisi/coordinator-uid"}));
  }
  std::string coordinator_uid() const {
    return std::string(pod_named("rl-coordinator").string_at({"metadata", "uid"}));
  }
};

TEST_F(IncarnationTest, OD25_RepeatedDemandIsMetByTheWorkersThatAreThere) {
  wait_in_step();
  const auto first = post(counts(2, 3));
  recreate_coordinator();
  const auto again = post(counts(2, 3));
  EXPECT_EQ(again->status, 200);
  EXPECT_EQ(again->message(), "successfully create replicas");
  EXPECT_THAT(urls(*again, "collectors"), UnorderedElementsAreArray(urls(*first, "collectors")));
  EXPECT_THAT(urls(*again, "learners"), UnorderedElementsAreArray(urls(*first, "learners")));
  EXPECT_EQ(count_pods(), 6U);
  for (const std::string& url : urls(*again, "learners")) {
    EXPECT_EQ(asked_by(url), coordinator_uid());
  }
}

TEST_F(IncarnationTest, OD25_OnlyTheDifferenceIsCreated) {
  const auto first = post(counts(2, 1));
  recreate_coordinator();
  const auto again = post(counts(4, 1));
  EXPECT_EQ(urls(*again, "collectors").size(), 4U);
  EXPECT_THAT(urls(*first, "collectors"), IsSubsetOf(urls(*again, "collectors")));
  EXPECT_EQ(count(Role::kCollector), 4U);
  EXPECT_EQ(count(Role::kLearner), 1U);
}

TEST_F(IncarnationTest, OD25_SurplusOfTheEarlierCoordinatorIsDeleted) {
  post(counts(4, 2));
  recreate_coordinator();
  const auto again = post(counts(1, 2));
  EXPECT_EQ(urls(*again, "collectors").size(), 1U);
  EXPECT_EQ(count(Role::kCollector), 1U);
  EXPECT_EQ(count(Role::kLearner), 2U);
}

TEST_F(IncarnationTest, OD25_SecondDemandOfTheNewCoordinatorAdds) {
  post(counts(2, 1));
  recreate_coordinator();
  post(counts(2, 1));
  post(R"("collectors":{"replicas":1})");
  EXPECT_EQ(count(Role::kCollector), 3U);
  EXPECT_EQ(count(Role::kLearner), 1U);
}

TEST_F(IncarnationTest, OD25_EveryRecreationCountsAgain) {
  post(counts(2, 1));
  for (int i = 0; i < 5; ++i) {
    recreate_coordinator();
    restart();
    EXPECT_EQ(urls(*post(counts(2, 1)), "collectors").size(), 2U);
    EXPECT_EQ(count_pods(), 4U);
  }
}

TEST_F(IncarnationTest, OD25_FailedWorkersDoNotCount) {
  const auto first = post(counts(2, 0));
  json::Value ended = pod_named(pod_of(urls(*first, "collectors")[0]));
  ended["status"]["phase"] = "Failed";
  put(kPods, ended);
  recreate_coordinator();
  const auto again = post(counts(2, 0));
  EXPECT_EQ(urls(*again, "collectors").size(), 2U);
  EXPECT_EQ(count(Role::kCollector), 2U);
  EXPECT_TRUE(pod_named(pod_of(urls(*first, "collectors")[0])).is_null()) << "it is cleared away";
}

TEST_F(IncarnationTest, OD25_LogicalLearnersCountWhenTheyHaveTheSameGpus) {
  put_nodes({8, 8});
  const auto first = post(R"("learners":{"replicas":2,"gpus":10})");
  recreate_coordinator();
  const auto again = post(R"("learners":{"replicas":2,"gpus":10})");
  EXPECT_THAT(urls(*again, "learners"), UnorderedElementsAreArray(urls(*first, "learners")));
  EXPECT_EQ(count(Role::kDdpLearner), 4U);
  recreate_coordinator();
  post(R"("learners":{"replicas":1,"gpus":4})");
  EXPECT_EQ(count(Role::kAggregator), 1U);
  EXPECT_EQ(count(Role::kDdpLearner), 1U);
  recreate_coordinator();
  post(R"("learners":{"replicas":1})");
  EXPECT_EQ(count(Role::kAggregator), 0U);
  EXPECT_EQ(count(Role::kDdpLearner), 0U);
  EXPECT_EQ(count(Role::kLearner), 1U);
}

TEST_F(IncarnationTest, OD25_RoleThatIsNotNamedIsLeftAlone) {
  const auto first = post(counts(2, 2));
  recreate_coordinator();
  post(R"("collectors":{"replicas":2})");
  EXPECT_EQ(count(Role::kLearner), 2U);
  const auto later = post(R"("learners":{"replicas":2})");
  EXPECT_THAT(urls(*later, "learners"), UnorderedElementsAreArray(urls(*first, "learners")));
}

TEST_F(IncarnationTest, OD25_FirstDemandThatFailedHalfwayIsGoneOnWith) {
  int creations = 0;
  cluster_.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    if (request.method != "POST" || ++creations <= 2) return std::nullopt;
    return kube::status_answer(403, "Forbidden", "exceeded quota: pods");
  };
  const auto failed = post(counts(2, 2));
  EXPECT_EQ(failed->status, 500);
  EXPECT_EQ(urls(*failed, "collectors").size(), 2U);
  cluster_.intercept = {};
  const auto again = post(counts(2, 2));
  EXPECT_EQ(again->status, 200);
  EXPECT_THAT(urls(*again, "collectors"), UnorderedElementsAreArray(urls(*failed, "collectors")));
  EXPECT_EQ(count(Role::kCollector), 2U);
  EXPECT_EQ(count(Role::kLearner), 2U);
}

TEST_F(IncarnationTest, OD25_WorkersThatFailBeforeTheFirstDemandIsMetAreReplacedOnce) {
  int creations = 0;
  cluster_.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    if (request.method != "POST" || ++creations <= 1) return std::nullopt;
    return kube::status_answer(403, "Forbidden", "exceeded quota: pods");
  };
  const auto failed = post(counts(1, 1));
  ASSERT_EQ(urls(*failed, "collectors").size(), 1U);
  cluster_.intercept = {};
  const std::string name = pod_of(urls(*failed, "collectors")[0]);
  json::Value ended = pod_named(name);
  ended["status"]["phase"] = "Failed";
  put(kPods, ended);
  EXPECT_EQ(post(counts(1, 1))->status, 200);
  EXPECT_TRUE(pod_named(name).is_null());
  report({name}, {});
  EXPECT_EQ(count(Role::kCollector), 1U);
}

TEST_F(IncarnationTest, OD25_DemandThatReachesTwoServersIsMetOnce) {
  Replica other(loop_, cluster_, {});
  const auto one = send({"POST", kReplicas, {}, demand(counts(5, 3))});
  const auto two = send({"POST", kReplicas, {}, demand(counts(5, 3))}, &other);
  ASSERT_TRUE(loop_.run_until([&] { return one->status != 0 && two->status != 0; }, 1min));
  EXPECT_EQ(one->status, 200);
  EXPECT_EQ(two->status, 200);
  EXPECT_EQ(count(Role::kCollector), 5U);
  EXPECT_EQ(count(Role::kLearner), 3U);
  EXPECT_THAT(urls(*one, "collectors"), UnorderedElementsAreArray(urls(*two, "collectors")));
}

TEST_F(IncarnationTest, WorkersOfTheReferenceCountByTheirAge) {
  // Pods that do not say who asked for them: older than the coordinator, and younger.
  const json::Value old = pod_object("rl-collector-bbbbb", "collector", "rl");
  put(kPods, old);
  loop_.run_for(2s);
  json::Value coordinator = pod_named("rl-coordinator");
  coordinator["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z";
  put(kPods, coordinator);
  json::Value young = pod_object("rl-collector-ccccc", "collector", "rl");
  young["metadata"]["creationTimestamp"] = "2026-01-03T00:00:00Z";
  put(kPods, young);
  cluster_.store.update(kPods, "default/rl-collector-ccccc", [&] {
    json::Value changed = pod_named("rl-collector-ccccc");
    changed["metadata"]["creationTimestamp"] = "2026-01-03T00:00:00Z";
    return changed;
  }());
  post(R"("collectors":{"replicas":1})");
  EXPECT_EQ(count(Role::kCollector), 2U) << "the older one meets the demand";
}

TEST_F(IncarnationTest, AggregatorOfTheOperatorIsNotTouched) {
  put(kPods, pod_object("rl-aggregator", "aggregator", "rl"));
  recreate_coordinator();
  post(counts(1, 1));
  EXPECT_EQ(count(Role::kAggregator), 1U);
  report({}, {"rl-aggregator"});
  ask("DELETE", kReplicas, demand(R"("learners":{"replicas":9})"));
  ask("DELETE", kReplicas, demand(R"("learners":{"replicas":9})"));
  EXPECT_FALSE(pod_named("rl-aggregator").is_null());
  EXPECT_EQ(count(Role::kLearner), 0U);
}

}  // namespace
}  // namespace divisi::server::first
