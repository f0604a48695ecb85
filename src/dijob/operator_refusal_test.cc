// What the server refuses, names that are taken, and what has lost its owner (M15, M16, M19).
#include "dijob/job_secret.h"
#include "dijob/testing/operator_fixture.h"
#include "http/base64.h"

namespace divisi::dijob::testing {
namespace {

using namespace std::chrono_literals;
using kube::status_answer;

class OperatorRefusalTest : public OperatorTest {
 protected:
  // As a quota does it.
  void allow_pods(std::size_t most) {
    cluster.api.intercept = [this, most](const http::Request& request) {
      const bool makes = request.method == "POST" && request.target.ends_with("/pods");
      return makes && cluster.api.store.all(kPods).size() >= most
                 ? std::optional(
                       status_answer(403, "Forbidden", "exceeded quota: few, requested: pods=1"))
                 : std::nullopt;
    };
  }
  // A pod that the operator does not know.
  void put_pod(const std::string& name, const std::string& metadata = {}) {
    json::Value object = *json::parse(
        fmt::format(R"({{"metadata": {{"name": "{}", "namespace": "default"{}}}, "spec": {{}}}})",
                    name, metadata));
    cluster.api.store.create(kPods, in_default(name), std::move(object), "2026-01-01T00:00:00Z");
    cluster.api.changed();
  }
};

TEST_F(OperatorRefusalTest, AFullQuotaIsWaitedForAndCostsNothing) {
  allow_pods(2);
  create(usual_job("backoffLimit: 0"));
  cluster.settle(30min);
  EXPECT_EQ(cluster.phase("j"), "Pending");
  EXPECT_EQ(counters(cluster), (Counters{0, 0}));
  EXPECT_EQ(cluster.pods("j").size(), 2u) << "those that were made stay";
  EXPECT_NE(message("Blocked").find("exceeded quota: few"), std::string::npos);
  EXPECT_TRUE(told("Warning FailedCreate: failed to create pod: j-collector-0 error:"));
  const std::uint64_t before = cluster.api.requests();
  cluster.settle(10min);
  EXPECT_LT(cluster.api.requests() - before, 100u) << "once a minute";
  allow_pods(100);
  cluster.settle(2min);
  EXPECT_EQ(cluster.phase("j"), "Starting");
  EXPECT_EQ(cluster.condition("j", "Blocked").string_at({"status"}), "False");
}

TEST_F(OperatorRefusalTest, AGangWaitsForAFullQuotaToo) {
  allow_pods(1);
  create(template_job("minReplicas: 2"));
  cluster.settle(5min);
  EXPECT_EQ(cluster.phase("g"), "Pending");
  EXPECT_EQ(cluster.status("g", "restarts"), 0);
  allow_pods(100);
  cluster.settle(2min);
  EXPECT_EQ(cluster.phase("g"), "Starting");
}

TEST_F(OperatorRefusalTest, PodsThatAreInvalidCostOneOfTheBudgetARound) {
  int tries = 0;
  cluster.api.intercept = [&](const http::Request& request) {
    const bool makes = request.method == "POST" && request.target.ends_with("/pods");
    tries += makes ? 1 : 0;
    return makes ? std::optional(status_answer(422, "Invalid", "Pod is invalid")) : std::nullopt;
  };
  create(usual_job());
  cluster.settle(20s);
  EXPECT_EQ(cluster.phase("j"), "Restarting") << "the rounds wait 0, 10 and 20 s";
  cluster.settle(1min);
  EXPECT_EQ(cluster.phase("j"), "Failed");
  EXPECT_EQ(cluster.status("j", "restarts"), 3);
  EXPECT_EQ(tries, 4);
}

TEST_F(OperatorRefusalTest, ANameThatIsTakenIsToldWithItsHolder) {
  put_pod("j-evaluator-0");
  put_pod("j-learner-0", R"(, "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "1",
                              "controller": true}])");
  create(usual_job("backoffLimit: 0"));
  cluster.settle(5min);
  EXPECT_EQ(cluster.phase("j"), "Pending");
  EXPECT_NE(cluster.uid("j-collector-1"), "") << "the others are made";
  EXPECT_TRUE(told("a pod of that name belongs to ReplicaSet web"));
  EXPECT_TRUE(told("a pod of that name belongs to nobody"));
  EXPECT_NE(message("Blocked").find("j-evaluator-0"), std::string::npos) << message("Blocked");
  for (const char* pod : {"j-learner-0", "j-evaluator-0"}) {
    cluster.api.store.remove(kPods, in_default(pod));
  }
  cluster.api.changed();
  cluster.settle(2min);
  EXPECT_EQ(cluster.phase("j"), "Starting");
  EXPECT_EQ(cluster.status("j", "restarts"), 0);
}

TEST_F(OperatorRefusalTest, APodThatLostItsLabelIsNamed) {
  create_running(usual_job());
  json::Value pod = cluster.pod("j-learner-0");
  pod["metadata"]["labels"].erase("diengine/operator");
  cluster.crash_all();
  cluster.api.store.update(kPods, in_default("j-learner-0"), pod);
  cluster.start_operator();
  cluster.settle(1min);
  EXPECT_NE(message("Blocked").find("has lost its label diengine/operator=di-operator"),
            std::string::npos)
      << message("Blocked");
}

TEST_F(OperatorRefusalTest, TheLaterOfTwoJobsWhosePodsCollideIsRefused) {
  create(tasks_job({task("none", 1, "name: b-c")}, "", "a"));
  create(tasks_job({task("none", 1, "name: c")}, "", "a-b"));
  EXPECT_EQ(cluster.phase("a"), "Starting");
  EXPECT_EQ(cluster.phase("a-b"), "Failed");
  EXPECT_NE(message("Failed", "a-b").find("DIJob a, which is older"), std::string::npos);
  create(tasks_job({task("none", 1, "name: d")}, "", "a-c"));
  EXPECT_EQ(cluster.phase("a-c"), "Starting");
  create(tasks_job({task("none", 1, "name: x-y")}, "", "q-r"));
  create(tasks_job({task("none", 1, "name: r-x-y")}, "", "q"));
  EXPECT_EQ(cluster.phase("q"), "Failed");
  // An edit that would collide is refused as any other.
  cluster.edit_job("a-c", fmt::format("{{spec: {{tasks: [{}, {}]}}}}", task("none", 1, "name: d"),
                                      task("none", 1, "name: e")));
  cluster.settle();
  EXPECT_EQ(cluster.pods("a-c").size(), 2u);
  create(tasks_job({task("none", 1, "name: z")}, "", "a-c-f"));
  cluster.edit_job("a-c", fmt::format("{{spec: {{tasks: [{}, {}]}}}}", task("none", 1, "name: d"),
                                      task("none", 1, "name: f-z")));
  cluster.settle();
  EXPECT_EQ(cluster.condition("a-c", "EditRefused").string_at({"status"}), "True");
  EXPECT_EQ(cluster.pods("a-c").size(), 2u);
}

TEST_F(OperatorRefusalTest, ASecretThatWasDeletedIsMadeForTheNextPod) {
  create_running(usual_job());
  const std::string secret = cluster.api.store.all(kSecrets).begin()->first;
  cluster.api.store.remove(kSecrets, secret);
  cluster.api.changed();
  cluster.delete_pod("j-learner-0");
  cluster.settle();
  EXPECT_EQ(cluster.api.store.all(kSecrets).count(secret), 1u);
}

TEST_F(OperatorRefusalTest, M18_TheStatusHasTheSaltedHashOfTheSecret) {
  const auto matches = [&] {
    const json::Value& secret = cluster.api.store.all(kSecrets).begin()->second;
    const auto text = http::decode_base64(secret.string_at({"data", "secret"}));
    return has_hash(*text, cluster.job("j").string_at({"status", "secretHash"}));
  };
  // An operator dies between the secret and the first status.
  cluster.on_change = [&](const auto& change) {
    if (change.collection == kSecrets) cluster.loop.post([&] { cluster.crash_all(); });
  };
  create(usual_job());
  ASSERT_EQ(cluster.running_operators(), 0u);
  ASSERT_EQ(cluster.api.store.all(kSecrets).size(), 1u);
  cluster.on_change = nullptr;
  cluster.start_operator();
  cluster.settle();
  EXPECT_TRUE(matches());
  // Deleted by hand, and made by an operator with another key.
  cluster.crash_all();
  const std::string before(cluster.job("j").string_at({"status", "secretHash"}));
  cluster.api.store.remove(kSecrets, cluster.api.store.all(kSecrets).begin()->first);
  cluster.secret_key = "another";
  cluster.start_operator();
  cluster.delete_pod("j-learner-0");
  cluster.settle(1min);
  EXPECT_NE(cluster.job("j").string_at({"status", "secretHash"}), before);
  EXPECT_TRUE(matches());
  EXPECT_EQ(cluster.api.store.all(kSecrets).size(), 1u);
}

TEST_F(OperatorRefusalTest, M18_WithoutAKeyNoJobHasAHash) {
  cluster.crash_all();
  cluster.secret_key = "";
  cluster.start_operator();
  create_running(usual_job());
  EXPECT_EQ(cluster.api.store.all(kSecrets).size(), 1u);
  EXPECT_EQ(cluster.job("j").string_at({"status", "secretHash"}), "");
}

TEST_F(OperatorRefusalTest, M19_AFullQuotaDoesNotBlockPodsWhoseSecretExists) {
  create_running(usual_job());
  cluster.api.intercept = [](const http::Request& request) {
    const bool makes = request.method == "POST" && request.target.ends_with("/secrets");
    return makes ? std::optional(status_answer(403, "Forbidden", "exceeded quota: secrets"))
                 : std::nullopt;
  };
  const std::string before = cluster.uid("j-learner-0");
  fail("j-learner-0");
  cluster.settle();
  EXPECT_NE(cluster.uid("j-learner-0"), before);
  EXPECT_EQ(message("Blocked"), "");
}

TEST_F(OperatorRefusalTest, ASecretThatIsRefusedIsToldOf) {
  cluster.api.intercept = [](const http::Request& request) {
    const bool makes = request.method == "POST" && request.target.ends_with("/secrets");
    return makes ? std::optional(status_answer(403, "Forbidden", "exceeded quota: secrets"))
                 : std::nullopt;
  };
  create(usual_job());
  cluster.settle(1min);
  EXPECT_TRUE(told("Warning FailedCreate: failed to create secret: j-secret-"));
  EXPECT_NE(message("Blocked").find("exceeded quota: secrets"), std::string::npos);
  EXPECT_TRUE(cluster.pods("j").empty()) << "they could not start";
  cluster.api.intercept = nullptr;
  cluster.settle(2min);
  EXPECT_EQ(cluster.phase("j"), "Starting");
}

TEST_F(OperatorRefusalTest, OrphansAreAdoptedAndGoWithTheirNewJob) {
  create_running(usual_job());
  const auto before = uids();
  // kubectl delete --cascade=orphan
  for (const char* collection : {kPods, kServices}) {
    for (const auto& [key, object] :
         kube::MemoryStore::Objects(cluster.api.store.all(collection))) {
      json::Value orphan = object;
      orphan["metadata"].erase("ownerReferences");
      cluster.api.store.update(collection, key, orphan);
    }
  }
  cluster.delete_job("j");
  cluster.settle();
  create(usual_job());
  EXPECT_EQ(uids(), before);
  EXPECT_EQ(cluster.phase("j"), "Running");
  const std::string uid(cluster.job("j").string_at({"metadata", "uid"}));
  for (const json::Value& pod : cluster.pods("j")) EXPECT_EQ(owner_of(pod), uid);
  cluster.delete_job("j");
  cluster.settle(5min);
  EXPECT_TRUE(cluster.api.store.all(kPods).empty());
  EXPECT_TRUE(cluster.api.store.all(kServices).empty());
}

TEST_F(OperatorRefusalTest, AnOrphanThatCannotBeAdoptedIsNamedAndNeverUsed) {
  cluster.api.intercept = [](const http::Request& request) {
    const bool adopts =
        request.method == "PATCH" && request.target.find("/pods/") != std::string::npos;
    return adopts ? std::optional(status_answer(403, "Forbidden", "may not patch pods"))
                  : std::nullopt;
  };
  put_pod("j-learner-0", R"(, "labels": {"diengine/job": "j", "diengine/operator": "di-operator",
                              "diengine/task-name": "learner"})");
  create(usual_job());
  cluster.settle(1min);
  EXPECT_TRUE(told("Warning FailedAdopt: pod j-learner-0 has the labels of the job and no owner"));
  EXPECT_NE(message("Blocked").find("j-learner-0"), std::string::npos);
  EXPECT_EQ(cluster.pods("j").size(), 4u) << "the others are made";
}

TEST_F(OperatorRefusalTest, ManyPodsHideNoEventOfTheJob) {
  create_running(tasks_job({task("learner", 1), task("collector", 60)}, "backoffLimit: 0"));
  fail("j-learner-0");
  cluster.settle(1min);
  for (const char* reason : {"JobPending", "JobStarting", "JobRunning", "JobFailed"}) {
    EXPECT_TRUE(told(reason)) << reason;
  }
}

}  // namespace
}  // namespace divisi::dijob::testing
