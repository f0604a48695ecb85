// The routes of the first generation, as clients use them.
#include "server/first/first_testing.h"

namespace divisi::server::first {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::UnorderedElementsAreArray;

class FirstReplicasTest : public FirstFixture {};

TEST_F(FirstReplicasTest, O019_PostCreatesExactlyWhatItAsksFor) {
  const auto seen = post(counts(2, 3));
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(seen->json().bool_at({"success"}), true);
  EXPECT_EQ(seen->json().int_at({"code"}), 0);
  EXPECT_EQ(seen->message(), "successfully create replicas");
  EXPECT_EQ(seen->json().string_at({"data", "namespace"}), "default");
  EXPECT_EQ(seen->json().string_at({"data", "coordinator"}), "rl-coordinator");
  const auto collectors = urls(*seen, "collectors");
  const auto learners = urls(*seen, "learners");
  ASSERT_EQ(collectors.size(), 2U);
  ASSERT_EQ(learners.size(), 3U);
  for (const std::string& url : collectors) {
    EXPECT_THAT(url, MatchesRegex("rl-collector-[bcdfghjklmnpqrstvwxz2456789]{5}\\.default:80"));
  }
  for (const std::string& url : learners) {
    EXPECT_THAT(url, MatchesRegex("rl-learner-[bcdfghjklmnpqrstvwxz2456789]{5}\\.default:80"));
  }
  EXPECT_EQ(count(Role::kCollector), 2U);
  EXPECT_EQ(count(Role::kLearner), 3U);
}

TEST_F(FirstReplicasTest, O020_GetReturnsTheSameNumbers) {
  wait_in_step();
  const auto made = post(counts(2, 3));
  const auto seen = get();
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(seen->message(), "successfully get replicas");
  EXPECT_THAT(urls(*seen, "collectors"), UnorderedElementsAreArray(urls(*made, "collectors")));
  EXPECT_THAT(urls(*seen, "learners"), UnorderedElementsAreArray(urls(*made, "learners")));
}

TEST_F(FirstReplicasTest, GetIsRightBeforeTheCachesAreInStep) {
  const auto made = post(counts(2, 3));
  restart();
  ASSERT_FALSE(server_->api.in_step());
  const auto seen = get();
  EXPECT_THAT(urls(*seen, "collectors"), UnorderedElementsAreArray(urls(*made, "collectors")));
  EXPECT_THAT(urls(*seen, "learners"), UnorderedElementsAreArray(urls(*made, "learners")));
}

TEST_F(FirstReplicasTest, O021_FailedPodsAreMadeAgain) {
  wait_in_step();
  const auto made = post(counts(2, 3));
  const std::string collector = pod_of(urls(*made, "collectors")[0]);
  const std::string learner = pod_of(urls(*made, "learners")[0]);
  const std::size_t before = count_pods();
  const auto seen = report({collector}, {learner});
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(seen->message(), "successfully recreate replicas");
  ASSERT_EQ(urls(*seen, "collectors").size(), 1U);
  ASSERT_EQ(urls(*seen, "learners").size(), 1U);
  EXPECT_NE(pod_of(urls(*seen, "collectors")[0]), collector);
  EXPECT_THAT(urls(*seen, "learners")[0], HasSubstr("rl-learner-"));
  EXPECT_EQ(count_pods(), before);
  EXPECT_TRUE(pod_named(collector).is_null());
  EXPECT_TRUE(pod_named(learner).is_null());
  EXPECT_EQ(urls(*get(), "collectors").size(), 2U);
  EXPECT_EQ(urls(*get(), "learners").size(), 3U);
}

TEST_F(FirstReplicasTest, O022_NameListedTwiceIsRecreatedOnce) {
  const auto made = post(counts(2, 1));
  const std::string collector = pod_of(urls(*made, "collectors")[0]);
  const auto seen = report({collector, collector}, {});
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(urls(*seen, "collectors").size(), 1U);
  EXPECT_EQ(count(Role::kCollector), 2U);
}

TEST_F(FirstReplicasTest, O023_DeleteReturnsThosePodsThatAreGone) {
  wait_in_step();
  post(counts(2, 3));
  const auto seen = ask("DELETE", kReplicas, demand(counts(1, 1)));
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(seen->message(), "successfully delete replicas");
  ASSERT_EQ(urls(*seen, "collectors").size(), 1U);
  ASSERT_EQ(urls(*seen, "learners").size(), 1U);
  EXPECT_TRUE(pod_named(pod_of(urls(*seen, "collectors")[0])).is_null());
  EXPECT_TRUE(pod_named(pod_of(urls(*seen, "learners")[0])).is_null());
  EXPECT_EQ(count(Role::kCollector), 1U);
  EXPECT_EQ(count(Role::kLearner), 2U);
  const auto after = get();
  EXPECT_EQ(urls(*after, "collectors").size(), 1U);
  EXPECT_EQ(urls(*after, "learners").size(), 2U);
}

TEST_F(FirstReplicasTest, O024_GetWithoutACoordinatorIsAList) {
  put_job("other");
  put_coordinator("other");
  post(counts(1, 1));
  for (const bool in_step : {false, true}) {
    if (in_step) wait_in_step();
    for (const char* target : {"/v1alpha1/replicas", "/v1alpha1/replicas?namespace=default"}) {
      const auto seen = ask("GET", target, "{}");
      EXPECT_EQ(seen->status, 200);
      EXPECT_EQ(seen->json().bool_at({"success"}), true);
      const json::Value answer = seen->json();
      const json::Array* list = answer.find("data")->as_array();
      ASSERT_NE(list, nullptr) << seen->body;
      ASSERT_EQ(list->size(), 2U);
      EXPECT_EQ((*list)[0].string_at({"coordinator"}), "other-coordinator");
      EXPECT_EQ(json::print(*(*list)[0].find("learners")), "[]");
      EXPECT_EQ((*list)[1].find("collectors")->as_array()->size(), 1U);
    }
    EXPECT_EQ(data_of(*ask("GET", "/v1alpha1/replicas?namespace=elsewhere")), "[]");
  }
}

TEST_F(FirstReplicasTest, O025_PostWithUnknownCoordinatorIs404) {
  const auto seen =
      ask("POST", kReplicas,
          R"({"namespace":"default","coordinator":"not-exists","collectors":{"replicas":1}})");
  EXPECT_EQ(seen->status, 404);
  EXPECT_EQ(seen->json(), *json::parse(R"({"success":false,"code":1,
      "message":"pod: default/not-exists not exists in cache",
      "data":{"namespace":"","coordinator":"","collectors":null,"learners":null}})"));
}

TEST_F(FirstReplicasTest, O026_PatchIsNotImplemented) {
  const auto seen = ask("PATCH", kReplicas, demand(counts(1, 1)));
  EXPECT_EQ(seen->status, 501);
  EXPECT_EQ(
      seen->json(),
      *json::parse(R"({"success":false,"code":1,"message":"PATCH not implemented","data":null})"));
  EXPECT_EQ(ask("PUT", kReplicas)->status, 501);
  EXPECT_EQ(ask("GET", kFailed, "{}")->message(), "GET not implemented");
  EXPECT_EQ(ask("DELETE", kFailed)->status, 501);
}

TEST_F(FirstReplicasTest, O027_PostWithAnEmptyBodyIs400) {
  const auto seen = ask("POST", kReplicas);
  EXPECT_EQ(seen->status, 400);
  EXPECT_EQ(seen->json().bool_at({"success"}), false);
  EXPECT_EQ(seen->message(), "failed to decode request body: EOF");
  EXPECT_EQ(ask("DELETE", kReplicas)->message(), "failed to decode request body: EOF");
  EXPECT_EQ(ask("POST", kFailed, " ")->message(), "failed to decode request body: EOF");
}

TEST_F(FirstReplicasTest, O028_GetWithAnUnknownQueryKeyIs400) {
  const auto seen = ask("GET", "/v1alpha1/replicas?namespace=default&job=rl");
  EXPECT_EQ(seen->status, 400);
  EXPECT_EQ(seen->message(), "request param job is not supported");
  EXPECT_EQ(ask("GET", "/v1alpha1/replicas?coordinator=rl-coordinator")->message(),
            "request param coordinator needs the param namespace");
}

TEST_F(FirstReplicasTest, O029_HealthzIsOk) {
  EXPECT_EQ(ask("GET", "/healthz")->status, 200);
}

TEST_F(FirstReplicasTest, O030_OneGpuIsAPlainLearner) {
  put_nodes({8, 8, 0, 4});
  const auto seen = post(R"("learners":{"replicas":1,"gpus":1})");
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(urls(*seen, "learners").size(), 1U);
  EXPECT_EQ(count(Role::kLearner), 1U);
  EXPECT_EQ(count(Role::kAggregator), 0U);
  EXPECT_EQ(count(Role::kDdpLearner), 0U);
}

TEST_F(FirstReplicasTest, O031_TwoGpusAreOneDdpPodBehindAnAggregator) {
  put_nodes({8, 8, 0, 4});
  const auto seen = post(R"("learners":{"replicas":1,"gpus":2})");
  EXPECT_EQ(seen->status, 200);
  ASSERT_EQ(urls(*seen, "learners").size(), 1U);
  EXPECT_THAT(urls(*seen, "learners")[0], MatchesRegex("rl-aggregator-.....\\.default:22270"));
  EXPECT_EQ(count(Role::kAggregator), 1U);
  EXPECT_EQ(count(Role::kLearner), 0U);
  EXPECT_EQ(count(Role::kDdpLearner), 1U);
  EXPECT_EQ(count_gpu_ports(), 2U);
}

TEST_F(FirstReplicasTest, O032_TenGpusAreTwoDdpPods) {
  put_nodes({8, 8, 0, 4});
  EXPECT_EQ(post(R"("learners":{"replicas":1,"gpus":10})")->status, 200);
  EXPECT_EQ(count(Role::kAggregator), 1U);
  const auto pods = objects(Role::kDdpLearner);
  ASSERT_EQ(pods.size(), 2U);
  std::multiset<std::string> sizes;
  for (const json::Value* pod : pods) sizes.insert(variable(*pod, "LOCAL_WORLD_SIZE"));
  EXPECT_THAT(sizes, ElementsAre("2", "8"));
  EXPECT_EQ(count_gpu_ports(), 10U);
}

TEST_F(FirstReplicasTest, O033_TwoLogicalLearnersAreTwoGroups) {
  put_nodes({8, 8, 0, 4});
  EXPECT_EQ(post(R"("learners":{"replicas":2,"gpus":2})")->status, 200);
  EXPECT_EQ(count(Role::kAggregator), 2U);
  EXPECT_EQ(count(Role::kDdpLearner), 2U);
  EXPECT_EQ(count_gpu_ports(), 4U);
}

TEST_F(FirstReplicasTest, TheAggregatorOfTheOperatorIsNotListedAsALearner) {
  put(kPods, pod_object("rl-aggregator", "aggregator", "rl"));
  const auto made = post(counts(0, 1));
  for (const bool in_step : {false, true}) {
    if (in_step) wait_in_step();
    EXPECT_EQ(urls(*get(), "learners"), urls(*made, "learners"));
    EXPECT_THAT(ask("GET", "/v1alpha1/replicas", "{}")->body, Not(HasSubstr("rl-aggregator")));
  }
}

TEST_F(FirstReplicasTest, O034_GetWithAnAggregatorListsItsGpuPorts) {
  put_nodes({8, 8, 0, 4});
  const auto made = post(R"("learners":{"replicas":1,"gpus":10})");
  const std::string aggregator = pod_of(urls(*made, "learners")[0]);
  for (const bool in_step : {false, true}) {
    if (in_step) wait_in_step();
    const auto seen =
        ask("GET", "/v1alpha1/replicas?namespace=default&aggregator=" + aggregator, "{}");
    EXPECT_EQ(seen->status, 200);
    EXPECT_EQ(seen->json().string_at({"data", "coordinator"}), aggregator);
    EXPECT_TRUE(seen->json().find_path({"data", "collectors"})->is_null());
    const auto learners = urls(*seen, "learners");
    ASSERT_EQ(learners.size(), 10U);
    // Rank r listens on the port of the template plus r, in whichever pod it is (D22).
    for (std::size_t rank = 0; rank < learners.size(); ++rank) {
      EXPECT_THAT(learners[rank], ::testing::EndsWith(fmt::format(".default:{}", 80 + rank)));
    }
  }
}

TEST_F(FirstReplicasTest, O035_FailedAggregatorComesBackWithItsGroup) {
  put_nodes({8, 8, 0, 4});
  const auto made = post(R"("learners":{"replicas":1,"gpus":10,"cpus":2})");
  const std::string aggregator = pod_of(urls(*made, "learners")[0]);
  std::set<std::string> before;
  for (const json::Value* pod : objects(Role::kDdpLearner)) {
    before.insert(std::string(pod->string_at({"metadata", "uid"})));
  }
  const auto seen = report({}, {aggregator});
  EXPECT_EQ(seen->status, 200);
  ASSERT_EQ(urls(*seen, "learners").size(), 1U);
  EXPECT_EQ(data_of(*seen).find("null") != std::string::npos, true) << "no collectors: null";
  const std::string fresh = pod_of(urls(*seen, "learners")[0]);
  EXPECT_NE(fresh, aggregator);
  EXPECT_EQ(count(Role::kAggregator), 1U);
  EXPECT_EQ(count(Role::kDdpLearner), 2U);
  EXPECT_EQ(count_gpu_ports(), 10U);
  for (const json::Value* pod : objects(Role::kDdpLearner)) {
    EXPECT_FALSE(before.contains(std::string(pod->string_at({"metadata", "uid"}))));
    EXPECT_EQ(dijob::first::read_pod(*pod)->aggregator_uid,
              pod_named(fresh).string_at({"metadata", "uid"}));
    EXPECT_EQ(variable(*pod, "WORLD_SIZE"), "10");
    const json::Value& main = (*pod->find_path({"spec", "containers"})->as_array())[1];
    EXPECT_EQ(main.string_at({"resources", "limits", "cpu"}), "2") << "the old resources";
  }
}

TEST_F(FirstReplicasTest, O038_CoordinatorOfAnEarlierJobIsStale) {
  wait_in_step();
  // The job is deleted and made again; the pod of the old one is not collected yet.
  json::Value left = pod_named("rl-coordinator");
  cluster_.store.remove(kJobs, "default/rl");
  put_job();
  put(kPods, left);
  loop_.run_for(1s);
  for (const auto& seen :
       {get(), post(counts(1, 1)), ask("DELETE", kReplicas, demand(counts(1, 1)))}) {
    EXPECT_EQ(seen->status, 404);
    EXPECT_EQ(seen->message(), "coordinator rl-coordinator is owned by stale DIJob");
  }
}

TEST_F(FirstReplicasTest, O039_ResourcesOfTheRequestChangeTheMainContainer) {
  const auto made = post(
      R"("collectors":{"replicas":1},"learners":{"replicas":1,"cpus":2,"memory":"10Gi","gpus":0})");
  const json::Value learner = pod_named(pod_of(urls(*made, "learners")[0]));
  const json::Value& main = (*learner.find_path({"spec", "containers"})->as_array())[1];
  for (const char* list : {"limits", "requests"}) {
    EXPECT_EQ(main.string_at({"resources", list, "cpu"}), "2");
    EXPECT_EQ(main.string_at({"resources", list, "memory"}), "10Gi");
    EXPECT_EQ(main.find_path({"resources", list, "nvidia.com/gpu"}), nullptr);
  }
  const json::Value& side = (*learner.find_path({"spec", "containers"})->as_array())[0];
  EXPECT_EQ(side.find("resources"), nullptr);
  const json::Value collector = pod_named(pod_of(urls(*made, "collectors")[0]));
  EXPECT_EQ((*collector.find_path({"spec", "containers"})->as_array())[0].find("resources"),
            nullptr);
}

TEST_F(FirstReplicasTest, O040_BodyOnGetAndNoContentTypeAreAccepted) {
  const auto seen =
      ask("GET", "/v1alpha1/replicas?namespace=default&coordinator=rl-coordinator", "{}", {});
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(
      data_of(*seen),
      R"({"namespace":"default","coordinator":"rl-coordinator","collectors":[],"learners":[]})");
}

TEST_F(FirstReplicasTest, O090_RestartedServerNeverAnswers404) {
  post(counts(2, 1));
  for (int i = 0; i < 10; ++i) {
    restart();
    for (int poll = 0; poll < 5; ++poll) {
      const auto seen = get();
      ASSERT_EQ(seen->status, 200) << seen->body;
      EXPECT_EQ(urls(*seen, "collectors").size(), 2U);
      EXPECT_EQ(urls(*seen, "learners").size(), 1U);
      loop_.run_for(std::chrono::milliseconds(1) * poll);
    }
  }
}

TEST_F(FirstReplicasTest, WorkersHaveWhatTheSpecificationSays) {
  const auto made = post(counts(1, 1));
  const std::string name = pod_of(urls(*made, "collectors")[0]);
  const json::Value pod = pod_named(name);
  EXPECT_EQ(variable(pod, "COLLECTOR_PORT"), "80");
  EXPECT_EQ(variable(pod, "KUBERNETES_POD_NAME"), name);
  EXPECT_EQ(variable(pod, "KUBERNETES_SERVER_URL"), "http://di-server.di-system:8080");
  EXPECT_EQ(pod.string_at({"metadata", "labels", "replica-type"}), "collector");
  EXPECT_EQ(pod.string_at({"metadata", "annotations", "divisi/coordinator-uid"}),
            pod_named("rl-coordinator").string_at({"metadata", "uid"}));
  EXPECT_EQ(pod.string_at({"spec", "priorityClassName"}), "high") << "D20";
}

TEST_F(FirstReplicasTest, OneRoleInTheDemandLeavesTheOtherAlone) {
  const auto seen = post(R"("collectors":{"replicas":1})");
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(json::print(*seen->json().find_path({"data", "learners"})), "[]");
  EXPECT_EQ(count(Role::kLearner), 0U);
}

TEST_F(FirstReplicasTest, SecondDemandOfTheSameCoordinatorAdds) {
  post(counts(1, 1));
  const auto seen = post(counts(2, 0));
  EXPECT_EQ(urls(*seen, "collectors").size(), 2U);
  EXPECT_EQ(count(Role::kCollector), 3U);
  EXPECT_EQ(count(Role::kLearner), 1U);
}

TEST_F(FirstReplicasTest, TwoDemandsAtOnceAreMetOneAfterAnother) {
  const auto one = send({"POST", kReplicas, {}, demand(counts(2, 0))});
  const auto two = send({"POST", kReplicas, {}, demand(counts(3, 0))});
  ASSERT_TRUE(loop_.run_until([&] { return one->status != 0 && two->status != 0; }, 1min));
  EXPECT_EQ(urls(*one, "collectors").size(), 2U);
  EXPECT_EQ(urls(*two, "collectors").size(), 3U);
  EXPECT_EQ(count(Role::kCollector), 5U);
}

TEST_F(FirstReplicasTest, DeleteTakesTheYoungestOfEqualWorkers) {
  wait_in_step();
  std::vector<std::string> made;
  for (int i = 0; i < 4; ++i) {
    const auto seen = post(counts(1, 0));
    for (const std::string& url : urls(*seen, "collectors")) made.push_back(url);
    loop_.run_for(10s);
  }
  ASSERT_EQ(made.size(), 4U);
  const auto seen = ask("DELETE", kReplicas, demand(R"("collectors":{"replicas":2})"));
  EXPECT_THAT(urls(*seen, "collectors"), UnorderedElementsAreArray({made[2], made[3]}));
}

TEST_F(FirstReplicasTest, DeleteTakesNoMoreThanThereIs) {
  post(counts(1, 0));
  const auto seen = ask("DELETE", kReplicas, demand(R"("collectors":{"replicas":5})"));
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(urls(*seen, "collectors").size(), 1U);
  EXPECT_EQ(json::print(*seen->json().find_path({"data", "learners"})), "[]");
  EXPECT_EQ(count(Role::kCollector), 0U);
}

TEST_F(FirstReplicasTest, OD23_DeletedAggregatorTakesItsGroupAlong) {
  put_nodes({8, 8, 0, 4});
  post(R"("learners":{"replicas":2,"gpus":10})");
  EXPECT_EQ(count_pods(), 1U + 2U + 4U);
  const auto seen = ask("DELETE", kReplicas, demand(R"("learners":{"replicas":1})"));
  EXPECT_EQ(urls(*seen, "learners").size(), 1U);
  EXPECT_EQ(count(Role::kAggregator), 1U);
  EXPECT_EQ(count(Role::kDdpLearner), 2U);
}

TEST_F(FirstReplicasTest, PlainLearnersGoBeforeAggregators) {
  put_nodes({8, 8});
  post(R"("learners":{"replicas":1,"gpus":2})");
  post(R"("learners":{"replicas":1})");
  ask("DELETE", kReplicas, demand(R"("learners":{"replicas":2})"));
  EXPECT_EQ(count(Role::kLearner), 0U);
  EXPECT_EQ(count(Role::kAggregator), 1U) << "a plain learner was deleted";
  ask("DELETE", kReplicas, demand(R"("learners":{"replicas":2})"));
  EXPECT_EQ(count(Role::kAggregator), 0U);
  EXPECT_EQ(count(Role::kDdpLearner), 0U);
}

TEST_F(FirstReplicasTest, TerminatingPodsAreNotListed) {
  wait_in_step();
  const auto made = post(counts(2, 0));
  json::Value going = pod_named(pod_of(urls(*made, "collectors")[0]));
  going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z";
  put(kPods, going);
  json::Value ended = pod_named(pod_of(urls(*made, "collectors")[1]));
  ended["status"]["phase"] = "Failed";
  put(kPods, ended);
  loop_.run_for(1s);
  EXPECT_THAT(urls(*get(), "collectors"), ElementsAre(urls(*made, "collectors")[1]));
}

TEST_F(FirstReplicasTest, PodsOfOthersAreNeverTouched) {
  put_job("other");
  put_coordinator("other");
  json::Value stranger = *json::parse(R"({"metadata": {"name": "stranger"},
      "spec": {"containers": [{"name": "a"}]}, "status": {"phase": "Running"}})");
  put(kPods, stranger);
  const std::size_t before = count_pods();
  const auto seen = report({"stranger", "unknown", "BAD/../name", ""}, {"rl-coordinator"});
  EXPECT_EQ(seen->status, 200) << seen->body;
  EXPECT_EQ(
      data_of(*seen),
      R"({"namespace":"default","coordinator":"rl-coordinator","collectors":null,"learners":null})");
  EXPECT_EQ(count_pods(), before);
  EXPECT_FALSE(pod_named("stranger").is_null());
}

TEST_F(FirstReplicasTest, FailedReportTakesFullUrls) {
  const auto made = post(counts(1, 1));
  const auto seen =
      report({urls(*made, "collectors")[0]}, {"http://" + urls(*made, "learners")[0]});
  EXPECT_EQ(urls(*seen, "collectors").size(), 1U);
  EXPECT_EQ(urls(*seen, "learners").size(), 1U);
  EXPECT_EQ(count(Role::kCollector), 1U);
}

TEST_F(FirstReplicasTest, RebuiltPodsKeepOwnersLabelsAndSpec) {
  const auto made = post(R"("collectors":{"replicas":1,"cpus":"3"})");
  const std::string old_name = pod_of(urls(*made, "collectors")[0]);
  json::Value old = pod_named(old_name);
  old["spec"]["nodeName"] = "node-1";
  put(kPods, old);
  const auto seen = report({old_name}, {});
  const std::string name = pod_of(urls(*seen, "collectors")[0]);
  const json::Value fresh = pod_named(name);
  EXPECT_EQ(*fresh.find_path({"metadata", "ownerReferences"}),
            *old.find_path({"metadata", "ownerReferences"}));
  EXPECT_EQ(fresh.string_at({"metadata", "labels", "pod-name"}), name);
  EXPECT_EQ(fresh.string_at({"metadata", "labels", "replica-type"}), "collector");
  EXPECT_EQ(variable(fresh, "KUBERNETES_POD_NAME"), name);
  EXPECT_EQ(fresh.find_path({"spec", "nodeName"}), nullptr);
  EXPECT_EQ((*fresh.find_path({"spec", "containers"})->as_array())[0].string_at(
                {"resources", "limits", "cpu"}),
            "3");
  EXPECT_TRUE(pod_named(old_name).is_null()) << "with a grace period of 0";
}

TEST_F(FirstReplicasTest, FailedMasterOfAGroupMovesTheWholeGroup) {
  put_nodes({8, 8});
  const auto made = post(R"("learners":{"replicas":1,"gpus":10})");
  const std::string aggregator = pod_of(urls(*made, "learners")[0]);
  std::string master;
  for (const json::Value* pod : objects(Role::kDdpLearner)) {
    if (variable(*pod, "START_RANK") == "0") master = pod->string_at({"metadata", "name"});
  }
  const auto seen = report({}, {master});
  EXPECT_EQ(urls(*seen, "learners").size(), 10U);
  ASSERT_EQ(count(Role::kDdpLearner), 2U);
  std::string fresh;
  std::string address;
  for (const json::Value* pod : objects(Role::kDdpLearner)) {
    if (variable(*pod, "START_RANK") == "0") {
      fresh = pod->string_at({"metadata", "name"});
    } else {
      address = variable(*pod, "MASTER_ADDR");
    }
  }
  EXPECT_NE(fresh, master);
  EXPECT_EQ(address, fresh);
  EXPECT_FALSE(pod_named(aggregator).is_null());
}

TEST_F(FirstReplicasTest, NameIsAcceptedAndAnsweredWithNull) {
  const auto seen = ask("GET", "/v1alpha1/replicas?namespace=default&name=rl");
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(data_of(*seen), "null");
}

TEST_F(FirstReplicasTest, EveryUnknownThingIs404WithItsText) {
  put(kPods, *json::parse(R"({"metadata": {"name": "loner"}, "spec": {"containers": []}})"));
  EXPECT_EQ(get("loner")->message(), "module loner is not owned by any DIJob");
  EXPECT_EQ(get("loner")->status, 404);
  EXPECT_EQ(ask("GET", "/v1alpha1/replicas?namespace=default&aggregator=none")->message(),
            "pod: default/none not exists in cache");
  cluster_.store.remove(kJobs, "default/rl");
  const auto seen = post(counts(1, 0));
  EXPECT_EQ(seen->status, 404);
  EXPECT_EQ(seen->message(), "DIJob: default/rl not exists in cache");
  EXPECT_EQ(ask("GET", "/v1alpha1/other")->status, 404);
  EXPECT_EQ(ask("GET", "/v1alpha1/other")->body, "404 page not found\n");
}

TEST_F(FirstReplicasTest, OD21_ConfigIsNeededOnlyForAggregators) {
  cluster_.store.remove(kConfigs, "di-system/aggregator-config");
  put_nodes({8});
  EXPECT_EQ(post(counts(1, 1))->status, 200);
  const auto seen = post(R"("collectors":{"replicas":1},"learners":{"replicas":1,"gpus":2})");
  EXPECT_EQ(seen->status, 404);
  EXPECT_EQ(seen->message(), "AGConfig: di-system/aggregator-config not exists in cache");
  EXPECT_EQ(count(Role::kCollector), 1U) << "nothing was created before it";
}

TEST_F(FirstReplicasTest, OD21_RoleWithoutATemplateIs400) {
  json::Value serial = job_object("serial");
  serial["spec"].erase("collector");
  serial["spec"].erase("learner");
  put(kJobs, serial);
  put_coordinator("serial");
  for (const char* sizes : {R"("collectors":{"replicas":1})", R"("learners":{"replicas":1})",
                            R"("learners":{"replicas":1,"gpus":4})"}) {
    const auto seen = post(sizes, "serial");
    EXPECT_EQ(seen->status, 400);
    EXPECT_THAT(seen->message(), HasSubstr("DIJob default/serial has no spec."));
  }
  EXPECT_EQ(post(counts(0, 0), "serial")->status, 200);
}

TEST_F(FirstReplicasTest, JobsOfTheSecondGenerationAreRefusedByName) {
  put_tasks_job("tasks");
  put_coordinator("tasks");
  const auto seen = post(counts(1, 0), "tasks");
  EXPECT_EQ(seen->status, 400);
  EXPECT_THAT(seen->message(), HasSubstr("DIJob default/tasks is no job of the first generation"));
}

TEST_F(FirstReplicasTest, EndedJobsGetNoMoreReplicas) {
  json::Value ended = job_object("rl");
  ended["status"]["phase"] = "Succeeded";
  put(kJobs, ended);
  const auto seen = post(counts(1, 0));
  EXPECT_EQ(seen->status, 400);
  EXPECT_EQ(seen->message(), "DIJob default/rl has ended as Succeeded: it gets no more replicas");
}

TEST_F(FirstReplicasTest, DemandBeyondTheLimitIs400WithTheNumber) {
  EXPECT_EQ(post(counts(20000, 0))->message(),
            "collectors.replicas is 20000: it must be between 0 and 10000");
  const auto seen = post(counts(9000, 2000));
  EXPECT_EQ(seen->status, 400);
  EXPECT_EQ(seen->message(),
            "11000 more replicas would make 11000 pods of DIJob default/rl: at most 10000 are "
            "allowed");
  put_nodes({1, 1});
  const auto groups = post(R"("learners":{"replicas":1000,"gpus":10})");
  EXPECT_EQ(groups->status, 400);
  EXPECT_THAT(groups->message(), HasSubstr("11000 more replicas")) << "an aggregator and ten pods";
  EXPECT_EQ(count_pods(), 1U);
  EXPECT_THAT(post(R"("learners":{"replicas":1,"gpus":1025})")->message(), HasSubstr("1024"));
}

TEST_F(FirstReplicasTest, PortsBeyondTheLastAre400) {
  json::Value job = job_object("rl");
  (*job["spec"]["learner"]["template"]["spec"]["containers"].as_array())[1]["ports"] =
      *json::parse(R"([{"name": "di-port", "containerPort": 65530}])");
  put(kJobs, job);
  const auto seen = post(R"("learners":{"replicas":1,"gpus":10})");
  EXPECT_EQ(seen->status, 400);
  EXPECT_THAT(seen->message(), AllOf(HasSubstr("65539"), HasSubstr("65535")));
}

TEST_F(FirstReplicasTest, NamesThatGetTooLongAre400) {
  const std::string name(48, 'a');
  put_job(name);
  put_coordinator(name);
  const auto seen = post(counts(1, 0), name);
  EXPECT_EQ(seen->status, 400);
  EXPECT_THAT(seen->message(), HasSubstr("names of 64 characters"));
}

TEST_F(FirstReplicasTest, AnswersAreCounted) {
  get();
  ask("PATCH", kFailed);
  const std::string text = ask("GET", "/metrics")->body;
  EXPECT_THAT(
      text,
      HasSubstr(
          R"(divisi_server_requests_total{code="200",method="GET",route="first-replicas"} 1)"));
  EXPECT_THAT(
      text,
      HasSubstr(
          R"(divisi_server_requests_total{code="501",method="PATCH",route="first-failed"} 1)"));
}

TEST_F(FirstReplicasTest, JobSecretModeSaysWhyItRefuses) {
  restart({AuthMode::kJobSecret, {}});
  for (const auto& seen : {get(), post(counts(1, 0)), report({"a"}, {}), ask("GET", kReplicas)}) {
    EXPECT_EQ(seen->status, 401);
    EXPECT_THAT(seen->message(), HasSubstr("--auth=job-secret"));
  }
  EXPECT_EQ(ask("GET", kReplicas, "", {{"Authorization", "Bearer x"}})->status, 401);
  const auto wrong = ask("GET", "/v1alpha1/replicas?namespace=default&coordinator=rl-coordinator",
                         "", {{"Authorization", "Bearer x"}});
  EXPECT_EQ(wrong->status, 401);
  EXPECT_EQ(wrong->message(), "the bearer token is not the right one");
  EXPECT_EQ(ask("GET", "/v1alpha1/replicas?namespace=default&coordinator=none", "",
                {{"Authorization", "Bearer x"}})
                ->message(),
            wrong->message())
      << "who may not ask does not learn which pods there are";
  EXPECT_EQ(count_pods(), 1U);
}

}  // namespace
}  // namespace divisi::server::first
